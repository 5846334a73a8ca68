"""Linux namespaces in tests: several hosts on one machine. They end with the processes in them."""

from __future__ import annotations

import shutil
import subprocess

import pytest


def _why_not() -> str:
    if not (shutil.which("unshare") and shutil.which("nsenter") and shutil.which("ip")):
        return "unshare, nsenter (util-linux) or ip (iproute2) is not installed"
    tried = subprocess.run(
        ["unshare", "--mount", "--pid", "--uts", "--net", "--fork", "--mount-proc", "true"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return f"this machine allows no namespaces: {tried.stderr.strip()}" if tried.returncode else ""


needs_namespaces = pytest.mark.skipif(bool(_WHY := _why_not()), reason=_WHY or "-")
