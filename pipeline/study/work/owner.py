"""Owner of a lease: one process on one machine, so that another on the same machine can see that it is gone."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import psutil


@dataclass(frozen=True)
class Owner:
    """A process. `space` names the boot and the process namespace in which its number means something."""

    host: str
    space: str
    pid: int
    began: str

    def __str__(self) -> str:
        return f"{self.host} {self.space} {self.pid} {self.began}"

    @classmethod
    def parse(cls, text: str) -> Owner | None:
        """The owner that `str` gave; None for anything else."""
        parts = text.split(" ")
        if len(parts) != 4 or not parts[2].isdigit():
            return None
        return cls(parts[0], parts[1], int(parts[2]), parts[3])

    def is_gone(self) -> bool:
        """Whether this machine can tell that the process has ended; False where it cannot tell."""
        if (self.host, self.space) != (_host(), _space()):
            return False
        return _began(self.pid) not in (self.began, None)


def this_process() -> Owner:
    return Owner(_host(), _space(), os.getpid(), _began(os.getpid()) or _began_by_the_clock())


def machine_id() -> str:
    """The same in all containers of one running machine, and on no other; empty where the system does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


@cache
def _host() -> str:
    return socket.gethostname().replace(" ", "-")[:80]


@cache
def _space() -> str:
    """Unlike any other where the system does not say: then nobody is seen to be gone, and leases lapse by time."""
    try:
        # Numbers of processes mean something in one namespace, and only if /proc shows that one; the time at which a
        # process began is told in the reader's own time namespace.
        if os.readlink("/proc/self") == str(os.getpid()) and machine_id():
            return f"{machine_id()}-{_namespace('pid')}-{_namespace('time')}"
    except OSError:
        pass
    return f"unknown-{os.urandom(8).hex()}"


def _namespace(kind: str) -> str:
    """Number of a namespace of this process. Raises OSError: /proc is not there."""
    path = Path("/proc/self/ns") / kind
    return os.readlink(path).strip(f"{kind}:[]") if path.is_symlink() else ""  # time: since Linux 5.6


def _began(pid: int) -> str | None:
    """Start of the process with this number, in clock ticks since the boot.

    Returns:
        Empty where there is no such process, None where it is hidden: another person's, in a /proc with `hidepid`.
    """
    try:
        # psutil's create_time moves with the wall clock, which steps.
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return "" if fields[0] == "Z" else fields[19]
    except OSError:
        return None if _is_there(pid) else ""


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _began_by_the_clock() -> str:
    return str(psutil.Process().create_time())
