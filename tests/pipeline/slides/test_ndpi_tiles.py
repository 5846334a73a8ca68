"""Tiles put together from the restart intervals of NDPI files, and what ingest and verify compare them with."""

from __future__ import annotations

import dataclasses
import struct

import numpy as np
import pytest
import tifffile

from pipeline.box import Box
from pipeline.codecs.images import decode_jpeg
from pipeline.codecs.jpeg_segments import JpegError
from pipeline.codecs.restart.intervals import IntervalHeader, read_interval_header
from pipeline.errors import CorruptTileError
from pipeline.ingest.gate import PassThroughGate
from pipeline.ingest.source_comparison import verify_store
from pipeline.slides.common.slide import EncodedLevel, NotCopied, one_stream
from pipeline.slides.openslide.ndpi.intervals import Intervals
from pipeline.slides.openslide.ndpi.whole import NdpiLevel
from pipeline.slides.registry import open_slide
from pipeline.store.reading.reader import StoreReader
from tests.pipeline.make import halved, ingest, sample_image
from tests.pipeline.slides.make_ndpi import NDPI_MCU_STARTS, write_ndpi
from tests.pipeline.slides.make_vendor_slides import Made
from training.foundation.errors import UnreadableError

BEYOND_4_GIB = 2**32 + 4096
REACH_XY_PX = {0: (0, 0), 1: (1, 0), 2: (1, 1)}
"""By subsampling in Pillow's terms: 4:4:4, 4:2:2, 4:2:0."""


def made(folder, **options) -> Made:
    """Slide whose sides are no multiples of a tile, nor its height of an interval at level 1."""
    return write_ndpi(folder / "a.ndpi", halved(sample_image(1664, 1320), 1), **{"interval_mcus": 4, **options})


def off_borders(pixels: np.ndarray, tile_px: int, reach_xy_px: tuple[int, int]) -> np.ndarray:
    """The pixels that are further than `reach_xy_px` from a tile's border; the others are 0."""
    height, width = pixels.shape[:2]
    x, y = np.arange(width), np.arange(height)
    near_x, near_y = (
        (at % tile_px < reach) | (at % tile_px >= tile_px - reach) | (at >= end - reach)
        for at, end, reach in ((x, width, reach_xy_px[0]), (y, height, reach_xy_px[1]))
    )
    return np.where((near_x | near_y[:, None])[..., None], 0, pixels)


@pytest.mark.parametrize(
    ("subsampling", "interval_mcus", "begins_at"), [(0, 8, BEYOND_4_GIB), (1, 4, 12), (1, 2, 12), (2, 1, 12)]
)
def test_a_store_has_the_pixels_of_the_whole_jpeg_but_for_the_chroma_at_borders(
    tmp_path, subsampling, interval_mcus, begins_at
):
    source = made(tmp_path, subsampling=subsampling, interval_mcus=interval_mcus, begins_at=begins_at)

    report = ingest(source.path, tmp_path)

    reader = StoreReader(report.store)
    for level, whole in enumerate(source.levels):
        facts = reader.attributes.levels[level]
        assert (facts.route, facts.codec, facts.gate.equal) == ("pass-through", "imagecodecs_jpeg", True)
        assert reader.levels[level].chunk_px == 512
        height, width = whole.shape[:2]
        pixels = reader.read_region(level, Box(0, 0, width, height))
        mine, theirs = (off_borders(each, 512, REACH_XY_PX[subsampling]) for each in (pixels, whole))
        np.testing.assert_array_equal(mine, theirs)
        assert ("chroma" in (facts.gate.reason or "")) == (subsampling > 0)
        assert facts.gate.against.startswith("openslide") == (subsampling < 2)  # which cannot read the others
    assert verify_store(report.store, source=source.path).endswith("pixels equal the source's")


