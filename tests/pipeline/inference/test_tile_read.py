"""Level that tiles are read from: chosen, stored with everything made from them, never mixed silently."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pandas as pd
import pytest
import tifffile

from pipeline.errors import BadManifestError
from pipeline.inference.infer import infer_slide
from pipeline.inference.predictor import Predictor
from pipeline.ingest.ingest import IngestRequest, ingest_slide
from pipeline.project import Project
from pipeline.settings.config import InferConfig, IngestConfig, TileConfig
from pipeline.store.layers.overlays import read_predictions
from pipeline.store.reading.reader import MAX_FINEST_SIDE_PX, StoreReader
from pipeline.tiles.dataset import TileDataset
from pipeline.tiles.table import TileTable, read_table, write_table
from pipeline.tiles.tile import make_tile_table
from tests.model_packages import read_config, write_config
from tests.small_trained_project import TISSUE
from training.foundation.errors import BadRecipeError

WITH, WITHOUT = "with-level", "without-level"


@pytest.fixture(scope="module")
def slides(small_project_copy, tmp_path_factory):
    """Project with one slide twice: with its own subsampled level at 1 µm/px, and without."""
    project = Project(tmp_path_factory.mktemp("levels"))
    source = small_project_copy.cohort.parent / "file-test.tiff"
    copy = project.root / "copy.tiff"
    shutil.copyfile(source, copy)
    with tifffile.TiffFile(source) as tiff:
        page, form = tiff.pages.first, tiff.tiff
        at = page.offset + form.tagnosize + len(page.tags) * form.tagsize
    with copy.open("r+b") as file:
        file.seek(at)
        file.write(bytes(form.offsetsize))
    for path, slide_id in ((source, WITH), (copy, WITHOUT)):
        ingest_slide(IngestRequest(path, slide_id), project, IngestConfig(shard_px=512, tissue=TISSUE))
    shutil.copytree(small_project_copy.project.models_dir, project.models_dir)
    return project


def trained_on(project, model_id, read, name):
    """The same network, whose package states this way of reading its training tiles."""
    package = shutil.copytree(
        project.model_path(model_id), project.models_dir / f"{name}-{model_id.rpartition('-')[2]}"
    )
    config = read_config(package)
    write_config(package, {**config, "gemslide": {**config["gemslide"], "read": read}})
    return package.name


def tiles_of(project, read):
    config = TileConfig(tile_px=32, mpp=1.0, read=read)
    make_tile_table(project, read, config)
    dataset = TileDataset(project.root, read)
    return {
        slide: np.stack([dataset.read(index) for index in np.flatnonzero(dataset.slides == slide)])
        for slide in (WITH, WITHOUT)
    }


def test_tiles_of_the_finest_level_do_not_depend_on_which_levels_a_slide_stores(slides):
    finest, level = tiles_of(slides, "finest"), tiles_of(slides, "level")

    assert np.array_equal(finest[WITH], finest[WITHOUT])
    assert not np.array_equal(level[WITH], level[WITHOUT])  # otherwise the first check would be empty


def test_a_tile_of_the_finest_level_is_the_mean_of_the_pixels_it_covers(slides):
    table = make_tile_table(slides, "finest", TileConfig(tile_px=32, mpp=1.0, read="finest")).frame
    row = table[table["slide_id"] == WITH].iloc[7]
    reader = StoreReader(slides.store_path(WITH))

    region = reader.levels[0].array.read_whole(*reader.size_wh_px0)[row.y_px0 :, row.x_px0 :][:64, :64]
    tile = TileDataset(slides.root, "finest").read(int(table.index[table["slide_id"] == WITH][7]))
    mean = region.reshape(32, 2, 32, 2, 3).mean((1, 3))
    assert np.abs(tile - mean).max() <= 0.5


def test_the_tile_table_the_package_the_card_and_the_predictions_say_how_tiles_are_read(
    slides, small_project_copy, gemslide, tmp_path
):
    model = trained_on(slides, small_project_copy.model_id, "finest", "says")
    done = gemslide("infer", model, WITH, "--project", slides.root)
    assert done.code == 0, done.err

    table = make_tile_table(slides, "said", TileConfig(tile_px=32, mpp=1.0, read="finest"))
    assert table.read == "finest"
    assert table.metadata["settings"]["read"] == "finest"
    predictions = read_predictions(slides.store_path(WITH), model)
    assert predictions.attributes["made_from"]["tiles"]["read"] == "finest"
    report = (slides.result_dir(WITH, model) / "slide_report.html").read_text()
    assert "read from the finest level" in report
    checked = gemslide("model", "check", model, "--project", slides.root)
    assert "read from the finest level" in checked.out


def test_training_writes_how_its_tiles_were_read_into_package_and_card(small_project, slides):
    own = small_project.project.model_path(small_project.model_id)

    assert read_config(own)["gemslide"]["read"] == "level"
    assert "read from the nearest stored level" in (own / "card.md").read_text()


def test_inference_reads_as_the_model_s_training_tiles_were_read(slides, small_project_copy):
    by_finest = trained_on(slides, small_project_copy.model_id, "finest", "follows")
    maps = {}
    for model in (by_finest, small_project_copy.model_id):
        predictor = Predictor.load(slides.model_path(model))
        for slide in (WITH, WITHOUT):
            infer_slide(slide, predictor, slides, InferConfig(formats=()))
            maps[model, slide] = read_predictions(slides.store_path(slide), model).probabilities_cyx

    assert np.array_equal(maps[by_finest, WITH], maps[by_finest, WITHOUT], equal_nan=True)
    assert not np.array_equal(
        maps[small_project_copy.model_id, WITH], maps[small_project_copy.model_id, WITHOUT], equal_nan=True
    )


@pytest.mark.parametrize(("trained", "asked"), [("level", "finest"), ("finest", "level")])
def test_another_way_to_read_than_in_training_is_refused_unless_allowed_and_then_shown(
    slides, small_project_copy, gemslide, trained, asked
):
    model = trained_on(slides, small_project_copy.model_id, trained, f"from-{trained}")
    settings = slides.root / "gemslide.toml"
    settings.write_text(f'[infer]\nread = "{asked}"\n')

    refused = gemslide("infer", model, WITH, "--project", slides.root)
    settings.write_text(f'[infer]\nread = "{asked}"\nallow_other_read = true\n')
    allowed = gemslide("infer", model, WITH, "--project", slides.root)
    again = gemslide("infer", model, WITH, "--project", slides.root)
    settings.write_text(f'[infer]\nread = "{asked}"\n')
    refused_again = gemslide("infer", model, WITH, "--project", slides.root)
    settings.unlink()
    own_way = gemslide("infer", model, WITH, "--project", slides.root, "--json")

    for done in (refused, refused_again):
        assert done.code == 1
        assert f'[infer] read = "{asked}", but model {model}' in done.err
        assert "allow_other_read" in done.err
    message = f'its tiles were read with read = "{asked}"'
    for done in (allowed, again):
        assert done.code == 0, done.err
        assert message in done.out + done.err
    report = slides.result_dir(WITH, model) / "slide_report.html"
    assert json.loads(own_way.out.splitlines()[0])["status"] == "done"  # different pixels, so predicted again
    assert message.capitalize() not in report.read_text()
    assert read_predictions(slides.store_path(WITH), model).tile_read == trained


def test_a_model_that_does_not_say_how_it_read_takes_either(slides, small_project_copy):
    model = trained_on(slides, small_project_copy.model_id, None, "silent")
    predictor = Predictor.load(slides.model_path(model))

    for read in ("finest", "level", None):
        infer_slide(WITH, predictor, slides, InferConfig(formats=(), read=read))
        assert read_predictions(slides.store_path(WITH), model).tile_read == (read or "level")


def test_predictions_from_before_there_was_a_choice_stay_finished(slides, small_project_copy):
    predictor = Predictor.load(slides.model_path(small_project_copy.model_id))
    infer_slide(WITH, predictor, slides, InferConfig(formats=()))
    path = slides.store_path(WITH) / "predictions" / small_project_copy.model_id / "zarr.json"
    stored = json.loads(path.read_text())
    del stored["attributes"]["gemslide"]["made_from"]["tiles"]["read"]
    path.write_text(json.dumps(stored))

    assert infer_slide(WITH, predictor, slides, InferConfig(formats=())).skipped


def test_a_tile_too_large_to_hold_at_the_finest_level_is_refused_before_it_is_read(slides):
    reader = StoreReader(slides.store_path(WITH))

    with pytest.raises(BadRecipeError, match=r'with read = "finest" it may be 16384 × 16384 px'):
        reader.tile_level("finest", mpp=10.0, side_px0=MAX_FINEST_SIDE_PX + 1)
    assert reader.tile_level("level", mpp=10.0, side_px0=MAX_FINEST_SIDE_PX + 1) > 0


def test_a_table_whose_tiles_are_not_read_as_it_says_is_refused(slides):
    make_tile_table(slides, "mixed", TileConfig(tile_px=32, mpp=1.0, read="level"))
    table = read_table(slides.tile_table_path("mixed"))
    assert (table.frame["level"] == 1).all()

    for read, words in (("finest", "tiles of other levels"), ("coarsest", "read = 'coarsest'")):
        changed = {**table.metadata, "settings": {**table.metadata["settings"], "read": read}}
        write_table(slides.tile_table_path("mixed"), TileTable(pd.DataFrame(table.frame), changed))
        with pytest.raises(BadManifestError, match=words):
            read_table(slides.tile_table_path("mixed"))


def test_an_unknown_way_to_read_is_refused_by_name(slides, gemslide):
    settings = slides.root / "gemslide.toml"
    for section in ("tile", "infer"):
        settings.write_text(f'[{section}]\nread = "coarsest"\n')
        done = gemslide("tile", "--project", slides.root, "--tile-px", "32", "--tile-mpp", "1")
        assert done.code == 1
        assert "read" in done.err
        assert "coarsest" in done.err
    settings.unlink()
