"""A process that runs networks on a CPU does not grow batch by batch."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.conftest import ROOT

RUN = """
import json, psutil, numpy as np, torch
from training.machine.allocator import keep_for_prediction
from training.predict.forward_only import ForwardOnly
from training.predict.numerics import Numerics

BEFORE
class Mean(torch.nn.Module):
    def forward(self, images_nchw):
        return images_nchw.mean((2, 3))

runs = ForwardOnly(Mean(), lambda y: torch.softmax(y, 1), [0.5] * 3, [0.2] * 3, torch.device("cpu"), Numerics())
tiles_nhwc, kept, rss = np.full((32, 224, 224, 3), 200, np.uint8), [], []
for _ in range(448):
    kept.append(runs.start(tiles_nhwc).result())
    rss.append(psutil.Process().memory_info().rss)
print(json.dumps([rss[20], max(rss)]))
"""
BATCH_BYTES = 32 * 224 * 224 * 3 * 4


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
@pytest.mark.parametrize("before", ["keep_for_prediction()", "torch.zeros(1)\nkeep_for_prediction()"])
def test_batch_after_batch_takes_no_more_memory(before):
    """Also if a tensor was made before, so that large pages could no longer be requested."""
    most_grown = 4 * BATCH_BYTES if before.startswith("keep") else 64 * BATCH_BYTES
    done = subprocess.run(
        [sys.executable, "-c", RUN.replace("BEFORE", before)], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    early, most = json.loads(done.stdout)
    assert most - early < most_grown
