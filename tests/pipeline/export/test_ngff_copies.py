"""Interop copies: other programs' libraries read the store's pixels from them, without gemslide."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
import zarr
from ome_zarr_models import v04, v05

from pipeline.export.export import ExportRequest, export_slide
from pipeline.store.layers.labels import read_tissue
from pipeline.store.reading.reader import StoreReader
from tests.pipeline.export.conftest import planes
from tests.pipeline.make import ingest
from training.foundation.errors import BadRecipeError, UnreadableError

VERSIONS = ("0.5", "0.4")
CORE_CODECS = {"sharding_indexed", "transpose", "bytes", "zstd", "crc32c"}


@pytest.fixture(scope="module")
def copies(tmp_path_factory, mixed_store, j2k_store):
    """One copy per (store, version), with associated images."""
    folder = tmp_path_factory.mktemp("copies")

    def make(store, version):
        out = folder / f"{store.name[0]}-{version}.zarr"
        export_slide(ExportRequest(store, out, f"ngff-{version}", with_associated=True))
        return out

    return {(s.name[0], version): make(s, version) for s in (mixed_store, j2k_store) for version in VERSIONS}


def read_elsewhere(copy, reader, num_levels):
    program = Path(__file__).with_name("read_copy.py")
    command = [sys.executable, "-I", str(program), str(copy), reader, str(num_levels)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("reader", ["zarr", "tensorstore", "ome-zarr"])
@pytest.mark.parametrize("version", VERSIONS)
def test_other_libraries_read_the_store_s_pixels_without_gemslide(copies, mixed_store, version, reader):
    ours = StoreReader(mixed_store)

    read_back = read_elsewhere(copies["M", version], reader, 3)

    assert read_back["crc"] == [zlib.crc32(planes(ours, level)) for level in range(3)]
    if reader == "ome-zarr":
        assert (read_back["axes"], read_back["scale"]) == (["c", "y", "x"], [1.0, 0.5, 0.5])
        assert "tissue" in read_back["labels"]


@pytest.mark.parametrize("version", VERSIONS)
def test_jpeg_2000_levels_become_plain_ones(copies, j2k_store, version):
    ours = StoreReader(j2k_store)

    assert read_elsewhere(copies["J", version], "tensorstore", 2)["crc"] == [
        zlib.crc32(planes(ours, level)) for level in range(2)
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_tissue_label_and_what_was_kept_come_along(copies, mixed_store, label, version):
    read_back = read_elsewhere(copies["M", version], "zarr", 3)

    assert read_back["tissue"] == int(read_tissue(mixed_store)[0].sum()) > 0
    assert read_back["associated"] == [zlib.crc32(np.ascontiguousarray(np.moveaxis(label, -1, 0)))]


@pytest.mark.parametrize(("version", "models"), [("0.5", v05), ("0.4", v04)])
def test_the_metadata_are_valid(copies, version, models):
    root = zarr.open_group(str(copies["M", version]), mode="r")

    image = models.Image.from_zarr(root["0"])
    models.ImageLabel.from_zarr(root["0/labels/tissue"])
    models.Image.from_zarr(root["1"])
    assert (
        len(
            image.ome_attributes.multiscales[0].datasets
            if version == "0.5"
            else image.attributes.multiscales[0].datasets
        )
        == 3
    )
    if version == "0.5":
        models.BioFormats2Raw.from_zarr(root)


def test_a_copy_in_zarr_v3_names_core_codecs_only(copies):
    def names(codecs):
        for codec in codecs:
            yield codec["name"]
            configuration = codec.get("configuration", {})
            yield from names(configuration.get("codecs", []))
            yield from names(configuration.get("index_codecs", []))

    arrays = [p for p in copies["M", "0.5"].rglob("zarr.json") if "codecs" in p.read_text()]
    assert len(arrays) == 3 + 3 + 1
    for path in arrays:
        assert set(names(json.loads(path.read_text())["codecs"])) <= CORE_CODECS


@pytest.mark.parametrize("version", VERSIONS)
def test_white_chunks_stay_left_out(copies, version):
    files = [p for p in (copies["M", version] / "0/0").rglob("*") if p.is_file() and p.name[0] not in "z."]

    # 0.5: 3 × 3 shards of 480 px. 0.4: 2 × 1 chunks of 1024 px, none completely white.
    assert len(files) == (9 if version == "0.5" else 2)


def test_a_copy_says_what_ngff_has_no_place_for_and_names_nobody(copies, mixed_store):
    attributes = zarr.open_group(str(copies["M", "0.5"]), mode="r").attrs["gemslide_export"]

    assert (attributes["slide_id"], attributes["mpp0"], attributes["objective_power"]) == ("M-1", 0.5, 20.0)
    assert attributes["routes"] == ["pass-through", "pass-through", "decode"]
    assert zarr.open_group(str(copies["M", "0.4"]), mode="r").attrs["gemslide_export"] == attributes


def test_labels_and_macros_stay_behind_unless_asked_for(tmp_path, mixed_store):
    export_slide(ExportRequest(mixed_store, tmp_path / "c.zarr", "ngff-0.5"))

    assert sorted(p.name for p in (tmp_path / "c.zarr").iterdir()) == ["0", "OME", "zarr.json"]


def test_a_quality_for_a_lossless_copy_is_refused(tmp_path, mixed_store):
    with pytest.raises(BadRecipeError, match="such copies are lossless"):
        export_slide(ExportRequest(mixed_store, tmp_path / "c.zarr", "ngff-0.5", quality=80))

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_a_copy_is_ingested_again_with_the_same_pixels(copies, mixed_store, tmp_path, version):
    before = StoreReader(mixed_store)

    report = ingest(copies["M", version], tmp_path)

    after = StoreReader(report.store)
    assert after.mpp0 == pytest.approx(before.mpp0)
    for level in range(3):
        assert np.array_equal(planes(after, level), planes(before, level)), level


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["../../elsewhere", "/tmp/elsewhere", "", ".", "a/b", 5])
def test_a_label_s_name_that_leads_out_of_the_copy_is_refused(tmp_path, mixed_store, version, name):
    """The names come from the store, which may be hostile."""
    store = shutil.copytree(mixed_store, tmp_path / "in" / mixed_store.name)
    meta = json.loads((store / "0/labels/zarr.json").read_text())
    meta["attributes"]["ome"]["labels"] = [name]
    (store / "0/labels/zarr.json").write_text(json.dumps(meta))
    (tmp_path / "out").mkdir()

    with pytest.raises(UnreadableError, match="allowed are 1 to 64 letters"):
        export_slide(ExportRequest(store, tmp_path / "out/c.zarr", f"ngff-{version}"))

    assert list((tmp_path / "out").iterdir()) == []
