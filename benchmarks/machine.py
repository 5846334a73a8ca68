"""Circumstances of a measurement, recorded in every result line."""

from __future__ import annotations

import os
import platform
import shlex
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

LIBRARIES = ("gemslide", "numpy", "tifffile", "imagecodecs", "zarr", "openslide-python", "openslide-bin", "torch")


def circumstances(module: str) -> dict[str, object]:
    """Machine, versions, time and command line."""
    return {
        "utc": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        "command": shlex.join(["python", "-m", module, *sys.argv[1:]]),
        "machine": {"cpu": _cpu(), "cores": os.cpu_count(), "system": platform.system()},
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in LIBRARIES}},
    }


def peak_bytes() -> int:
    """Peak memory of this process. Not ru_maxrss, which starts at the parent's value."""
    with open("/proc/self/status") as status:
        return next(1024 * int(line.split()[1]) for line in status if line.startswith("VmHWM"))


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
