"""A project whose manifest names the slides of two cases, cut from blocks and stained."""

from __future__ import annotations

from pathlib import Path

from pipeline.project import Project
from tests.pathology_app.small_project import SLIDE_ID, make_project
from tests.pathology_app.small_reading import copy_slide

CASE = ("C-2", "C-10", "C-1", "B-1")
"""Slides of case P-7 in the order of the tray."""
_ROWS = (
    ("B-1", "P-7", "", ""),
    ("C-1", "P-7", "A10", "HE"),
    ("C-10", "P-7", "A2", "Ki-67"),
    ("C-2", "P-7", "A2", "HE"),
    ("D-1", "P-8", "A1", "HE"),
)


def make_cases(root: Path, slides: tuple[str, ...] = (*CASE, "D-1")) -> Project:
    """Copy the small project's slide, which is in no case, under the manifest's names."""
    project = make_project(root)
    for name in slides:
        copy_slide(project, project, name)
    rows = [",".join((name, "source.tiff", case, block, stain)) for name, case, block, stain in _ROWS]
    (root / "cohort.csv").write_text("\n".join(("slide_id,path,patient_id,block,stain", *rows)) + "\n")
    assert SLIDE_ID not in slides
    return project
