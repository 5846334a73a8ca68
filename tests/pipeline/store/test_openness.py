"""Stores are open: plain zarr, ome-zarr-py and napari read them, through codec names given upstream."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
import tifffile
import zarr

from pathology_app.desktop.reader import napari_get_reader
from pipeline.store.format.layout import ArraySpec
from pipeline.store.format.metadata import write_json
from pipeline.store.format.shard import write_shard
from pipeline.store.layers.labels import read_tissue
from pipeline.store.reading.reader import StoreReader
from pipeline.store.zarr_codecs import Jpeg2000Codec, JpegCodec
from tests.pipeline.make import halved, ingest, sample_image, write_aperio_j2k, write_jpeg_pyramid
from tests.pipeline.store.golden import level_crcs

TRANSPOSE = {"name": "transpose", "configuration": {"order": [1, 2, 0]}}
PLAIN_ZARR = Path(__file__).parents[1] / "ingest/plain_zarr.py"
OTHER_PROGRAMS = Path(__file__).with_name("other_programs.py")


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """(source, store) by codec of the finest level; a second level in both."""
    folder = tmp_path_factory.mktemp("open")
    pixels = sample_image(700, 460)
    pixels[:300, :200] = 245  # glass
    jpeg = write_jpeg_pyramid(folder / "a.tiff", halved(pixels, 1), photometric="rgb")
    j2k = write_aperio_j2k(folder / "b.svs", pixels, compression=33005)
    return {
        "imagecodecs_jpeg": (jpeg, ingest(jpeg, folder, slide_id="a", smallest_level_px=700).store),
        "imagecodecs_jpeg2k": (j2k, ingest(j2k, folder, slide_id="b", smallest_level_px=350).store),
    }


def run(*command: object) -> dict:
    done = subprocess.run(
        [sys.executable, *map(str, command)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("codec", ["imagecodecs_jpeg", "imagecodecs_jpeg2k"])
def test_the_codec_s_json_is_its_upstream_name_and_nothing_else(stores, codec):
    """Without a configuration upstream's defaults apply: the stream describes itself. The checksum after each stream is
    zarr's own codec."""
    _, store = stores[codec]
    (sharding,) = json.loads((store / "0/0/zarr.json").read_text())["codecs"]

    assert sharding["configuration"]["codecs"] == [TRANSPOSE, {"name": codec}, {"name": "crc32c"}]
    kept = zarr.open_array(store / "0/0", mode="r").metadata.codecs[0].codecs[-2]
    assert kept.to_dict() == {"name": codec}


@pytest.mark.parametrize("codec", ["imagecodecs_jpeg", "imagecodecs_jpeg2k"])
def test_zarr_alone_reads_the_source_s_pixels(stores, codec):
    source, store = stores[codec]

    result = run(PLAIN_ZARR, store, source, "tifffile", 1, 1)

    assert result["ours"] == []
    assert [level["worst"] for level in result["levels"]] == [0]
    assert result["levels"][0]["crc"] == level_crcs(store)[0]


@pytest.mark.parametrize("codec", ["imagecodecs_jpeg", "imagecodecs_jpeg2k"])
def test_ome_zarr_py_and_napari_read_levels_scales_and_tissue(stores, codec):
    _, store = stores[codec]
    reader = StoreReader(store)
    mask, mask_mpp = read_tissue(store)

    result = run(OTHER_PROGRAMS, store)

    assert result["ours"] == []
    assert result["axes"] == ["c", "y", "x"]
    assert result["is_lazy"] == [True, True]
    scales = [level[0]["scale"] for level in result["transformations"]]
    np.testing.assert_allclose(scales, [[1, reader.mpp0 * d, reader.mpp0 * d] for d in (1, 2)])
    np.testing.assert_allclose(result["transformations"][1][1]["translation"], [0, reader.mpp0 / 2, reader.mpp0 / 2])
    assert [channel[1] for channel in result["colours"]] == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
    assert result["crcs"] == result["napari_crcs"] == level_crcs(store)
    assert result["napari_shapes"] == [[460, 700, 3], [230, 350, 3]]
    assert result["tissue_transformations"][0][0]["scale"] == pytest.approx([mask_mpp] * 2)
    assert len(result["tissue_crcs"]) == len(reader.levels)
    assert result["tissue_crcs"][0] == result["napari_tissue_crc"] == zlib.crc32(np.ascontiguousarray(mask))
    assert 0 < mask.mean() < 1