@pytest.mark.parametrize(("subsampling", "interval_mcus"), [(0, 208), (1, 104), (2, 104)])
def test_wide_intervals_are_cut_at_mcus_without_loss(tmp_path, subsampling, interval_mcus):
    """Of 1,664 px, so that tiles begin inside them, and one tile has parts of two."""
    source = write_ndpi(
        tmp_path / "a.ndpi", [sample_image(3328, 1100)], subsampling=subsampling, interval_mcus=interval_mcus
    )
    (whole,) = source.levels

    report = ingest(source.path, tmp_path)

    reader = StoreReader(report.store)
    facts = reader.attributes.levels[0]
    assert (facts.route, facts.gate.equal, reader.levels[0].chunk_px) == ("pass-through", True, 512)
    pixels = reader.read_region(0, Box(0, 0, 3328, 1100))
    mine, theirs = (off_borders(each, 512, REACH_XY_PX[subsampling]) for each in (pixels, whole))
    np.testing.assert_array_equal(mine, theirs)
    stored = sum(file.stat().st_size for file in (report.store / "0/0/c").rglob("*") if file.is_file())
    assert stored < 1.1 * source.path.stat().st_size  # the last tiles are largely padding
    corner = decode_jpeg(reader.chunk(0, 2, 6))
    assert (corner[1100 - 1024 :, 256 + 1 :] == 255).all()
    assert verify_store(report.store, source=source.path).endswith("pixels equal the source's")


def test_what_a_tile_has_beyond_the_image_is_white(tmp_path):
    with open_slide(made(tmp_path, subsampling=1, interval_mcus=2).path) as slide:
        level = slide.encoded_level(0)
        assert not isinstance(level, NotCopied)
        corner = decode_jpeg(one_stream(level, 2, 3))

    assert corner.shape == (512, 512, 3)
    assert (corner[1320 - 1024 :, 128:] == 255).all()
    # The first column's chroma is interpolated from the image's last.
    assert (corner[:, 1664 - 1536 + 1 :] == 255).all()
    assert (corner[: 1320 - 1024, : 1664 - 1536] < 250).mean() > 0.5


def test_streams_of_a_row_are_those_of_its_tiles_alone(tmp_path):
    with open_slide(made(tmp_path, subsampling=1).path) as slide:
        level = slide.encoded_level(0)
        assert not isinstance(level, NotCopied)
        for row in range(level.rows):
            together = [b"".join(stream) for stream in level.streams(row, range(level.columns))]
            assert together == [one_stream(level, row, column) for column in range(level.columns)]
        assert len({*together}) == level.columns
        assert int(level.byte_counts().sum()) < slide.files[0].stat().st_size


@pytest.mark.parametrize(
    ("name", "options", "reason"),
    [
        ("a.ndpi", {"without_tags": [NDPI_MCU_STARTS]}, "restart intervals (tag 65426) are not listed"),
        ("a.tif", {}, "its name does not end in .ndpi"),
    ],
)
def test_a_level_that_cannot_be_cut_is_decoded_and_says_why(tmp_path, name, options, reason):
    source = write_ndpi(tmp_path / name, [sample_image(1664, 600)], **options)

    (level, *_) = ingest(source.path, tmp_path).levels

    assert (level.route, level.gate.tiles) == ("decode", 0)
    assert reason in level.gate.reason


def damage(path, at_share: float, data: bytes) -> None:
    content = bytearray(path.read_bytes())
    at = int(len(content) * at_share)
    content[at : at + len(data)] = data
    path.write_bytes(content)


def test_a_damaged_marker_stops_the_slide_and_names_the_tile(tmp_path):
    source = made(tmp_path, subsampling=1)
    damage(source.path, 0.4, b"\xff\xd9" * 40)

    with pytest.raises(
        CorruptTileError, match=r"cannot be stored at x=\d+, y=\d+: of the restart interval in row \d+, column \d+"
    ):
        ingest(source.path, tmp_path)

    assert list(tmp_path.glob("slides/*")) == []


@pytest.mark.parametrize(("interval_mcus", "columns", "most"), [(4, 4, 2), (208, 4, 4)])
@pytest.mark.parametrize("damaging", [b"\xff\xd9" * 40, b"\xff\0" * 20])
def test_damage_inside_an_interval_is_masked_on_request_and_takes_no_other_tile(
    tmp_path, interval_mcus, columns, most, damaging
):
    source = write_ndpi(tmp_path / "a.ndpi", [sample_image(1664, 1320)], interval_mcus=interval_mcus)
    damage(source.path, 0.4, damaging)

    reader = StoreReader(ingest(source.path, tmp_path, damaged="mask").store)

    assert reader.attributes.levels[0].route == "pass-through"
    places = [divmod(i, columns) for i in range(3 * columns)]
    missing = [place for place in places if reader.chunk(0, *place) is None]
    assert 1 <= len(missing) <= most
    assert len({row for row, _ in missing}) == 1


