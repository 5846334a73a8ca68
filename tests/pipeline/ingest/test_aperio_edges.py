"""Aperio scanners leave edge tiles of reduced levels empty or scrambled (right and bottom): these are rebuilt."""

from __future__ import annotations

import numpy as np
import pytest
import tifffile

from pipeline.box import Box
from pipeline.errors import CorruptTileError
from pipeline.ingest.shards import halve
from pipeline.ingest.source_comparison import verify_store
from pipeline.store.reading.reader import StoreReader
from tests.pipeline.make import APERIO, halved, ingest, overwrite_tag, overwrite_tile, sample_image, write_jpeg_pyramid
from tests.pipeline.make_any import APERIO_JPEG_2000, Pyramid, write_any

OFFSET, BYTE_COUNT = 324, 325
WIDTH, HEIGHT, TILE_PX = 550, 430, 64
COLUMNS, ROWS = 5, 4
"""Number of tiles of level 1, which has 275 × 215 px."""
RIGHT, BOTTOM, CORNER = (1, COLUMNS - 1), (ROWS - 1, 2), (ROWS - 1, COLUMNS - 1)


def tissue(width=WIDTH, height=HEIGHT):
    """Round cells on a pink background that varies over the slide, with a little noise."""
    y, x = np.mgrid[:height, :width]
    cells = np.sin(x / 9) * np.sin(y / 11) > 0.3
    ground = np.stack([180 + 60 * x / width, 90 + 100 * y / height, 140 + 60 * np.sin((x + 2 * y) / 150)], -1)
    pixels = np.where(cells[..., None], ground * 0.6, ground)
    return np.clip(pixels + np.random.default_rng(0).normal(0, 4, pixels.shape), 0, 255).astype(np.uint8)


def write_aperio(path, levels, **options):
    height, width = levels[0].shape[:2]
    options = {"photometric": "rgb", "tile_px": TILE_PX, **options}
    return write_jpeg_pyramid(path, levels, description=APERIO.format(width=width, height=height), **options)


def index_of(at):
    return at[0] * COLUMNS + at[1]


def leave_out(path, at):
    for tag in (OFFSET, BYTE_COUNT):
        overwrite_tag(path, tag, 0, page=1, index=index_of(at))


def scramble(path, at):
    """Make the tile show another part of the slide."""
    with tifffile.TiffFile(path) as tiff:
        page = tiff.pages[1]
        other = index_of((0, 1))
        values = page.dataoffsets[other], page.databytecounts[other]
    for tag, value in zip((OFFSET, BYTE_COUNT), values, strict=True):
        overwrite_tag(path, tag, value, page=1, index=index_of(at))


def fill_with_junk(path, at):
    overwrite_tile(path, index_of(at), b"junk" * 40, page=1)


def empty_the_bytes(path, at):
    """Replace the end of the tile by zeros."""
    overwrite_tile(path, index_of(at), bytes(30), page=1, at=-30)


@pytest.mark.parametrize("damage", [leave_out, scramble, fill_with_junk])
def test_a_damaged_edge_tile_is_rebuilt_on_the_decode_route_too(tmp_path, damage):
    levels = [tissue(), halve(tissue())]
    source = write_aperio(tmp_path / "a.svs", levels)
    damage(source, RIGHT)

    report = ingest(source, tmp_path, pass_through=False)

    assert (report.levels[1].route, report.levels[1].rebuilt) == ("decode", (RIGHT,))
    pixels = StoreReader(report.store).read_region(1, Box(0, 0, levels[1].shape[1], levels[1].shape[0]))
    assert np.abs(pixels.astype(int) - levels[1])[64:128, 256:].mean() < 8


def test_damage_on_two_levels_is_rebuilt_from_what_was_rebuilt(tmp_path):
    levels = [tissue(), halve(tissue()), halve(halve(tissue()))]
    source = write_aperio(tmp_path / "a.svs", levels)
    leave_out(source, RIGHT)
    for tag in (OFFSET, BYTE_COUNT):
        overwrite_tag(source, tag, 0, page=2, index=2)  # the omitted tile is under it

    report = ingest(source, tmp_path)

    assert [level.rebuilt for level in report.levels[:3]] == [(), (RIGHT,), ((0, 2),)]
    pixels = StoreReader(report.store).read_region(2, Box(0, 0, levels[2].shape[1], levels[2].shape[0]))
    assert np.abs(pixels.astype(int) - levels[2])[:64, 128:].mean() < 8


@pytest.mark.parametrize("at", [RIGHT, BOTTOM, CORNER])
@pytest.mark.parametrize("damage", [leave_out, scramble, fill_with_junk, empty_the_bytes])
def test_a_damaged_edge_tile_is_built_from_its_parent_and_recorded(tmp_path, damage, at):
    levels = [tissue(), halve(tissue())]
    source = write_aperio(tmp_path / "a.svs", levels)
    damage(source, at)

    report = ingest(source, tmp_path)

    assert (report.levels[1].route, report.levels[1].rebuilt) == ("pass-through", (at,))
    assert report.levels[0].rebuilt == ()
    reader = StoreReader(report.store)
    pixels = reader.read_region(1, Box(0, 0, levels[1].shape[1], levels[1].shape[0]))
    error = np.abs(pixels.astype(int) - levels[1])
    y, x = at[0] * TILE_PX, at[1] * TILE_PX
    assert error[y : y + TILE_PX, x : x + TILE_PX].mean() < 3
    assert error.mean() < 3
    verify_store(report.store, source=source, every_chunk=True)


