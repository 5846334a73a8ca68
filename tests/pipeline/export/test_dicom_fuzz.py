"""No changed byte of a store gives other pixels in DICOM than in a reader, or an error that is not gemslide's."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


@pytest.mark.parametrize("cases", [200, pytest.param(2000, marks=pytest.mark.prove)])
def test_any_changed_byte_is_an_error_or_the_pixels_that_a_reader_sees(tmp_path, cases):
    command = [sys.executable, "-m", "tests.pipeline.export.dicom_fuzz", str(tmp_path), "0", str(cases)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)

    assert result["findings"] == []
    assert sum(result["outcomes"].values()) == cases
    assert min(result["outcomes"][outcome] for outcome in ("exported", "corrupt_tile", "unreadable")) > cases // 10
    assert result["outcomes"].keys() >= {"damaged_store"}
