"""A slide with damaged tiles is refused; or, on request, every damaged tile is found, masked and counted."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import tifffile

from pipeline.box import Box
from pipeline.errors import CorruptTileError, DamagedStoreError
from pipeline.ingest.ingest import IngestRequest, ingest_slide
from pipeline.ingest.source_comparison import verify_store
from pipeline.project import Project
from pipeline.settings.config import IngestConfig
from pipeline.slides.registry import open_slide
from pipeline.store.layers.damaged import damaged_cells, read_damaged
from pipeline.store.layers.labels import read_label, read_tissue
from pipeline.store.reading.reader import StoreReader
from tests.pipeline.damage import KINDS, damage_tiles, move_finest_to_the_end
from tests.pipeline.ingest.chaos import run
from tests.pipeline.ingest.store_bytes import tree
from tests.pipeline.make import halved, ingest, overwrite_tile, sample_image, write_jpeg_pyramid, write_pyramid
from tests.pipeline.slides.make_dicom import write_dicom
from tests.pipeline.slides.make_ome_zarr import write_ome_zarr
from tests.pipeline.slides.test_failing_disks import break_disk
from training.foundation.errors import UnreadableError

WIDTH, HEIGHT, TILE_PX = 1088, 704, 64
COLUMNS, ROWS = 17, 11
EVERY = 10**6
"""More chunks than exist, so that `verify` checks all."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Undamaged slide of 17 × 11 tiles, then 9 × 6, then 5 × 3."""
    path = tmp_path_factory.mktemp("whole") / "whole.tiff"
    return write_jpeg_pyramid(path, halved(sample_image(WIDTH, HEIGHT), 2), tile_px=TILE_PX)


@pytest.fixture
def pyramid(whole, tmp_path):
    return shutil.copy(whole, tmp_path / "a.tiff")


def some_tiles(share):
    return np.random.default_rng(4).choice(COLUMNS * ROWS, round(share * COLUMNS * ROWS), replace=False).tolist()


def damaged_in(store):
    damaged = read_damaged(store)
    return set() if damaged is None else set(map(tuple, np.argwhere(damaged[0]).tolist()))


def assert_only_these_are_white(store, source, damaged):
    """Assert that damaged tiles are white unless they were black glass, and all others the scanner's pixels."""
    reader = StoreReader(store)
    with open_slide(source) as slide:
        for row in range(ROWS):
            for column in range(COLUMNS):
                box = Box(column * TILE_PX, row * TILE_PX, TILE_PX, TILE_PX)
                pixels = reader.read_region(0, box)
                if (row, column) in damaged:
                    assert (pixels == 255).all()
                else:
                    np.testing.assert_array_equal(pixels, slide.read_region(0, box))