# --- hostile lists of intervals ---------------------------------------------------------------------------------------


def rewrite_starts(path, starts: list[int]) -> None:
    """Replace the first starts in the list of the first level."""
    content = path.read_bytes()
    with tifffile.TiffFile(path) as tiff:
        at = tiff.pages.first.tags[NDPI_MCU_STARTS].valueoffset
    path.write_bytes(content[:at] + struct.pack(f"<{len(starts)}I", *starts) + content[at + 4 * len(starts) :])


@pytest.mark.parametrize(
    ("starts", "why"),
    [
        ([700, 600, 800], "not in order"),
        ([0, 600, 800], "not in order"),
        ([70_000, 70_100, 70_200], "not in order"),
    ],
)
def test_a_list_of_intervals_out_of_place_is_not_believed(tmp_path, starts, why):
    """OpenSlide looks for the markers itself then."""
    source = write_ndpi(tmp_path / "a.ndpi", [sample_image(1664, 600)])
    rewrite_starts(source.path, starts)

    with open_slide(source.path) as slide:
        level = slide.encoded_level(0)

    assert isinstance(level, NotCopied)
    assert why in level.reason


def test_intervals_that_begin_gigabytes_into_a_jpeg_are_never_read(tmp_path):
    source = write_ndpi(tmp_path / "a.ndpi", [sample_image(1664, 600)])
    rewrite_starts(source.path, [3 * 2**30])

    with pytest.raises(UnreadableError, match=r"a\.ndpi: .*its list of restart intervals \(tag 65426\) cannot be true"):
        open_slide(source.path)


# --- planted faults ---------------------------------------------------------------------------------------------------


def gate_of(slide, level: EncodedLevel):
    with PassThroughGate(slide, 12) as gate:
        return gate.check(0, level)


def swapped(stream: tuple) -> tuple:
    """Two rows of intervals in each other's place."""
    head, first, second, *rest = stream
    return head, second, first, *rest


def not_renumbered(stream: tuple) -> tuple:
    head, *bands = stream
    return head, *(bytes(band).replace(b"\xff\xd1", b"\xff\xd0") for band in bands)


@pytest.mark.parametrize("fault", [swapped, not_renumbered])
@pytest.mark.parametrize("subsampling", [0, 1])
def test_the_gate_notices_intervals_in_the_wrong_place(tmp_path, monkeypatch, fault, subsampling):
    right = NdpiLevel.streams
    monkeypatch.setattr(NdpiLevel, "streams", lambda self, *at: [fault(stream) for stream in right(self, *at)])
    with open_slide(made(tmp_path, subsampling=subsampling).path) as slide:
        assert isinstance(slide.encoded_level(0), NdpiLevel)
        verdict = gate_of(slide, slide.encoded_level(0))

    assert not verdict.equal


def test_the_gate_notices_other_intervals_though_the_file_s_list_agrees(tmp_path, monkeypatch):
    """OpenSlide finds the intervals itself."""
    initialised = NdpiLevel.__init__

    def moved(self, intervals, tile_px):
        around = {key: np.roll(getattr(intervals, key), 1, axis=0) for key in ("starts", "ends")}
        initialised(self, dataclasses.replace(intervals, **around), tile_px)

    monkeypatch.setattr(NdpiLevel, "__init__", moved)
    monkeypatch.setattr(Intervals, "_check_marks", lambda *_: None)
    with open_slide(made(tmp_path, subsampling=1).path) as slide:
        verdict = gate_of(slide, slide.encoded_level(0))

    assert "OpenSlide" in verdict.reason
    assert not verdict.equal


def test_the_gate_notices_other_tables(tmp_path, monkeypatch):
    right = IntervalHeader.head

    def with_another_step(self, *size):
        head = bytearray(right(self, *size))
        head[head.index(b"\xff\xdb") + 5] += 1
        return bytes(head)

    monkeypatch.setattr(IntervalHeader, "head", with_another_step)
    with open_slide(made(tmp_path, subsampling=1).path) as slide:
        verdict = gate_of(slide, slide.encoded_level(0))

    assert "OpenSlide" in verdict.reason
    assert not verdict.equal


def test_a_header_without_intervals_is_refused():
    with pytest.raises(JpegError):
        read_interval_header(b"\xff\xd8\xff\xda")
