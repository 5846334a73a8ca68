"""napari really shows attention, with its values under the pointer."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.desktop.conftest import ARTIFACTS
from tests.pathology_app.small_attention import SLIDE_MODEL, write_small_attention
from tests.pathology_app.small_project import SLIDE_ID, make_project

pytestmark = [pytest.mark.display, pytest.mark.xdist_group("display")]


def test_napari_shows_attention_and_reads_it_only_while_it_is_shown(
    under_xvfb: Callable[..., str], tmp_path: Path
) -> None:
    project = make_project(tmp_path)
    write_small_attention(project)

    said = json.loads(
        under_xvfb("napari_attention.py", project.store_path(SLIDE_ID), ARTIFACTS / "napari-attention.png")
    )

    assert "attention" not in said["before"]
    assert f"{SLIDE_MODEL}: attention 14.5 × average · 688 µm right, 176 µm down" in said["shown"]
    assert f"{SLIDE_MODEL}: attention no tile" in said["outside"]
    assert said["limits"] == pytest.approx([0, 6.3])
    assert said["order"][2] == f"attention {SLIDE_MODEL} (1 = average)"
    assert said["dock"].endswith("No outline of disease. Research use only.")
