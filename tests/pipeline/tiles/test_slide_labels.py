"""Slide-level columns of the manifest: a label that tiles may carry, and the scanner to compare results by."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.cohort.manifest import load_cohort
from pipeline.errors import BadAnnotationError
from pipeline.project import Project
from pipeline.tiles.labels import label_slide
from pipeline.tiles.tile import make_tile_table
from tests.small_trained_project import TILES

BY_SLIDE = TILES.model_copy(update={"label_by": "slide", "classes": ()})
ROWS = """path,slide_id,annotations,label,scanner
a.tiff,small-train,none.xml,tumour,
b.tiff,small-val,,normal,Model Y
c.tiff,small-test,,,
"""


@pytest.fixture
def project(small_project, tmp_path):
    (tmp_path / "slides").symlink_to(small_project.project.slides_dir)
    return Project(tmp_path)


def cohort(project):
    (project.root / "c.csv").write_text(ROWS)
    return load_cohort(project.root / "c.csv")


def test_tiles_carry_their_slide_s_label_where_that_is_asked_for(project):
    table = make_tile_table(project, "t", BY_SLIDE, cohort=cohort(project))

    labels = table.frame.groupby("slide_id")["label"].agg(lambda column: {*column})
    assert labels.to_dict() == {"small-train": {"tumour"}, "small-val": {"normal"}, "small-test": {None}}
    assert table.classes == ("normal", "tumour")
    assert table.metadata["annotations"] == {}


def test_a_slide_s_label_that_is_no_class_is_refused_with_its_place(project):
    config = BY_SLIDE.model_copy(update={"classes": ("normal",)})

    with pytest.raises(BadAnnotationError, match=r"slide small-train, column `label` .* 'tumour' is not among"):
        make_tile_table(project, "t", config, cohort=cohort(project))

    ignoring = config.model_copy(update={"ignore_classes": ("tumour",)})
    frame = make_tile_table(project, "t", ignoring, cohort=cohort(project)).frame
    assert frame.loc[frame["slide_id"] == "small-train", "label"].isna().all()


def test_a_slide_without_a_label_gives_none():
    assert np.array_equal(label_slide(None, 3, ("a",)).class_index, [-1, -1, -1])


def test_the_scanner_is_the_manifest_s_or_else_the_file_s(project):
    table = make_tile_table(project, "t", BY_SLIDE, cohort=cohort(project))

    assert table.metadata["scanners"] == {"small-train": None, "small-val": "Model Y", "small-test": None}