def test_a_level_stays_a_pass_through_level_when_several_tiles_are_damaged(tmp_path):
    source = write_aperio(tmp_path / "a.svs", [tissue(), halve(tissue())])
    for damage, at in ((leave_out, RIGHT), (scramble, BOTTOM), (fill_with_junk, CORNER)):
        damage(source, at)

    report = ingest(source, tmp_path)

    assert report.levels[1].route == "pass-through"
    assert report.levels[1].rebuilt == tuple(sorted((RIGHT, BOTTOM, CORNER)))


def test_a_tile_of_jpeg_2000_that_is_left_out_is_built_in_jpeg_2000(tmp_path):
    pyramid = Pyramid((700, 500), (2,), 240, APERIO_JPEG_2000, "<", bigtiff=False, left_out=0, seed=1)
    source = write_any(tmp_path / "a.svs", pyramid)
    for tag in (OFFSET, BYTE_COUNT):
        overwrite_tag(source, tag, 0, page=1, index=3)

    report = ingest(source, tmp_path)

    assert (report.levels[1].codec, report.levels[1].rebuilt) == ("imagecodecs_jpeg2k", ((1, 1),))
    reader = StoreReader(report.store)
    expected = halve(pyramid.levels()[0])[240:, 240:]
    np.testing.assert_allclose(reader.read_region(1, Box(240, 240, 110, 10)), expected, atol=1)


def test_a_tile_left_out_where_the_parent_is_empty_too_stays_white(tmp_path):
    pixels = tissue()
    pixels[384:, 512:] = 240
    source = write_aperio(tmp_path / "a.svs", [pixels, halve(pixels), halve(halve(pixels))])
    leave_out(source, CORNER)
    below = 6 * -(-WIDTH // TILE_PX) + 8  # the only tile of level 0 under the corner
    for tag in (OFFSET, BYTE_COUNT):
        overwrite_tag(source, tag, 0, page=0, index=below)

    report = ingest(source, tmp_path)

    assert report.levels[1].rebuilt == ()
    assert (StoreReader(report.store).read_region(1, Box(256, 192, 19, 23)) == 255).all()


def noise(width, height):
    return np.random.default_rng(1).integers(0, 256, (height, width, 3), dtype=np.uint8)


def sharp(width, height):
    """Black and white fields whose borders coincide with those of the tiles."""
    y, x = np.mgrid[:height, :width]
    return np.repeat((255 * ((x // 128 + y // 128) % 2)).astype(np.uint8)[..., None], 3, -1)


def white_border(width, height):
    pixels = tissue(width, height)
    pixels[:, 500:], pixels[400:] = 255, 255
    return pixels


@pytest.mark.parametrize("make", [tissue, sample_image, noise, sharp, white_border])
@pytest.mark.parametrize("size_wh", [(WIDTH, HEIGHT), (514, 386), (518, 390)])
def test_an_honest_slide_has_nothing_rebuilt(tmp_path, make, size_wh):
    """Also with edge tiles of one to three pixels."""
    pixels = make(*size_wh)
    for number, levels in enumerate(([pixels, halve(pixels)], halved(pixels, 2))):
        source = write_aperio(tmp_path / f"{number}.svs", levels)

        report = ingest(source, tmp_path, slide_id=f"S-{number}")

        assert [level.rebuilt for level in report.levels] == [()] * len(report.levels)
        assert report.levels[1].route == "pass-through"


@pytest.mark.parametrize("damage", [fill_with_junk, empty_the_bytes])
def test_damage_in_the_midst_of_a_level_stops_the_slide(tmp_path, damage):
    """Only edges are known to be wrong; anything else is a broken file."""
    source = write_aperio(tmp_path / "a.svs", [tissue(), halve(tissue())])
    damage(source, (1, 1))

    with pytest.raises(CorruptTileError, match="row 1, column 1"):
        ingest(source, tmp_path)


def test_damage_in_the_finest_level_stops_the_slide_at_its_edge_too(tmp_path):
    source = write_aperio(tmp_path / "a.svs", [tissue(), halve(tissue())])
    overwrite_tile(source, 8, b"junk" * 40)

    with pytest.raises(CorruptTileError, match="row 0, column 8"):
        ingest(source, tmp_path)


def test_slides_of_other_makers_are_not_repaired(tmp_path):
    source = write_jpeg_pyramid(tmp_path / "a.tiff", [tissue(), halve(tissue())], tile_px=TILE_PX)
    fill_with_junk(source, CORNER)

    with pytest.raises(CorruptTileError, match="row 3, column 4"):
        ingest(source, tmp_path)
