import platform
import subprocess
import sys

import pytest

from training.machine.allocator import keep_for_training


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a setting of glibc")
def test_takes_effect_with_glibc():
    assert keep_for_training()


@pytest.mark.parametrize(("system", "libc"), [("Darwin", ""), ("Linux", "musl")])
def test_is_silent_elsewhere(monkeypatch, system, libc):
    monkeypatch.setattr(platform, "system", lambda: system)
    monkeypatch.setattr(platform, "libc_ver", lambda: (libc, ""))

    assert not keep_for_training()


FAULTS = """
import ctypes, resource
ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # PR_SET_THP_DISABLE: every page is counted, whatever the machine has free
from training.machine.allocator import keep_for_training
keep_for_training()
import torch

def step():
    kept = [torch.ones(16 * 2**20) for _ in range(18)]  # 64 MiB each, more than a GiB together

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    step()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

step()
# tensors may move past small objects that a step left, and the kernel may take idle pages back: not in every step
print(min(faults() for _ in range(5)))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a setting of glibc")
def test_more_than_a_gib_that_a_step_frees_is_not_asked_of_the_system_again():
    done = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True)

    assert int(done.stdout) < 20_000  # pages of 4 KiB: one tensor and a little; a step has 300,000


SCARCE = """
import psutil, sys
from unittest import mock
from training.machine.allocator import give_back_if_scarce, keep_for_training
keep_for_training()
import torch
kept = [torch.ones(16 * 2**20) for _ in range(4)]
del kept
rss = [psutil.Process().memory_info().rss]
for available in (0.5, 0.1):
    with mock.patch("psutil.virtual_memory", lambda: mock.Mock(total=1.0, available=available)):
        given_back = give_back_if_scarce()
    rss.append(psutil.Process().memory_info().rss)
    print(given_back, rss[-2] - rss[-1] > 200 * 2**20)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a setting of glibc")
def test_what_is_kept_goes_back_where_the_machine_has_little_left():
    done = subprocess.run([sys.executable, "-c", SCARCE], capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["False", "False", "True", "True"]
