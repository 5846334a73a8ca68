"""Workers on this machine have their own devices, and a dead worker is restarted on the same device."""

from __future__ import annotations

import sys
from collections import Counter

import pytest

from pipeline.study.starting.local_pool import LocalPool, slots

DIES_ONCE = """
import os, sys
from pathlib import Path
folder, device = Path(sys.argv[1]), sys.argv[2]
with (folder / "begun").open("a") as begun:
    begun.write(device + "\\n")
died = folder / f"died {device}"
if device != "cuda:1" or died.exists():
    sys.exit(0)
died.touch()
os._exit(9)
"""


@pytest.mark.parametrize(
    ("devices", "workers", "fit", "expected"),
    [
        (["cpu"], None, 3, ["cpu", "cpu", "cpu"]),
        (["cpu"], 5, 3, ["cpu"] * 5),
        (["cuda:0", "cuda:1"], None, 8, ["cuda:0", "cuda:1"]),
        (["cuda:0", "cuda:1"], None, 1, ["cuda:0"]),
        (["cuda:0", "cuda:1"], 3, 8, ["cuda:0", "cuda:1", "cuda:0"]),
        (["cuda:0+cuda:1", "cpu"], None, 8, ["cuda:0+cuda:1", "cpu"]),
    ],
)
def test_each_device_has_a_worker_and_the_cpu_as_many_as_fit(devices, workers, fit, expected):
    assert slots(devices, workers, fit=fit) == expected


def test_a_worker_that_died_is_started_again_on_its_device(tmp_path):
    commands = [[sys.executable, "-c", DIES_ONCE, str(tmp_path), device] for device in ("cuda:0", "cuda:1")]
    LocalPool(commands, lambda: False).run()
    assert Counter((tmp_path / "begun").read_text().split()) == {"cuda:0": 1, "cuda:1": 2}
