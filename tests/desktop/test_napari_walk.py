"""Every control of napari's dock, and drawing by mouse, on slides with and without annotations."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.desktop.conftest import ARTIFACTS
from tests.pathology_app.small_project import make_project

pytestmark = [pytest.mark.display, pytest.mark.xdist_group("display")]

FIRST = {
    "none": [],
    "area": [["rectangle", "tumour", ""]],
    "point": [["point", "mitosis", ""]],
    "both": [["point", "mitosis", ""], ["rectangle", "tumour", ""]],
}
"""Initial annotations (kind, class, note) by the slide's stored state."""

DRAWN = [
    ["ellipse", "stroma", ""],
    ["line", "stroma", ""],
    ["line", "stroma", ""],
    ["line", "stroma", ""],
    ["point", "stroma", ""],
    ["polygon", "stroma", ""],
    ["rectangle", "stroma", "by mouse"],
]
"""One annotation per tool, except the last, which was deleted before saving."""

CASES = ["none", "area", *(pytest.param(stored, marks=pytest.mark.prove) for stored in ("point", "both"))]


@pytest.fixture(scope="module")
def project_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("walked")
    make_project(root)
    return root


@pytest.mark.parametrize("stored", CASES)
def test_every_control_works_and_what_is_drawn_by_mouse_is_saved(
    under_xvfb: Callable[..., str], project_root: Path, tmp_path: Path, stored: str
) -> None:
    root = shutil.copytree(project_root, tmp_path / "project")

    results: dict[str, Any] = json.loads(
        under_xvfb("napari_walk.py", root, ARTIFACTS / f"napari_walk_{stored}.png", Path(stored))
    )

    assert results["errors"] == []
    assert results["unused"] == []
    assert {"QComboBox", "QLineEdit", "QSlider", "QPushButton", "HotspotTable"} <= set(results["used"])
    assert results["kept_first"] == FIRST[stored]  # the controls alone change no annotation
    assert results["added"][0] == "Draw add_polygon"
    assert all(added.endswith(" 1") for added in results["added"][1:]), results["added"]
    assert results["changed"] == {"noted": 1, "deleted": 1}
    assert (results["unsaved"], results["message"]) == (7, "Saved: 7 changes.")
    assert results["kept"] == sorted([*FIRST[stored], *DRAWN], key=str)