@pytest.mark.parametrize("codec", ["imagecodecs_jpeg", "imagecodecs_jpeg2k"])
def test_our_napari_plug_in_gives_the_same_pixels_lazily(stores, codec):
    _, store = stores[codec]
    read = napari_get_reader(str(store))
    assert read is not None

    (levels, keywords, kind), *_ = read(str(store))

    assert (kind, keywords["rgb"], keywords["multiscale"]) == ("image", True, True)
    assert [zlib.crc32(np.ascontiguousarray(level)) for level in levels] == level_crcs(store)


def jpeg_array(folder: Path, stream: bytes, keys: dict[str, object]) -> Path:
    """Array of one 256 px chunk as another program may have written it."""
    meta = ArraySpec(256, 256, 256, 1, "imagecodecs_jpeg").to_zarr_json()
    meta["codecs"][0]["configuration"]["codecs"][1]["configuration"] = keys
    (folder / "array/c/0/0").mkdir(parents=True)
    write_json(folder / "array/zarr.json", meta)
    write_shard(folder / "array/c/0/0/0", [(stream,)])
    return folder / "array"


def abbreviated(folder: Path) -> tuple[bytes, bytes, np.ndarray]:
    """Abbreviated tile, its tables, and its pixels."""
    source = write_jpeg_pyramid(folder / "a.tiff", [sample_image(256, 256)], photometric="rgb")
    with tifffile.TiffFile(source) as tiff:
        page = tiff.pages[0]
        tiff.filehandle.seek(page.dataoffsets[0])
        return tiff.filehandle.read(page.databytecounts[0]), page.jpegtables, page.asarray()


def test_an_array_whose_tables_lie_in_its_configuration_is_decoded_by_plain_zarr_with_the_right_colours(tmp_path):
    """The imagecodecs project's own codec stores abbreviated tiles this way."""
    tile, tables, expected = abbreviated(tmp_path)
    keys = {"tables": base64.b64encode(tables).decode(), "colorspace_jpeg": "RGB", "colorspace_data": "RGB"}
    path = jpeg_array(tmp_path, tile, keys)

    array = zarr.open_array(path, mode="r")[...]

    np.testing.assert_array_equal(np.moveaxis(array, 0, -1), expected)
    with pytest.raises(ValueError, match="not complete streams"):
        ArraySpec.from_zarr_json(json.loads((path / "zarr.json").read_text()))


def test_an_array_whose_head_lies_in_its_configuration_has_chunks_without_an_end(tmp_path):
    """Upstream puts the header before a chunk and an end marker after it."""
    tile, tables, expected = abbreviated(tmp_path)
    head, scan = tables[:-2] + tile[2:400], tile[400:-2]
    keys = {"header": base64.b64encode(head).decode(), "colorspace_jpeg": "RGB", "colorspace_data": "RGB"}

    array = zarr.open_array(jpeg_array(tmp_path, scan, keys), mode="r")[...]

    np.testing.assert_array_equal(np.moveaxis(array, 0, -1), expected)


@pytest.mark.parametrize("codec", [JpegCodec, Jpeg2000Codec])
def test_a_configuration_key_that_nobody_knows_is_refused(codec):
    with pytest.raises(ValueError, match=r"unknown configuration keys \['colour'\]"):
        codec.from_dict({"name": codec.codec_name, "configuration": {"colour": 1}})


def test_a_way_of_decoding_that_would_give_other_pixels_is_refused():
    with pytest.raises(ValueError, match="fancyupsampling = false cannot be read"):
        JpegCodec.from_dict({"name": "imagecodecs_jpeg", "configuration": {"fancyupsampling": False}})
    JpegCodec.from_dict({"name": "imagecodecs_jpeg", "configuration": {"fancyupsampling": True}})
    with pytest.raises(ValueError, match="skipres"):
        Jpeg2000Codec.from_dict({"name": "imagecodecs_jpeg2k", "configuration": {"skipres": 1}})
