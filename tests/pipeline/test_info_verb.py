"""`gemslide info` on every kind of slide and store."""

from __future__ import annotations

import json
import shutil

import pytest
import typer

from pipeline.store.format.metadata import read_json, write_json
from pipeline.verbs.info import run_info
from tests.pipeline.make import halved, ingest, sample_image, write_aperio_j2k, write_pyramid
from tests.pipeline.slides.make_dicom import write_dicom
from tests.pipeline.slides.make_ome_zarr import write_ome_zarr


@pytest.fixture
def told(capsys, tmp_path):
    """Output of the verb, as a dictionary; the project is `tmp_path`."""

    def ask(path, series=None):
        run_info(str(path), tmp_path, series=series, as_json=True)
        return json.loads(capsys.readouterr().out)

    return ask


def test_a_jpeg_2000_slide_passes_through_and_its_store_says_so(told, tmp_path):
    source = write_aperio_j2k(tmp_path / "a.svs", sample_image(700, 500), compression=33005)
    store = ingest(source, tmp_path, smallest_level_px=350).store

    slide, stored = told(source), told(store)

    assert slide["levels"] == ["0: 700 × 500 px, downsample 1, pass-through, JPEG 2000, 256 px tiles"]
    assert (slide["format"], slide["files"], slide["scanned"]) == ("tiff:aperio", 1, "everything")
    assert stored["levels"][0] == "0: 700 × 500 px, downsample 1, pass-through, JPEG 2000, 256 px chunks"
    assert "built, zstd" in stored["levels"][1]
    assert stored["quality"] == "not checked"
    assert told("S-1") == stored  # by its id in the project


def test_levels_asked_for_in_jpeg_and_rebuilt_tiles_are_told(told, tmp_path):
    source = write_pyramid(tmp_path / "a.tiff", [sample_image(500, 300)], compression="lzw")
    store = ingest(source, tmp_path, decode_to="jpeg", jpeg_quality=85).store
    root = read_json(store / "zarr.json")
    root["attributes"]["gemslide"]["levels"][0]["rebuilt"] = [[0, 1], [2, 3]]
    root["attributes"]["gemslide"]["bounds_px0"] = [10, 20, 300, 200]
    write_json(store / "zarr.json", root)

    info = told(store)

    assert "decode, JPEG at quality 85" in info["levels"][0]
    assert info["levels"][0].endswith("2 damaged tiles repaired from the previous level")
    assert info["scanned"] == "300 × 200 px at x 10, y 20"


def test_a_dicom_folder_of_two_series_is_refused_until_one_is_named(told, capsys, tmp_path):
    folder = tmp_path / "dicom"
    folder.mkdir()
    write_dicom(folder / "a.dcm", sample_image(200, 130), series="1.2.3")
    write_dicom(folder / "b.dcm", sample_image(150, 90), series="1.2.4")

    with pytest.raises(typer.Exit):
        told(folder)
    assert "1.2.3" in "".join(capsys.readouterr())
    info = told(folder, "1.2.4")

    assert info["levels"][0].startswith("0: 150 × 90 px, downsample 1, pass-through, JPEG, 64 px tiles")
    assert info["format"].startswith("dicom")


@pytest.mark.parametrize("version", ["0.4", "0.5"])
def test_an_ome_zarr_of_another_program_is_a_slide_and_not_a_damaged_store(told, tmp_path, version):
    path = write_ome_zarr(tmp_path / "other.zarr", halved(sample_image(400, 300), 1), version=version)

    info = told(path)

    assert "slide_id" not in info
    assert [line.split(",")[0] for line in info["levels"]] == ["0: 400 × 300 px", "1: 200 × 150 px"]


def test_a_store_whose_root_is_damaged_is_still_taken_for_a_store(told, capsys, tmp_path):
    source = write_pyramid(tmp_path / "a.tiff", [sample_image(500, 300)], compression="lzw")
    store = ingest(source, tmp_path).store
    damaged = shutil.copytree(store, tmp_path / "b.ome.zarr")
    (damaged / "zarr.json").write_text("{")

    with pytest.raises(typer.Exit):
        told(damaged)

    assert "not a gemslide store" in "".join(capsys.readouterr())
