"""Circumstances of a measurement, recorded in every result line."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
import sysconfig
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIBRARIES = ("gemslide", "numpy", "tifffile", "imagecodecs", "zarr", "openslide-python", "openslide-bin", "torch")


def circumstances(module: str) -> dict[str, object]:
    """Machine, versions, time and command line."""
    return {
        "utc": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        "command": shlex.join(["python", "-m", module, *sys.argv[1:]]),
        "machine": {"cpu": _cpu(), "cores": os.cpu_count(), "system": platform.system()},
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in LIBRARIES}},
    }


def compile_bytecode() -> None:
    """Compile this environment's libraries and this checkout, before commands are timed from their start.

    Python does so at a first import; with PYTHONDONTWRITEBYTECODE set, it would compile some of them at every start.
    """
    folders = [sysconfig.get_path("purelib"), *(str(ROOT / name) for name in ("pathology_app", "pipeline", "training"))]
    # Files that are no Python 3, which some libraries carry, stay as they are.
    command = [sys.executable, "-m", "compileall", "-q", "-j", str(os.cpu_count() or 1), *folders]
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)


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
