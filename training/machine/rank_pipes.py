"""Pipes between processes that `torchrun` started, on one machine or several.

Messages go through the key-value store that torchrun's processes share; results are small. Only processes of the same
job can reach it, and they trust each other, as those of a training run do.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import threading
from contextlib import suppress
from functools import lru_cache
from multiprocessing.connection import Connection

from torch.distributed import TCPStore  # type: ignore[attr-defined]  # torch's stubs do not export it

OTHER_RANK = "rank:"
"""Prefix of the name of a device in another rank."""
_POLL_S = 0.01
_CLOSED = b""


@lru_cache(maxsize=1)
def _shared_store() -> TCPStore:
    """The store of torchrun's agent if there is one; otherwise the first rank's own."""
    is_agents = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    return TCPStore(
        os.environ["MASTER_ADDR"],
        int(os.environ["MASTER_PORT"]),
        is_master=os.environ["RANK"] == "0" and not is_agents,
        wait_for_workers=False,
    )


def connection_to(name: str, *, is_caller: bool) -> Connection:
    """One end of a pipe between the first rank and another.

    Args:
        name: name of the pipe, the same at both ends.
        is_caller: whether this is the calling end.

    Returns:
        a connection; it returns None once the other end is closed. Close it: the process lives until then.
    """
    store = _shared_store()
    mine, theirs = multiprocessing.Pipe()
    there, back = ("to", "from") if is_caller else ("from", "to")
    # A connection to the store for each thread. Neither is a daemon: one that is inside the store while Python exits
    # aborts the process. They outlive us until the other end knows that we are gone.
    sending, receiving = (store.clone() for _ in range(2))  # type: ignore[attr-defined]  # torch's stubs lack it
    gone = threading.Event()
    threading.Thread(target=_send_all, args=(theirs, sending, f"{name}/{there}", gone)).start()
    threading.Thread(target=_receive_all, args=(theirs, receiving, f"{name}/{back}", gone)).start()
    return mine


def _send_all(connection: Connection, store: TCPStore, prefix: str, gone: threading.Event) -> None:
    number, message = 0, b"something"
    while message != _CLOSED:
        try:
            message = pickle.dumps(connection.recv())
        except (EOFError, OSError):
            message = _CLOSED
        store.set(f"{prefix}/{number}", message)  # type: ignore[arg-type]  # torch's stubs know only text
        number += 1
    gone.set()


def _receive_all(connection: Connection, store: TCPStore, prefix: str, gone: threading.Event) -> None:
    number, message = 0, b"something"
    while message != _CLOSED:
        key = f"{prefix}/{number}"
        while not store.check([key]):
            if gone.wait(_POLL_S):
                return
        message = store.get(key)
        store.delete_key(key)
        with suppress(OSError):  # this side closed first
            # Closing would not wake the thread that waits on it: None says that the other end is closed.
            connection.send(None if message == _CLOSED else pickle.loads(message))
        number += 1
