"""Other processes can tell from a rank's log what it is doing, even after it has died."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT
from training.machine.rank_log import RankLog, last_words, log_path

RUN = "20260101T000000Z-abcdef"


def test_a_log_has_the_actions_of_the_step_under_way(tmp_path: Path) -> None:
    log = RankLog(tmp_path, RUN, 3)
    for step, what in ((0, "F"), (0, "B"), (1, "F"), (1, "B")):
        log(step, what)

    lines = log.path.read_text().splitlines()

    assert [line.split(" ", 1)[1] for line in lines] == ["step 1, F", "step 1, B"]
    assert log.last == "step 1, B"
    assert log.path == log_path(tmp_path, RUN, 3)
    log.close(ended_well=False)
    assert last_words(log.path) == lines[-1]


def test_the_log_of_a_rank_that_ended_well_goes_and_the_last_one_takes_the_folder(tmp_path: Path) -> None:
    logs = [RankLog(tmp_path, RUN, rank) for rank in range(2)]

    logs[0].close(ended_well=True)
    assert [path.name for path in logs[0].path.parent.iterdir()] == ["rank-00001.log"]
    logs[1].close(ended_well=True)

    assert not logs[0].path.parent.exists()
    assert last_words(logs[0].path) is None


def test_the_last_words_of_a_killed_process_are_there(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys; from pathlib import Path; from training.machine.rank_log import RankLog\n"
        f"log = RankLog(Path(sys.argv[1]), {RUN!r}, 0)\n"
        "log(7, 'F of stage 0')\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], cwd=ROOT, check=False)

    assert done.returncode == -9
    words = last_words(log_path(tmp_path, RUN, 0))
    assert words is not None
    assert words.endswith(" step 7, F of stage 0")
