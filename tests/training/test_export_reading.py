"""An export for WSInfer is judged by WSInfer's result, read in its own way."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from pipeline.models.sample_tiles import find_tiles
from tests.model_packages import read_config, sha256, write_config
from training.foundation.errors import BadRecipeError, ImplausibleOutputError
from training.tools.export_model import WsinferTiles, export_package
from training.tools.export_reading import MAX_MEAN_DIFFERENCE, reading_difference
from training.tools.import_model import import_model
from training.tools.import_source import find_import_source

pytestmark = [pytest.mark.usefixtures("own_trust", "one_thread"), pytest.mark.xdist_group("model-exchange")]


def sampled(small_project, count=8):
    return find_tiles(small_project.project, [small_project.test_slide], tile_px=32, mpp=1.0, at_least=3, at_most=count)


def test_tiles_are_read_as_wsinfer_reads_them_from_level_0_by_pillow(small_project):
    sample = sampled(small_project)
    level0 = sample.reader.levels[0].array.read_whole(*sample.reader.size_wh_px0)

    theirs = sample.read_as_wsinfer()

    for tile, (x, y) in zip(theirs, sample.grid.corners_xy0[sample.chosen], strict=True):
        region = Image.fromarray(level0[y : y + 64, x : x + 64])
        assert np.array_equal(tile, np.asarray(region.resize((32, 32), Image.Resampling.BILINEAR)))
    assert not np.array_equal(theirs, sample.read("level"))


class MeanRed(nn.Module):
    """Two logits from the redness of a tile."""

    def forward(self, images_nchw):
        red_n = images_nchw[:, 0].mean((1, 2))
        return torch.stack([red_n, -red_n], dim=1)


@pytest.mark.parametrize(("shift", "is_refused"), [(0.0, False), (0.02, False), (1.0, True), (float("nan"), True)])
def test_a_reading_that_moves_probabilities_too_far_is_refused_unless_it_is_allowed(shift, is_refused):
    images_nchw = torch.rand(7, 3, 8, 8)
    ours, theirs = (MeanRed(), images_nchw, "logits"), (MeanRed(), images_nchw + shift, "logits")

    if is_refused:
        with pytest.raises(ImplausibleOutputError, match="Nothing was written"):
            reading_difference(ours, theirs, allowed=False)
    else:
        difference = reading_difference(ours, theirs, allowed=False)
        assert difference.tiles == 7
        assert difference.mean_difference <= MAX_MEAN_DIFFERENCE
        assert (difference.largest_difference == 0) == (shift == 0)
    if shift == 1:
        allowed = reading_difference(ours, theirs, allowed=True)
        assert allowed.mean_difference > MAX_MEAN_DIFFERENCE
        assert allowed.allowed


def test_an_export_that_wsinfer_would_read_otherwise_is_not_written(small_project, package, tmp_path):
    sample = sampled(small_project)
    tiles, out = sample.read("level"), tmp_path / "out"
    blank = np.full_like(tiles, 255)

    with pytest.raises(ImplausibleOutputError, match="as WSInfer reads them"):
        export_package(package, "wsinfer", out, tiles, WsinferTiles(blank))
    assert not out.exists()
    report = export_package(package, "wsinfer", out, tiles, WsinferTiles(blank, allow_difference=True))

    stated = read_config(out)["gemslide"]["exported_from"]["wsinfer_reading"]
    assert stated == report["wsinfer_reading"]
    assert (stated["tiles"], stated["allowed"]) == (8, True)
    assert "as WSInfer reads them" in (out / "card.md").read_text()


def test_the_command_says_how_far_wsinfer_s_reading_is_from_ours(small_project_copy, gemslide, tmp_path):
    done = gemslide(
        "model", "export", small_project_copy.model_id, "--format", "wsinfer", "--out", tmp_path / "out",
        "--project", small_project_copy.project.root, "--json",
    )  # fmt: skip
    assert done.code == 0, done.err

    reading = json.loads(done.out)["wsinfer_reading"]
    assert reading["tiles"] == 32
    assert 0 < reading["mean_difference"] <= MAX_MEAN_DIFFERENCE
    record = max(small_project_copy.project.runs_dir.glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
    assert json.loads(record.read_text())["wsinfer_reading"] == reading


def test_a_model_whose_tiles_are_normalised_is_not_exported_for_wsinfer(small_project, package, tiles, tmp_path):
    normalised = shutil.copytree(package, tmp_path / package.name)
    config = read_config(normalised)
    config["gemslide"]["stain"] = {"method": "reinhard", "target": {"mean": [60.0, 10.0, 0.0], "std": [9.0, 5.0, 5.0]}}
    write_config(normalised, config)

    with pytest.raises(BadRecipeError, match=r"is normalised \(reinhard\)"):
        export_package(normalised, "wsinfer", tmp_path / "out", tiles)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("is_ours", "read"), [(False, "finest"), (True, "level")])
def test_a_model_of_wsinfer_s_form_reads_as_wsinfer_does(exports, tmp_path, is_ours, read):
    source = shutil.copytree(exports["onnx"][0], tmp_path / "theirs")
    if not is_ours:
        config = read_config(source)
        del config["gemslide"]
        write_config(source, config)

    report = import_model(find_import_source(source), tmp_path / "models")

    assert report["sha256"] == sha256(source / "model.onnx")
    assert read_config(tmp_path / "models" / report["model_id"])["gemslide"]["read"] == read
