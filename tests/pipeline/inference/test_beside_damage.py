"""Tiles that touch damage in a slide's file are neither trained on nor predicted; tables and predictions count them."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from imagecodecs import imread

from pipeline.errors import NoTissueError
from pipeline.inference.infer import infer_slide
from pipeline.inference.predictor import Predictor
from pipeline.ingest.ingest import IngestRequest, ingest_slide
from pipeline.project import Project
from pipeline.settings.config import InferConfig, IngestConfig
from pipeline.store.layers.overlays import read_predictions
from pipeline.tiles.table import read_table
from pipeline.tiles.tile import make_tile_table
from tests.pipeline.damage import damage_tiles
from tests.small_trained_project import TILES, TISSUE, TISSUE_TOML, make_slide

COLUMNS = 5
"""Number of 256 px tiles along the slide of 1100 px."""
DAMAGED = (6, 12)
"""Indices of damaged tiles: x 256–512, y 256–512; x 512–768, y 512–768."""
CONFIG = InferConfig(batch_size=16, min_tissue=0.0)
"""Settings that include tiles without tissue: only damage excludes a tile."""


@pytest.fixture(scope="module")
def project(small_project, tmp_path_factory):
    folder = tmp_path_factory.mktemp("damaged")
    make_slide(folder / "a.tiff", 7)
    damage_tiles(folder / "a.tiff", DAMAGED, "random")
    project = Project(folder)
    ingest_slide(IngestRequest(folder / "a.tiff", "S-1"), project, IngestConfig(damaged="mask", tissue=TISSUE))
    shutil.copytree(small_project.project.models_dir, project.models_dir)
    return project


def touches_damage(x_px0, y_px0, side_px0):
    return any(
        x_px0 < 256 * (index % COLUMNS + 1) and x_px0 + side_px0 > 256 * (index % COLUMNS)
        and y_px0 < 256 * (index // COLUMNS + 1) and y_px0 + side_px0 > 256 * (index // COLUMNS)
        for index in DAMAGED
    )  # fmt: skip


@pytest.mark.parametrize("overlap", [0.0, 0.5])
def test_cells_are_predicted_exactly_where_no_pixel_under_them_is_damaged(small_project, project, overlap):
    predictor = Predictor.load(project.models_dir / small_project.model_id)

    report = infer_slide("S-1", predictor, project, CONFIG.model_copy(update={"overlap": overlap}))

    stored = read_predictions(project.store_path("S-1"), small_project.model_id)
    values_yx, stride = stored.probabilities_cyx[0], int(stored.stride_px0)
    for row, column in np.ndindex(values_yx.shape):
        if touches_damage(column * stride, row * stride, stride):
            assert np.isnan(values_yx[row, column])
        elif not overlap:
            assert np.isfinite(values_yx[row, column])
    assert report.damaged_tiles == stored.attributes["damaged_tiles"] > 0
    if not overlap:
        assert report.damaged_tiles == np.isnan(values_yx).sum() == 2 * 4 * 4


@pytest.mark.parametrize("tile_px", [32, 50])
def test_no_row_of_a_tile_table_touches_damage_and_the_table_says_how_many_would(project, tile_px):
    config = TILES.model_copy(update={"tile_px": tile_px, "min_tissue": 0.0})
    make_tile_table(project, f"t{tile_px}", config)

    table = read_table(project.tile_table_path(f"t{tile_px}"))

    side = 2 * tile_px
    corners = {(x, y) for x in range(0, 1100 - side + 1, side) for y in range(0, 820 - side + 1, side)}
    clear = {corner for corner in corners if not touches_damage(*corner, side)}
    assert set(zip(table.frame.x_px0, table.frame.y_px0, strict=True)) == clear
    assert table.metadata["quality"]["S-1"]["damaged_tiles"] == len(corners - clear) > 0


def test_a_slide_without_a_tile_clear_of_damage_says_why_nothing_is_predicted(small_project, tmp_path):
    make_slide(tmp_path / "a.tiff", 7)
    damage_tiles(tmp_path / "a.tiff", [i for i in range(20) if i not in (4, 19)], "zeros")  # two tiles of glass
    project = Project(tmp_path)
    ingest_slide(IngestRequest(tmp_path / "a.tiff", "S-1"), project, IngestConfig(damaged="mask", tissue=TISSUE))
    predictor = Predictor.load(small_project.project.models_dir / small_project.model_id)

    with pytest.raises(NoTissueError, match=r"of 204 tiles .*; 200 touch damage in the slide's file"):
        infer_slide("S-1", predictor, project, InferConfig(min_tissue=0.999))


def test_a_damaged_file_predicted_on_the_way_is_counted_and_its_damage_drawn(small_project, tmp_path, gemslide):
    project = Project(tmp_path / "p")
    shutil.copytree(small_project.project.models_dir, project.models_dir)
    (project.root / "gemslide.toml").write_text(f'[ingest]\ndamaged = "mask"\n{TISSUE_TOML}')
    make_slide(tmp_path / "a.tiff", 7)
    damage_tiles(tmp_path / "a.tiff", DAMAGED, "random")

    done = gemslide("infer", small_project.model_id, tmp_path / "a.tiff", "--project", project.root)

    assert done.code == 0, done.err
    assert "2 of 20 tiles are damaged, and masked" in done.err
    (record,) = [json.loads(path.read_text()) for path in project.runs_dir.glob("*.json")]
    assert record["damaged_tiles"] == {"a": 2}
    assert record["tiles_beside_damage"]["a"] > 2
    (heatmap,) = project.result_dir("a", small_project.model_id).glob("heatmap_*.png")
    pixels = imread(heatmap)[..., :3].astype(int)
    of_stripes = np.abs(pixels - [0xD6, 0x00, 0x6C]).max(axis=-1) < 24
    assert of_stripes.any()
    assert "32 tiles were left out for touching damage" in (heatmap.parent / "slide_report.html").read_text()


def test_the_command_says_how_many_tiles_were_left_out(small_project, project, gemslide):
    done = gemslide("infer", small_project.model_id, "S-1", "--project", project.root)
    tiled = gemslide("tile", "S-1", "--tile-px", 32, "--tile-mpp", 1, "--project", project.root)

    assert "32 tiles left out for touching damage" in done.out + done.err
    assert "left out for touching damage in the slide's file" in tiled.out + tiled.err
