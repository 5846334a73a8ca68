"""Linux namespaces for tests: several hosts on one machine, which vanish with the processes in them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence

import pytest


def _why_not() -> str:
    if not (shutil.which("unshare") and shutil.which("nsenter") and shutil.which("ip")):
        return "unshare, nsenter (util-linux) or ip (iproute2) is not installed"
    tried = subprocess.run(
        ["unshare", "--mount", "--pid", "--uts", "--net", "--fork", "--mount-proc",
         "ip", "link", "add", "one", "type", "veth", "peer", "name", "other"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return f"this machine allows no namespaces: {tried.stderr.strip()}" if tried.returncode else ""


needs_namespaces = pytest.mark.skipif(bool(_WHY := _why_not()), reason=_WHY or "-")


class Host:
    """A host with its own name and network, and this machine's files.

    Args:
        name: host name as programs on it see it.
    """

    def __init__(self, name: str) -> None:
        holder = ["unshare", "--net", "--uts", "sh", "-c", 'hostname "$1" && echo && exec sleep infinity', "-", name]
        self._started: list[subprocess.Popen[str]] = []
        self._process = subprocess.Popen(holder, stdout=subprocess.PIPE)
        assert self._process.stdout
        assert self._process.stdout.readline()
        self.inside = ["nsenter", "--target", str(self._process.pid), "--net", "--uts", "--"]
        self.run("ip", "link", "set", "lo", "up")

    def run(self, *command: str) -> None:
        subprocess.run([*self.inside, *command], check=True)

    def start(self, command: Sequence[str], **environment: str) -> subprocess.Popen[str]:
        given = [f"{name}={value}" for name, value in environment.items()]
        started = subprocess.Popen([*self.inside, "env", *given, *command], stderr=subprocess.PIPE, text=True)
        self._started.append(started)
        return started

    def join(self, other: Host, name: str, addresses: tuple[str, str]) -> None:
        """Connect a cable to another host, with one name at both ends and an address for each end."""
        other_pid = str(other._process.pid)
        self.run("ip", "link", "add", name, "type", "veth", "peer", "name", name, "netns", other_pid)
        for host, address in zip((self, other), addresses, strict=True):
            host.run("ip", "address", "add", f"{address}/30", "dev", name)
            host.run("ip", "link", "set", name, "up")

    def set_link(self, name: str, state: str) -> None:
        """Cut a cable (`down`) or restore it (`up`)."""
        self.run("ip", "link", "set", name, state)

    def end(self) -> None:
        assert self._process.stdout
        for process in [*self._started, self._process]:
            process.kill()
            process.wait()
        self._process.stdout.close()
