"""No flipped bit goes unnoticed by any reader; and the attack detects one that does."""

from __future__ import annotations

from pipeline.store.reading import array_reader
from tests.attacks import bit_rot


def test_no_bit_flips_in_silence():
    result = bit_rot.attack(49, 1)

    assert (result.findings, result.attempts) == ([], 49)
    assert result.what == (
        "flipped bits in imagecodecs_jpeg, imagecodecs_jpeg2k, index, labels, predictions, quality, zstd"
    )


def test_the_attack_finds_silent_pixels_where_a_reader_checks_no_checksums(tmp_path, monkeypatch):
    monkeypatch.setattr(array_reader, "without_checksum", lambda data, start, end: data[start : end - 4])

    findings = bit_rot.flip_bits(bit_rot.make_stores(tmp_path), 49, 1).findings

    assert {finding.split(":")[0] for finding in findings} >= {"imagecodecs_jpeg", "imagecodecs_jpeg2k"}
    assert all("read_region" in finding or "chunk" in finding for finding in findings)
