"""No task is taken from a process that only looks dead: on another host, in another container, of another user."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from pipeline.study.work.owner import Owner, this_process
from tests.namespaces import needs_namespaces

TOLD = "import sys; from pipeline.study.work.owner import Owner; print(Owner.parse(sys.argv[1]).is_gone())"


def test_a_process_of_this_machine_is_gone_when_it_has_ended():
    program = "from pipeline.study.work.owner import this_process; print(this_process()); input()"
    process = subprocess.Popen([sys.executable, "-c", program], stdin=-1, stdout=-1, text=True)
    assert process.stdout
    owner = Owner.parse(process.stdout.readline().strip())
    assert owner
    assert owner.pid == process.pid
    assert not owner.is_gone()
    process.communicate("\n")
    assert owner.is_gone()
    assert not this_process().is_gone()
    assert replace(this_process(), began="1").is_gone()  # its pid was reused by another process


@pytest.mark.parametrize("change", [{"host": "elsewhere"}, {"space": "another-boot"}])
def test_of_another_host_or_boot_nobody_can_tell(change):
    assert not replace(this_process(), pid=2**22 - 1, **change).is_gone()


@needs_namespaces
@pytest.mark.parametrize("around", [("--uts",), ("--pid", "--fork"), ("--pid", "--fork", "--mount-proc"), ("--time",)])
def test_a_container_with_the_same_boot_and_even_the_same_name_is_not_this_one(around):
    """This process has another pid there, or another start time, or does not exist."""
    renamed = "; ".join(["import socket", "socket.sethostname('other')"]) + "; " if around == ("--uts",) else ""
    command = ["unshare", *around, sys.executable, "-c", renamed + TOLD, str(this_process())]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


HIDDEN = """
import os, subprocess, sys
from pipeline.study.work.owner import Owner, _began, _host, _space
subprocess.run(["mount", "-t", "proc", "-o", "hidepid=2", "proc", "/proc"], check=True)
alive = subprocess.Popen(["sleep", "60"])
dead = subprocess.Popen(["sleep", "60"])
owners = [Owner(_host(), _space(), each.pid, _began(each.pid)) for each in (alive, dead)]
dead.kill(), dead.wait()
os.setgroups([]), os.setgid(65534), os.setuid(65534)
print(os.path.exists(f"/proc/{alive.pid}"), *(owner.is_gone() for owner in owners))
"""


@needs_namespaces
def test_a_process_of_another_person_that_proc_hides_is_not_gone():
    command = ["unshare", "--mount", "--pid", "--fork", sys.executable, "-c", HIDDEN]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)
    assert (done.stdout, done.stderr) == ("False False True\n", "")
