"""Data that are not in the file are damage, not black tissue or white glass; what a scanner left out is neither."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.errors import CorruptTileError
from pipeline.ingest.source_comparison import verify_store
from pipeline.store.layers.damaged import read_damaged
from pipeline.store.layers.labels import read_tissue
from pipeline.store.reading.reader import StoreReader
from tests.pipeline.damage import BYTE_COUNTS, OFFSETS
from tests.pipeline.make import halved, ingest, overwrite_tag, overwrite_tile, sample_image, tile_bytes, write_pyramid
from tests.pipeline.slides.make_dicom import NATIVE, native, write_dicom
from tests.pipeline.slides.make_ome_zarr import create, write_image, write_ome_zarr
from training.foundation.errors import UnreadableError

T = 64
AT = (1, 2)
NUMBER = 7
"""Of the tile at `AT`, of 5 × 4."""
UNCOMPRESSED = {"syntax": NATIVE, "encode": native, "photometric": "RGB"}


def pixels(*, glass=None):
    """A picture of 5 × 4 tiles, in which the tile at `AT` may be glass of a grey."""
    made = sample_image(5 * T, 4 * T)
    if glass is not None:
        made[T : 2 * T, 2 * T : 3 * T] = glass
    return made


def empty(path, *, page=0, tiles=(NUMBER,)):
    for tile in tiles:
        for tag in (OFFSETS, BYTE_COUNTS):
            overwrite_tag(path, tag, 0, page=page, index=tile)
    return path


def tiff_without_bytes(folder, levels, compression="jpeg"):
    return empty(write_pyramid(folder / "a.tiff", levels, tile_px=T, compression=compression))


def tiff_without_bytes_of_zstd(folder, levels):
    return tiff_without_bytes(folder, levels, "zstd")


def tiff_of_zeros(folder, levels):
    path = write_pyramid(folder / "a.tiff", levels, tile_px=T, compression=None)
    overwrite_tile(path, NUMBER, bytes(tile_bytes(path, NUMBER)))
    return path


def tiff_with_a_block_of_zeros(folder, levels):
    path = write_pyramid(folder / "a.tiff", levels, tile_px=T, compression=None)
    overwrite_tile(path, NUMBER, bytes(4096), at=1000)
    return path


def planar_tiff_with_a_plane_of_zeros(folder, levels):
    path = folder / "a.tiff"
    planes = [np.ascontiguousarray(np.moveaxis(level, -1, 0)) for level in levels]
    write_pyramid(path, planes, tile_px=T, compression=None, planarconfig="separate")
    overwrite_tile(path, 20 + NUMBER, bytes(T * T))
    return path


def zarr_without_a_chunk(folder, levels, version="0.5", axes="cyx"):
    path = write_ome_zarr(folder / "a.zarr", levels, version=version, axes=axes, mpp=0.5)
    name = {"cyx": ("0", "1", "2"), "tczyx": ("0", "0", "0", "1", "2"), "xyc": ("2", "1", "0")}[axes]
    (path / "0" / ("/".join(("c", *name)) if version == "0.5" else ".".join(name))).unlink(missing_ok=True)
    return path


def zarr_2_without_a_chunk(folder, levels):
    return zarr_without_a_chunk(folder, levels, "0.4", "tczyx")


def zarr_of_columns_without_a_chunk(folder, levels):
    return zarr_without_a_chunk(folder, levels, "0.4", "xyc")


def zarr_whose_shard_has_a_gap(folder, levels):
    root = create(folder / "a.zarr")
    write_image(root, levels, mpp=0.5)
    for number, level in enumerate(levels):
        del root[str(number)]
        planes = np.moveaxis(level, -1, 0)
        stored = {"chunks": (3, T, T), "shards": (3, 2 * T, 2 * T), "dimension_names": ["c", "y", "x"]}
        array = root.create_array(str(number), shape=planes.shape, dtype="u1", **stored)
        array[...] = planes
        if number == 0:
            array[:, T : 2 * T, 2 * T : 3 * T] = 0  # zarr stores no chunk of the fill value
    return folder / "a.zarr"


def dicom(folder, levels, **finest):
    slide = folder / "slide"
    slide.mkdir()
    options = finest if "syntax" in finest else {}
    for number, level in enumerate(levels):
        own = options if number else finest
        write_dicom(slide / f"{number}.dcm", level, downsample=2**number, **own)
    return slide


def dicom_with_an_empty_frame(folder, levels):
    return dicom(folder, levels, empty=[NUMBER])


def dicom_of_zeros(folder, levels):
    def zero(ds):
        if ds.TotalPixelMatrixColumns == levels[0].shape[1]:
            frame = 3 * T * T
            ds.PixelData = ds.PixelData[: NUMBER * frame] + bytes(frame) + ds.PixelData[(NUMBER + 1) * frame :]

    return dicom(folder, levels, change=zero, **UNCOMPRESSED)


LOSING = [
    tiff_without_bytes, tiff_without_bytes_of_zstd, tiff_of_zeros, tiff_with_a_block_of_zeros,
    planar_tiff_with_a_plane_of_zeros, zarr_without_a_chunk, zarr_2_without_a_chunk, zarr_of_columns_without_a_chunk,
    zarr_whose_shard_has_a_gap, dicom_with_an_empty_frame, dicom_of_zeros,
]  # fmt: skip


def masked(store):
    damaged = read_damaged(store)
    return set() if damaged is None else set(map(tuple, np.argwhere(damaged[0]).tolist()))


@pytest.mark.parametrize("num_levels", [1, 2])
@pytest.mark.parametrize("losing", LOSING)
def test_lost_data_are_refused_or_masked_where_a_level_shows_more_and_where_none_can_tell(tmp_path, losing, num_levels):
    path = losing(tmp_path, halved(pixels(), num_levels - 1))
    why = "where another level shows something else: 1" if num_levels > 1 else "where no other level shows .*: 1"
    refusal = rf"1 of its 20 tiles at level 0 has no data .*the first in row 1, column 2 \({why}\).*damaged = \"mask\""
    with pytest.raises(CorruptTileError, match=refusal):
        ingest(path, tmp_path / "refused")

    report = ingest(path, tmp_path / "p", damaged="mask", decode_chunk_px=T)

    assert (masked(report.store), report.damaged) == ({AT}, (1, 20))
    assert all(level.rebuilt == () for level in report.levels)
    assert StoreReader(report.store).attributes.ingest["damaged"]["absent"][0] == 1
    verify_store(report.store, source=path, sample_chunks=100)


@pytest.mark.parametrize("losing", [tiff_without_bytes, tiff_without_bytes_of_zstd, dicom_with_an_empty_frame])
@pytest.mark.parametrize("glass", [255, 232, 205])
def test_glass_that_was_left_out_is_no_damage_whatever_grey_it_has_on_the_reduced_level(tmp_path, losing, glass):
    path = losing(tmp_path, halved(pixels(glass=glass), 1))

    plain, searched = (ingest(path, tmp_path / how, damaged=how) for how in ("refuse", "mask"))

    assert (plain.damaged, searched.damaged) == (None, (0, 19))
    assert masked(searched.store) == set()


@pytest.mark.parametrize("losing", [tiff_of_zeros, zarr_without_a_chunk, dicom_of_zeros])
def test_black_that_every_level_shows_is_no_damage(tmp_path, losing):
    path = losing(tmp_path, halved(pixels(glass=0), 1))

    assert ingest(path, tmp_path / "p", damaged="mask").damaged[0] == 0


def test_black_in_place_of_glass_is_damage(tmp_path):
    path = zarr_without_a_chunk(tmp_path, halved(pixels(glass=240), 1))

    with pytest.raises(CorruptTileError, match="another level shows something else: 1"):
        ingest(path, tmp_path / "p")


def test_what_a_format_defines_as_background_needs_no_other_level(tmp_path):
    sparse = write_dicom(tmp_path / "a.dcm", pixels(), sparse=[n for n in range(20) if n != NUMBER])
    white = create(tmp_path / "a.zarr")
    made = pixels(glass=255)
    write_image(white, [made], mpp=0.5)
    del white["0"]
    chunks = {"chunks": (3, T, T), "fill_value": 255, "dimension_names": ["c", "y", "x"]}
    array = white.create_array("0", shape=(3, *made.shape[:2]), dtype="u1", **chunks)
    array[...] = np.moveaxis(made, -1, 0)

    reports = [ingest(path, tmp_path / path.suffix, damaged="mask") for path in (sparse, tmp_path / "a.zarr")]

    assert [report.damaged for report in reports] == [(0, 19)] * 2


def test_a_frame_that_is_left_out_where_the_reduced_level_shows_tissue_is_damage_for_all_that(tmp_path):
    path = dicom(tmp_path, halved(pixels(), 1), sparse=[n for n in range(20) if n != NUMBER])

    with pytest.raises(CorruptTileError, match="another level shows something else: 1"):
        ingest(path, tmp_path / "p")


def test_a_reduced_tile_without_bytes_is_made_from_the_level_before_if_that_shows_more(tmp_path):
    path = empty(write_pyramid(tmp_path / "a.tiff", halved(pixels(), 1), tile_px=T), page=1, tiles=[2])

    report = ingest(path, tmp_path / "p", damaged="mask")

    assert (report.levels[1].rebuilt, report.damaged) == (((0, 2),), (0, 20))
    with pytest.raises(CorruptTileError, match="of its 6 tiles at level 1 has no data"):
        ingest(path, tmp_path / "refused")


@pytest.mark.parametrize("damaged", ["refuse", "mask"])
@pytest.mark.parametrize("kept", [0, 1])
@pytest.mark.parametrize("compression", ["jpeg", "zstd"])
def test_a_file_of_which_next_to_nothing_was_written_is_unreadable(tmp_path, damaged, kept, compression):
    levels = halved(pixels(), 1)
    path = write_pyramid(tmp_path / "a.tiff", levels, tile_px=T, compression=compression)
    empty(path, tiles=range(kept, 20))
    empty(path, page=1, tiles=range(kept, 6))

    with pytest.raises(UnreadableError, match=rf"{20 - kept} of its 20 tiles at level 0 have no data .*no slide"):
        ingest(path, tmp_path / "p", damaged=damaged)


def test_a_zarr_without_any_chunk_is_unreadable(tmp_path):
    path = write_ome_zarr(tmp_path / "a.zarr", [np.zeros((4 * T, 5 * T, 3), np.uint8)], mpp=0.5)

    with pytest.raises(UnreadableError, match="20 of its 20 tiles at level 0 have no data"):
        ingest(path, tmp_path / "p")


def test_masked_absent_data_are_no_tissue(tmp_path):
    store = ingest(tiff_without_bytes(tmp_path, halved(pixels(), 1)), tmp_path / "p", damaged="mask").store

    tissue_yx, mpp = read_tissue(store)

    side = 0.5 * T / mpp
    rows, columns = (slice(int(at * side) + 1, int((at + 1) * side)) for at in AT)
    assert tissue_yx.any()
    assert not tissue_yx[rows, columns].any()
