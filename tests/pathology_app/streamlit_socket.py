"""Streamlit's WebSocket without a browser: run a page, read what it draws, and say what a browser might."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ClientState_pb2 import ClientState
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.proto.WidgetStates_pb2 import WidgetState, WidgetStates
from websockets.sync.client import ClientConnection, connect

from tests.pathology_app.started_app import StartedApp


class Tab:
    """One tab of a browser."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket

    def run(self, query: str, widgets: list[WidgetState] | None = None) -> list[Any]:
        """Run the script; what was drawn, as Streamlit's elements."""
        state = ClientState(query_string=query, widget_states=WidgetStates(widgets=widgets or []))
        self._socket.send(BackMsg(rerun_script=state).SerializeToString())
        drawn = []
        ends = time.monotonic() + 30
        while time.monotonic() < ends:
            said = ForwardMsg.FromString(self._socket.recv(timeout=30))  # type: ignore[arg-type]
            if said.WhichOneof("type") == "delta" and said.delta.WhichOneof("type") == "new_element":
                drawn.append(said.delta.new_element)
            if said.WhichOneof("type") == "script_finished":
                return drawn
        raise AssertionError("the script did not end")


@contextmanager
def tab(app: StartedApp, cookie: str, **headers: str) -> Iterator[Tab]:
    """Open one with a session."""
    given = {"Cookie": cookie, "Origin": app.url, **headers}
    with connect(
        f"ws://{app.name}:{app.port}/_stcore/stream",
        additional_headers=given,
        subprotocols=["streamlit"],  # type: ignore[list-item]
        max_size=None,
    ) as socket:
        yield Tab(socket)


def texts(drawn: list[Any]) -> str:
    """All that somebody could read."""
    return "\n".join(str(each) for each in drawn)
