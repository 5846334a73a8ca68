"""No flipped bit is silent, in whatever reader; and the attack finds it out where one is."""

from __future__ import annotations

import shutil

from tests.attacks import bit_rot
from tests.pipeline.store.golden import GOLDEN


def test_no_bit_flips_in_silence():
    result = bit_rot.attack(49, 1)

    assert (result.findings, result.attempts) == ([], 49)
    assert result.what == (
        "flipped bits in imagecodecs_jpeg, imagecodecs_jpeg2k, index, labels, predictions, quality, zstd"
    )


def test_the_attack_finds_silent_pixels_in_a_store_without_checksums(tmp_path):
    old = shutil.copytree(GOLDEN / "golden-2.ome.zarr", tmp_path / "golden-2.ome.zarr")

    findings = bit_rot.flip_bits([old], 60, 1).findings

    assert {finding.split(":")[0] for finding in findings} >= {"imagecodecs_jpeg", "predictions"}
    assert not [finding for finding in findings if "imagecodecs" in finding and "verify" in finding]
