import json
import pickle
import re
import shutil

import numpy as np
import pytest

from pipeline.box import Box
from pipeline.cohort.manifest import load_cohort
from pipeline.errors import BadManifestError, ChangedSourceError
from pipeline.project import Project
from pipeline.settings.config import TileConfig
from pipeline.store.reading.reader import StoreReader
from pipeline.tiles.dataset import TileDataset
from pipeline.tiles.table import read_table
from pipeline.tiles.tile import make_tile_table
from tests.small_trained_project import CELL_PX0, TILES, make_sources, share_tiles
from training.data.facts import data_facts
from training.foundation.errors import BadRecipeError, EmptyTableError


def test_tiles_are_the_store_s_pixels(small_project):
    dataset = TileDataset(small_project.project.root, "small")
    frame = read_table(small_project.project.tile_table_path("small")).frame

    row = frame.iloc[17]
    expected = StoreReader(small_project.project.store_path(row.slide_id)).read_square(
        row.level, row.x_px0, row.y_px0, row.side_px0, row.tile_px
    )

    assert np.array_equal(dataset.read(17), expected)
    assert dataset.read(17).shape == (32, 32, 3)


def test_a_tile_at_a_level_s_own_resolution_is_read_without_resampling(small_project):
    frame = read_table(small_project.project.tile_table_path("small")).frame
    row = frame.iloc[5]
    reader = StoreReader(small_project.project.store_path(row.slide_id))

    assert row.level == 1
    assert np.array_equal(
        TileDataset(small_project.project.root, "small").read(5),
        reader.read_region(1, Box(row.x_px0 // 2, row.y_px0 // 2, 32, 32)),
    )


def test_labels_follow_the_annotated_halves(small_project):
    frame = read_table(small_project.project.tile_table_path("small")).frame
    middle = 1100 // CELL_PX0 // 2 * CELL_PX0

    assert set(frame[frame.x_px0 + 64 <= middle].label) == {"warm"}
    assert set(frame[frame.x_px0 >= middle].label) == {"cold"}


def test_the_table_is_ordered_and_says_how_it_was_made(small_project):
    table = read_table(small_project.project.tile_table_path("small"))
    frame = table.frame

    assert frame.equals(frame.sort_values(["slide_id", "y_px0", "x_px0"]))
    assert table.metadata["class_order"] == ["cold", "warm"]
    assert set(table.metadata["stride_px0"].values()) == {64}
    assert len(table.metadata["manifest_sha256"]) == 64
    assert (frame.tissue >= TILES.min_tissue).all()


def test_tiles_say_whose_they_are_and_a_slide_stands_for_a_patient_that_nobody_named(small_project, tmp_path):
    named = TileDataset(small_project.project.root, "small")
    manifest = re.sub(r",patient-\d,(.*),\w+$", r",,\1,", small_project.cohort.read_text(), flags=re.MULTILINE)
    sources = shutil.copytree(small_project.cohort.parent, tmp_path / "sources")
    (sources / "cohort.csv").write_text(manifest)
    share_tiles(small_project.project, tmp_path / "project")
    (tmp_path / "project/tiles").unlink()
    make_tile_table(Project(tmp_path / "project"), "small", TILES, cohort=load_cohort(sources / "cohort.csv"))
    unnamed = TileDataset(tmp_path / "project", "small")

    assert (named.grouped_by, unnamed.grouped_by) == ("patient", "slide")
    assert set(named.groups) == {"patient-0", "patient-1", "patient-2"}
    for dataset in (named, unnamed):
        pairs = set(zip(dataset.slides, dataset.groups, strict=True))
        assert len(pairs) == len(set(dataset.groups)) == 3
    assert data_facts(unnamed, "small").by_split == {}
    for facts in data_facts(named, "small").by_split.values():
        assert (facts.slides, facts.patients) == (1, 1)
    named.grouped_by = "slide"
    assert data_facts(named, "small").by_split["train"].patients is None


def test_classes_the_recipe_does_not_know_are_refused(small_project):
    with pytest.raises(BadRecipeError, match=r"not in the recipe: \['warm'\]"):
        TileDataset(small_project.project.root, "small", ["cold"])


def test_a_tile_set_that_does_not_exist_is_refused_with_those_that_do(small_project):
    with pytest.raises(EmptyTableError, match=r"Did you mean small\?"):
        TileDataset(small_project.project.root, "smal")


def test_a_slide_without_enough_tissue_gives_an_empty_table_and_no_file(small_project):
    with pytest.raises(EmptyTableError, match="no tiles"):
        make_tile_table(
            small_project.project,
            "none",
            TileConfig(tile_px=400, mpp=1.0, min_tissue=1.0),
            cohort=load_cohort(small_project.cohort),
        )
    assert not small_project.project.tile_table_path("none").exists()


def test_a_store_made_from_other_bytes_is_noticed(small_project):
    dataset = TileDataset(small_project.project.root, "small")
    dataset._sources = dict.fromkeys(dataset._sources, "0" * 64)

    with pytest.raises(ChangedSourceError, match="the tile table were made from different files"):
        dataset.read(0)


def test_a_reader_survives_pickling(small_project):
    reader = StoreReader(small_project.project.store_path("small-val"))

    again = pickle.loads(pickle.dumps(reader))

    assert np.array_equal(again.read_region(0, Box(100, 100, 90, 70)), reader.read_region(0, Box(100, 100, 90, 70)))


def test_the_same_file_under_two_names_in_two_splits_is_refused(tmp_path, gemslide):
    manifest = make_sources(tmp_path / "in")
    shutil.copy(tmp_path / "in/file-train.tiff", tmp_path / "in/file-test.tiff")
    project = tmp_path / "p"

    ingested = gemslide("ingest", manifest, "--project", project)
    tiled = gemslide("tile", manifest, "--project", project, "--tile-px", 32, "--tile-mpp", 1, "--json")

    assert ingested.code == 0
    assert json.loads(tiled.out)["code"] == "leakage"
    assert "small-train and small-test are the same file" in tiled.err


def test_a_table_without_labels_does_not_replace_one_that_has_them(small_project, tmp_path):
    project = Project(tmp_path)
    shutil.copytree(small_project.project.tiles_dir, project.tiles_dir)
    project.slides_dir.symlink_to(small_project.project.slides_dir)
    before = project.tile_table_path("small").read_bytes()

    with pytest.raises(BadManifestError, match="its labels, patients and splits would be lost"):
        make_tile_table(project, "small", TILES, cohort=None)

    assert project.tile_table_path("small").read_bytes() == before
    make_tile_table(project, "bare", TILES, cohort=None)
    make_tile_table(project, "bare", TILES, cohort=None)  # nothing to lose
    project.tile_table_path("small").write_bytes(before[:-100])
    with pytest.raises(BadManifestError, match="not replaced without a manifest"):
        make_tile_table(project, "small", TILES, cohort=None)