@pytest.mark.parametrize("kind", ["zeros", "random"])
def test_a_damaged_slide_is_refused_and_whoever_reads_why_learns_how_to_keep_the_rest(tmp_path, pyramid, kind):
    damage_tiles(pyramid, [0, 40], kind)

    with pytest.raises(CorruptTileError, match=r'with `damaged = "mask"` in the \[ingest\] section of gemslide\.toml'):
        ingest(pyramid, tmp_path / "p")

    assert not list((tmp_path / "p").glob("slides/*"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("share", [0.01, 0.1, 0.9])
def test_every_overwritten_tile_is_found_masked_and_counted_and_no_other(tmp_path, whole, pyramid, share, kind):
    overwritten = damage_tiles(pyramid, some_tiles(share), kind)

    report = ingest(pyramid, tmp_path / "p", damaged="mask")

    assert damaged_in(report.store) == overwritten
    assert report.damaged == (len(overwritten), COLUMNS * ROWS)
    assert StoreReader(report.store).attributes.damaged_tiles == len(overwritten)
    assert_only_these_are_white(report.store, whole, overwritten)
    tissue_yx, mpp = read_tissue(report.store)
    lost_yx = damaged_cells(*read_damaged(report.store), tissue_yx.shape, mpp / 0.5)
    assert tissue_yx[~lost_yx].any()
    assert not tissue_yx[lost_yx].any()
    assert "pixels equal the source's" in verify_store(report.store, source=pyramid, sample_chunks=EVERY)


def test_a_slide_that_is_whole_is_the_same_with_and_without_the_search_and_says_that_there_was_one(tmp_path, pyramid):
    plain, searched = (ingest(pyramid, tmp_path / how, damaged=how) for how in ("refuse", "mask"))

    same, other = ({n: b for n, b in tree(r.store).items() if n != "zarr.json"} for r in (plain, searched))
    assert same == other
    assert (plain.damaged, searched.damaged) == (None, (0, COLUMNS * ROWS))
    assert StoreReader(searched.store).attributes.ingest["damaged"]["tiles"] == 0


def test_more_than_nine_tenths_damaged_are_refused_whatever_is_asked_for(tmp_path, pyramid):
    damage_tiles(pyramid, some_tiles(0.91), "zeros")

    with pytest.raises(CorruptTileError, match=r"170 of its 187 tiles at level 0 are damaged .*with more than 90%"):
        ingest(pyramid, tmp_path / "p", damaged="mask")

    assert not list((tmp_path / "p").glob("slides/*"))


@pytest.mark.parametrize("left", [0.2, 0.95])
def test_of_a_slide_cut_short_the_tiles_behind_its_end_are_masked(tmp_path, whole, pyramid, left):
    start = move_finest_to_the_end(pyramid)
    with tifffile.TiffFile(pyramid) as tiff:
        ends = np.add(tiff.pages[0].dataoffsets, tiff.pages[0].databytecounts)
    end = int(start + left * (pyramid.stat().st_size - start))
    with pyramid.open("r+b") as stream:
        stream.truncate(end)

    report = ingest(pyramid, tmp_path / "p", damaged="mask")

    lost = {divmod(int(tile), COLUMNS) for tile in np.flatnonzero(ends > end)}
    assert damaged_in(report.store) == lost
    assert_only_these_are_white(report.store, whole, lost)


def test_a_slide_whose_tables_are_lost_is_unreadable_whatever_is_asked_for(tmp_path, pyramid):
    with tifffile.TiffFile(pyramid) as tiff:
        second = tiff.pages[1].offset
    pyramid.write_bytes(pyramid.read_bytes()[: second - 1])

    with pytest.raises(UnreadableError, match="cut short"):
        ingest(pyramid, tmp_path / "p", damaged="mask")


@pytest.mark.parametrize("pass_through", [True, False])
@pytest.mark.parametrize("kind", ["zeros", "random"])
def test_a_damaged_tile_of_a_reduced_level_is_made_from_the_level_before_and_is_no_damage(
    tmp_path, whole, pyramid, kind, pass_through
):
    damage_tiles(pyramid, [12, 30], kind, page=1)

    report = ingest(pyramid, tmp_path / "p", damaged="mask", pass_through=pass_through)

    assert report.levels[1].rebuilt == ((1, 3), (3, 3))
    assert read_damaged(report.store) is None
    box = Box(3 * TILE_PX, TILE_PX, TILE_PX, TILE_PX)
    with open_slide(whole) as slide:
        difference = StoreReader(report.store).read_region(1, box).astype(int) - slide.read_region(1, box)
    assert np.abs(difference.mean((0, 1))).max() < 3
    verify_store(report.store, source=pyramid, sample_chunks=EVERY)


def test_a_reduced_tile_above_damage_that_is_whole_stays_the_scanner_s(tmp_path, whole, pyramid):
    """Zoomed out, more is visible than is left at level 0."""
    damage_tiles(pyramid, range(8 * COLUMNS), "zeros")

    report = ingest(pyramid, tmp_path / "p", damaged="mask")

    assert all(level.rebuilt == () for level in report.levels)
    with open_slide(whole) as slide:
        box = Box(0, 0, WIDTH // 2, HEIGHT // 2)
        np.testing.assert_array_equal(StoreReader(report.store).read_region(1, box), slide.read_region(1, box))


def test_a_level_that_is_built_is_white_where_the_finest_is(tmp_path):
    path = write_jpeg_pyramid(tmp_path / "a.tiff", [sample_image(WIDTH, HEIGHT)], tile_px=TILE_PX)
    overwritten = damage_tiles(path, some_tiles(0.1), "random")

    report = ingest(path, tmp_path / "p", damaged="mask", smallest_level_px=300)

    assert damaged_in(report.store) == overwritten
    row, column = min(overwritten)
    half = TILE_PX // 2
    assert (StoreReader(report.store).read_region(1, Box(column * half, row * half, half, half)) == 255).all()
    verify_store(report.store, source=path, sample_chunks=EVERY)


def deflate_tiff(folder):
    path = write_pyramid(folder / "a.tiff", [sample_image(300, 200)], tile_px=64, compression="deflate")
    overwrite_tile(path, 7, b"\x55" * 64, at=100)
    return path, (1, 2)


def dicom(folder):
    path = write_dicom(folder / "a.dcm", sample_image(300, 200))
    content = path.read_bytes()
    seventh = [at for at in range(len(content) - 4) if content[at : at + 4] == b"\xff\xd8\xff\xe0"][7]
    path.write_bytes(content[: seventh + 400] + bytes(300) + content[seventh + 700 :])
    return path, (1, 2)


def ome_zarr(folder):
    path = write_ome_zarr(folder / "a.zarr", [sample_image(300, 200)], version="0.4", chunk_px=64)
    (chunk,) = [p for p in path.rglob("*") if p.is_file() and str(p).endswith(("0/0/1/2", "0/0.1.2"))]
    chunk.write_bytes(b"junk" * 30)
    return path, (1, 2)


@pytest.mark.parametrize("damaged_slide", [deflate_tiff, dicom, ome_zarr])
def test_what_is_decoded_and_what_comes_from_other_readers_is_searched_alike(tmp_path, damaged_slide):
    path, damaged = damaged_slide(tmp_path)
    with pytest.raises(CorruptTileError, match="Or ingest what is left of it"):
        ingest(path, tmp_path / "refused", mpp=0.5, gate_tiles=1000)

    report = ingest(path, tmp_path / "p", mpp=0.5, damaged="mask", decode_chunk_px=64)

    assert damaged_in(report.store) == {damaged}
    assert (StoreReader(report.store).read_region(0, Box(128, 64, 64, 64)) == 255).all()
    verify_store(report.store, source=path, sample_chunks=EVERY)


def test_a_disk_that_fails_is_no_damage_of_the_slide(tmp_path, pyramid, monkeypatch):
    from pipeline.ingest.damage.absent import LevelAbsent
    from pipeline.ingest.damage.scan import scan_for_damage

    with open_slide(pyramid) as slide:
        break_disk(monkeypatch)

        with pytest.raises(UnreadableError, match="The disk or the network failed"):
            scan_for_damage(slide, IngestConfig(), [LevelAbsent(1)] * len(slide.info.levels))


def test_the_label_is_one_that_every_program_reads_and_no_finer_cell_is_lost_in_a_coarser_one(tmp_path, pyramid):
    overwritten = damage_tiles(pyramid, [0, 100], "zeros")
    store = ingest(pyramid, tmp_path / "p", damaged="mask").store

    sizes = [read_label(store, "damaged", str(number)) for number in range(3)]

    assert [mask.shape for mask in sizes] == [(11, 17), (6, 9), (3, 5)]
    assert all({(row >> n, col >> n) for row, col in overwritten} == set(map(tuple, np.argwhere(mask).tolist()))
               for n, mask in enumerate(sizes))  # fmt: skip


def test_a_missing_mask_is_made_again_without_the_damage(tmp_path, pyramid):
    damage_tiles(pyramid, some_tiles(0.3), "zeros")
    config = IngestConfig(shard_px=512, damaged="mask")
    request, project = IngestRequest(pyramid, "S-1"), Project(tmp_path / "p")
    store = ingest_slide(request, project, config).store
    before = tree(store)
    shutil.rmtree(store / "0/labels/tissue")

    again = ingest_slide(request, project, config)

    assert (again.skipped, again.mask_made, again.damaged) == (True, True, (56, COLUMNS * ROWS))
    assert tree(store) == before


def test_a_store_that_lost_its_label_is_damaged_and_not_without_damage(tmp_path, pyramid):
    damage_tiles(pyramid, [7], "zeros")
    store = ingest(pyramid, tmp_path / "p", damaged="mask").store
    shutil.rmtree(store / "0/labels/damaged")

    with pytest.raises(UnreadableError, match="is missing, but 1 tile of the slide is damaged"):
        read_damaged(store)
    with pytest.raises(DamagedStoreError, match="damaged"):
        verify_store(store)


def test_ingest_and_info_say_how_many_tiles_are_damaged(tmp_path, pyramid, gemslide):
    damage_tiles(pyramid, [7, 8, 9], "random")
    project = tmp_path / "p"
    project.mkdir()
    (project / "gemslide.toml").write_text('[ingest]\ndamaged = "mask"\n')

    done = gemslide("ingest", pyramid, "--project", project)
    facts = gemslide("info", "a", "--project", project)

    assert "3 of 187 tiles are damaged, and masked" in done.out + done.err
    assert "3 of 187 tiles, masked" in facts.out
    (record,) = project.glob("runs/*.json")
    assert json.loads(record.read_text())["damaged_tiles"] == {"a": 3}


def test_a_damaged_slide_killed_during_ingest_goes_on_to_the_same_bytes(tmp_path):
    tally = run(tmp_path, times=2, seed=5, damaged=True)

    assert tally.killed == 2


@pytest.mark.data
@pytest.mark.parametrize("kind", KINDS)
def test_a_tenth_of_a_slide_of_real_tissue_overwritten_is_found_and_nothing_else(real_slides, tmp_path, kind):
    path = shutil.copy(real_slides / "crc-mosaic/test_10.tiff", tmp_path / "a.tiff")
    tiles = np.random.default_rng(1).choice(26 * 19, 49, replace=False).tolist()
    overwritten = damage_tiles(path, tiles, kind)

    damaged = damaged_in(ingest(path, tmp_path / "p", damaged="mask", gate_tiles=4).store)

    assert damaged <= overwritten
    with open_slide(real_slides / "crc-mosaic/test_10.tiff") as before, open_slide(path) as after:
        for row, column in overwritten - damaged:  # glass in place of identical glass
            box = Box(column * 224, row * 224, 224, 224)
            np.testing.assert_array_equal(after.read_region(0, box), before.read_region(0, box))
    assert damaged == overwritten or kind == "another tile"
