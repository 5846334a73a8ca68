"""A process that gemslide started does not outlive it, even if it cannot be shut down in good order."""

import signal
import subprocess
import sys

import psutil
import pytest

from tests.contracts.test_folder_rules import ROOT

PARENT = """
import subprocess, sys
from training.foundation.process import die_with_parent
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], preexec_fn=die_with_parent)
print(child.pid, flush=True)
child.wait()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone tells a process that its parent is gone")
def test_a_child_ends_when_its_parent_is_killed():
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True, cwd=ROOT) as parent:
        child = psutil.Process(int(parent.stdout.readline()))
        assert child.is_running()
        parent.send_signal(signal.SIGKILL)

    _, alive = psutil.wait_procs([child], timeout=60)
    assert not alive
