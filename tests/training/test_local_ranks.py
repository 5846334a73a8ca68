"""The ranks of one machine live and die together. The ranks here are short programs, not training runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from training.local_ranks import MEETING_VARIABLE

ROOT = Path(__file__).parents[2]
STARTED = f"import os, signal, sys; rank = int(os.environ['RANK']); meeting = os.environ['{MEETING_VARIABLE}']\n"
WAITING = "os.write(1, b'%d\\n' % os.getpid()); signal.pause()"
SEEN_TO_REFUSE = """
import psutil, threading
own, others = f"{meeting}.{rank}", [f"{meeting}.{other}" for other in (1, 2)]
if rank:
    open(own, "w").write(str(os.getpid()))
    sys.exit(2)
while not all(os.path.exists(other) and open(other).read() for other in others):
    threading.Event().wait(0.01)
while any(psutil.pid_exists(int(open(other).read())) for other in others):  # until their exit codes were read
    threading.Event().wait(0.01)
os.write(1, b"said")
sys.exit(2)
"""


def start(code: str, num_ranks: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "training.local_ranks", f"--nproc-per-node={num_ranks}", "-c", STARTED + code]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(code: str, num_ranks: int = 3) -> tuple[int, str, str]:
    with start(code, num_ranks) as process:
        out, err = process.communicate(timeout=60)
    return process.returncode, out, err


@pytest.fixture
def waiting():
    """Ranks that wait for a signal, and their processes."""
    with start(WAITING, 2) as process:
        assert process.stdout
        ranks = [psutil.Process(int(process.stdout.readline())) for _ in range(2)]
        yield process, ranks
        process.kill()
    for rank in ranks:
        if rank.is_running():
            rank.kill()


def test_each_rank_knows_its_place_and_all_meet_in_one_file_that_is_gone_afterwards():
    code = """
place = " ".join(os.environ[name] for name in ("LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"))
os.write(1, f"{rank} {place} {meeting}\\n".encode())
"""

    returned, out, err = ended(code)

    assert (returned, err) == (0, "")
    lines = sorted(line.rsplit(" ", 1) for line in out.splitlines())
    assert [place for place, _ in lines] == ["0 0 3 3", "1 1 3 3", "2 2 3 3"]
    (meeting,) = {meeting for _, meeting in lines}
    assert not Path(meeting).parent.exists()


def test_a_rank_that_fails_ends_those_that_would_wait_for_it():
    returned, _, err = ended("sys.exit(7) if rank == 1 else signal.pause()")

    assert (returned, err) == (1, "")  # the rank has already printed its own message


def test_a_rank_that_is_killed_is_named_with_its_signal():
    returned, _, err = ended("os.kill(os.getpid(), signal.SIGKILL) if rank == 2 else signal.pause()")

    assert returned == 1
    assert err.startswith("error [lost_peer]: rank 2 was ended by signal 9 (Killed)")
    assert err.count("error [") == 1


def test_where_all_find_that_the_run_cannot_start_the_one_that_says_it_is_waited_for():
    returned, out, _ = ended(SEEN_TO_REFUSE)

    assert (returned, out) == (1, "said")


def test_what_is_asked_to_end_ends_its_ranks(waiting):
    process, ranks = waiting

    process.send_signal(signal.SIGTERM)

    assert process.wait(60) == 130
    _, alive = psutil.wait_procs(ranks, timeout=60)
    assert not alive


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone tells a process that its parent is gone")
def test_ranks_die_with_what_started_them(waiting):
    process, ranks = waiting

    os.kill(process.pid, signal.SIGKILL)

    _, alive = psutil.wait_procs(ranks, timeout=60)
    assert not alive
