"""Two processes that write the same output at the same moment: both succeed, and leave one complete output.

`python -m tests.attacks.rival_writers --times 120`
"""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from pathlib import Path

import torch

from tests.attacks.attack import Result, main
from tests.attacks.killed_writers import WRITERS, Writer, check_outputs


def attack(times: int, seed: int) -> Result:
    result = Result("two writers of one output")
    for number in range(times):
        writer = WRITERS[(number + seed) % len(WRITERS)]
        with tempfile.TemporaryDirectory() as folder:
            project = Path(folder)
            (project / "slides/s.ome.zarr").mkdir(parents=True)
            (project / "slides/s.ome.zarr/zarr.json").write_text("{}")
            codes = _both(writer, project)
            where = f"{writer.__name__}, pair {number}"
            result.check(codes == [0, 0], f"{where}: exit codes {codes}")
            check_outputs(project, result, where)
            left = sorted(str(path.relative_to(project)) for path in project.rglob(".*"))
            result.check(not left, f"{where}: left {left}")
        result.attempts += 1
    return result


def _both(writer: Writer, project: Path) -> list[int]:
    """Exit codes of two processes that begin once both are ready."""
    gate, opens = os.pipe()
    children = [_start(writer, project, number, gate, opens) for number in (2, 4)]
    os.close(gate)
    os.close(opens)  # closes the pipe's last writer, so that both begin
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def _start(writer: Writer, project: Path, number: int, gate: int, opens: int) -> int:
    child = os.fork()
    if child:
        return child
    try:
        os.close(opens)
        os.read(gate, 1)
        writer(project, number)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(attack, times=120)
