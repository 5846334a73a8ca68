"""Who holds a lease: one process on one machine, so that another on the same machine can see that it is gone."""

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
        return _began(self.pid) != self.began


def this_process() -> Owner:
    return Owner(_host(), _space(), os.getpid(), _began(os.getpid()))


@cache
def _host() -> str:
    return socket.gethostname().replace(" ", "-")[:80]


@cache
def _space() -> str:
    """Empty where the system does not say: then nobody is ever seen to be gone, and leases lapse by time."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}-{os.readlink('/proc/self/ns/pid').strip('pid:[]')}"
    except OSError:
        return f"unknown-{os.urandom(8).hex()}"


def _began(pid: int) -> str:
    """When the process with this number began, in clock ticks since the boot; empty where there is none."""
    try:
        # psutil's create_time moves with the wall clock, which steps.
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return "" if fields[0] == "Z" else fields[19]
    except OSError:
        return str(psutil.Process(pid).create_time()) if pid == os.getpid() else ""
