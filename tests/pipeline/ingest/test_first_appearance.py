"""The first appearance of a large linked slide is a few files, and shows what the verified store shows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pipeline.box import Box
from pipeline.ingest import routes
from pipeline.ingest.ingest import IngestRequest
from pipeline.ingest.linked import appear, verify_link
from pipeline.project import Project
from pipeline.settings.config import IngestConfig
from pipeline.store.reading.reader import StoreReader
from tests.pipeline.make import PLAIN_TISSUE, halved, sample_image, write_jpeg_pyramid

WHOLE = Box(0, 0, 3000, 2700)
CONFIG = IngestConfig(shard_px=256, decode_shard_px=256, tissue=PLAIN_TISSUE, smallest_level_px=800)
WANTED, FEW = 12 * 11, 20
"""Shards of level 0, by the settings; and how many are few, here, where slides are small."""


@pytest.fixture
def appeared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(routes, "_FEW_SHARDS", FEW)
    source = write_jpeg_pyramid(tmp_path / "a.tiff", halved(sample_image(WHOLE.width_px, WHOLE.height_px), 1))
    assert appear(IngestRequest(source, "S-1", mpp_option=0.5), Project(tmp_path / "p"), CONFIG)
    return Project(tmp_path / "p").store_path("S-1")


def shards(store: Path, level: int) -> int:
    return sum(path.is_file() for path in (store / "0" / str(level) / "c").rglob("*"))


def test_its_pointers_are_in_few_files_until_it_is_verified(appeared: Path) -> None:
    first = StoreReader(appeared)
    shown = [level.array.read_region(Box(0, 0, level.width_px, level.height_px)) for level in first.levels]
    assert first.levels[0].array.spec.shard_chunks > CONFIG.shard_px // first.levels[0].chunk_px
    assert shards(appeared, 0) <= FEW < WANTED
    assert first.attributes.ingest["shards"][0] == shards(appeared, 0)
    # Level 1 stays as it is, with more: level 2 is built from it, a shard at a time.
    assert shards(appeared, 1) > FEW
    assert first.attributes.levels[2].route == "built"
    assert first.levels[1].array.spec.shard_chunks == CONFIG.shard_px // first.levels[1].chunk_px

    verify_link(appeared)
    verified = StoreReader(appeared)
    assert verified.levels[0].array.spec.shard_chunks == CONFIG.shard_px // verified.levels[0].chunk_px
    assert shards(appeared, 0) == WANTED
    for level, pixels in zip(verified.levels, shown, strict=True):
        whole = Box(0, 0, level.width_px, level.height_px)
        np.testing.assert_array_equal(level.array.read_region(whole), pixels)
