"""Pixels for napari: decoded once, within a memory bound, and hatched where the store is damaged."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

from pathology_app.desktop.pixels import BlockCache, SlidePixels
from pipeline.box import Box
from pipeline.project import Project
from pipeline.store import StoreReader
from tests.pathology_app.small_project import SLIDE_ID, flip_a_bit


def test_blocks_are_kept_up_to_a_bound_and_the_oldest_go_first() -> None:
    blocks = BlockCache(max_bytes=2 * 300)
    for column in range(3):
        blocks.put((0, 0, 0, column, False), np.zeros((10, 10, 3), np.uint8))

    assert blocks.held_bytes == 600
    assert blocks.get((0, 0, 0, 0, False)) is None
    assert blocks.get((0, 0, 0, 2, False)) is not None


def test_what_is_damaged_in_the_store_is_hatched_and_said_once(project: Project, tmp_path: Path) -> None:
    copy = Project(tmp_path)
    shutil.copytree(project.store_path(SLIDE_ID), copy.store_path(SLIDE_ID))
    flip_a_bit(copy, row=1, column=2)
    messages: list[str] = []
    pixels = SlidePixels(StoreReader(copy.store_path(SLIDE_ID)), messages.append, BlockCache(2**24))

    level = pixels.arrays(as_scanned=True)[0]
    shown, again = level[:], level[256:512, 512:768]

    whole = StoreReader(project.store_path(SLIDE_ID)).read_region(0, Box(0, 0, level.shape[1], level.shape[0]))
    differs = np.argwhere((shown != whole).any(2))
    assert [*differs.min(0), *differs.max(0)] == [256, 512, 511, 767]
    assert set(np.unique(again)) == {150, 205}
    assert len(messages) == 1
    assert "damaged" in messages[0]
