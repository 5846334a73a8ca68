"""SLURM's programs, as scripts that start a process where SLURM would start a job."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

PROGRAMS = {
    "scontrol": """
        echo "$@" >> "$CALLS"
    """,
    "sbatch": """
        exec {lock}> "$CALLS.lock"; flock $lock  # two are called at a time
        number=$(($(cat "$CALLS.n" 2> /dev/null || echo 100) + 1))
        echo $number > "$CALLS.n"
        exec {lock}>&-
        cp "$1" "$CALLS.$number.sh"
        SLURM_JOB_ID=$number setsid bash "$CALLS.$number.sh" > "$CALLS.$number.out" 2>&1 &
        echo $! > "$CALLS.$number.pid"
        echo "Submitted batch job $number"
    """,
    "scancel": """
        for number in "$@"; do kill -TERM -- "-$(cat "$CALLS.$number.pid")" 2> /dev/null; done
        exit 0
    """,
    "squeue": """
        for number in $(echo "${3#--jobs=}" | tr , " "); do
            kill -0 "$(cat "$CALLS.$number.pid")" 2> /dev/null && echo $number
        done
        exit 0
    """,
}


def fake_slurm(folder: Path, monkeypatch: pytest.MonkeyPatch, **programs: str) -> Path:
    """Put the programs on the PATH.

    Args:
        programs: replacements for the programs above.

    Returns:
        File with scontrol's requests. Beside it, per job: its script (.101.sh), output and process.
    """
    (folder / "slurm").mkdir()
    for name, program in {**PROGRAMS, **programs}.items():
        (folder / "slurm" / name).write_text(f"#!/bin/bash\n{program}\n")
        (folder / "slurm" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder / 'slurm'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("CALLS", str(folder / "calls"))
    return folder / "calls"
