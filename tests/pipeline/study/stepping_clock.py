"""A wall clock that can be stepped while processes use it, through a preloaded library (`stepping_clock.c`)."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_suffix(".c")


class SteppingClock:
    """Time of day of all processes started with `environment`.

    Args:
        folder: folder in which the library is built.
    """

    def __init__(self, folder: Path) -> None:
        compiler = shutil.which("cc")
        if compiler is None:
            pytest.skip("there is no C compiler, which a stepping clock needs (Debian's package gcc)")
        library, self._file = folder / "stepping_clock.so", folder / "stepping_clock.seconds"
        subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, SOURCE], check=True)
        self._file.write_bytes(struct.pack("=q", 0))
        self.environment = {"LD_PRELOAD": str(library), "GEMSLIDE_TEST_CLOCK": str(self._file)}

    def set(self, step_s: int) -> None:
        """Set the clock `step_s` ahead of the true time, or behind it."""
        with self._file.open("r+b") as file:  # in place, because the processes have it mapped
            file.write(struct.pack("=q", step_s))
