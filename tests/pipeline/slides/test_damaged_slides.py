"""Files that are cut, damaged, absurd or not slides at all end in one clear error, never in wrong pixels."""

from __future__ import annotations

import os
import shutil

import numpy as np
import pytest
import tifffile

from pipeline.box import Box
from pipeline.errors import CorruptTileError
from pipeline.settings.config import TissueConfig
from pipeline.slides.registry import open_slide
from pipeline.store.reading.reader import StoreReader
from tests.pipeline.make import (
    halved,
    ingest,
    overwrite_tag,
    overwrite_tile,
    sample_image,
    tile_bytes,
    write_aperio_j2k,
    write_jpeg_pyramid,
    write_pyramid,
)
from training.foundation.errors import DecompressionBombError, GemslideError, UnreadableError

STRIP_OFFSETS, STRIP_BYTE_COUNTS, TILE_BYTE_COUNTS = 273, 279, 325
SCAN_TABLES_AT = 2 + 18 + 19 + 5
"""Offset in a tile of the scan header's first component and Huffman tables, after SOI, JFIF and frame header."""


@pytest.fixture
def pyramid(tmp_path):
    """Pyramid of 8 × 6 tiles of 64 px, then 4 × 3."""
    return write_jpeg_pyramid(tmp_path / "a.tiff", halved(sample_image(500, 370), 1), tile_px=64)


def refused(path, root):
    with pytest.raises(GemslideError) as caught:
        ingest(path, root, mpp=0.5)
    assert not [p for p in root.glob("slides/*") if not p.name.startswith(".")]
    assert list(root.glob("slides/.*")) == []
    return caught.value


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999])
def test_a_slide_cut_short_is_refused(tmp_path, pyramid, share):
    content = pyramid.read_bytes()
    pyramid.write_bytes(content[: int(len(content) * share)])

    assert refused(pyramid, tmp_path / "p").code in ("unreadable", "corrupt_tile")


@pytest.mark.data
@pytest.mark.parametrize("share", [0.1, 0.5, 0.97])
def test_a_real_slide_cut_short_is_refused(real_slides, tmp_path, share):
    content = (real_slides / "Dana-Farber-AIOS+pathml/tests/testdata/small_HE.svs").read_bytes()
    cut = tmp_path / "cut.svs"
    cut.write_bytes(content[: int(len(content) * share)])

    assert refused(cut, tmp_path / "p").code in ("unreadable", "corrupt_tile")


@pytest.mark.parametrize("share", [0.3, 0.5, 0.9])
def test_a_slide_whose_rest_is_zeros_as_a_broken_copy_leaves_it_is_refused(tmp_path, pyramid, share):
    """libjpeg silently fills the missing part of a tile with grey."""
    size = pyramid.stat().st_size
    with tifffile.TiffFile(pyramid) as tiff:
        page = tiff.pages[0]
        first, last = page.dataoffsets[0], page.dataoffsets[-1] + page.databytecounts[-1]
    start = int(first + (last - first) * share)
    with pyramid.open("r+b") as stream:
        stream.seek(start)
        stream.write(bytes(last - start))

    assert pyramid.stat().st_size == size
    assert refused(pyramid, tmp_path / "p").code == "corrupt_tile"


def test_the_last_bytes_of_a_tile_that_are_zeros_are_noticed_even_if_the_gate_does_not_sample_it(tmp_path, pyramid):
    overwrite_tile(pyramid, 9, bytes(40), at=-40)

    error = refused(pyramid, tmp_path / "p")

    assert error.code == "corrupt_tile"
    assert "row 1, column 1" in str(error)
    assert "have no end marker" in str(error)


def test_a_damaged_tile_that_the_gate_does_not_sample_is_a_corrupt_tile_for_whoever_reads_it(tmp_path, pyramid):
    """The gate compares 6 of 48 tiles here; in the rest only the markers are checked."""
    overwrite_tile(pyramid, 9, b"\x01\x33", at=SCAN_TABLES_AT)  # an undefined Huffman table

    report = ingest_with_few_samples(pyramid, tmp_path)

    reader = StoreReader(report.store)
    assert reader.read_region(0, Box(0, 0, 64, 64)).shape == (64, 64, 3)
    with pytest.raises(CorruptTileError, match="chunk in row 1, column 1"):
        reader.read_region(0, Box(64, 64, 64, 64))


def test_a_marker_inside_coded_data_is_noticed_in_tiles_that_the_gate_does_not_sample(tmp_path, pyramid):
    overwrite_tile(pyramid, 9, b"\xff\xc5" * 20, at=tile_bytes(pyramid, 9) // 2)

    with pytest.raises(CorruptTileError, match="row 1, column 1 of the 500×370 px level cannot be stored: no whole"):
        ingest_with_few_samples(pyramid, tmp_path)


def ingest_with_few_samples(path, root):
    # The tissue mask is made from a coarser level, so that the damaged tile is not read on the way.
    return ingest(path, root, gate_tiles=4, tissue=TissueConfig(mpp=2.0))


@pytest.mark.parametrize("compression", ["lzw", "deflate", "zstd"])
def test_a_tile_cut_short_on_a_level_that_is_decoded_is_refused(tmp_path, compression):
    path = write_pyramid(tmp_path / "a.tiff", [sample_image(500, 370)], tile_px=64, compression=compression)
    overwrite_tag(path, TILE_BYTE_COUNTS, tile_bytes(path, 9) // 2, index=9)

    error = refused(path, tmp_path / "p")

    assert error.code == "corrupt_tile"
    assert "row 1, column 1 of the 500×370 px level" in str(error)


def test_a_jpeg_2000_tile_that_ends_in_zeros_is_refused(tmp_path):
    """OpenJPEG silently fills in the missing part."""
    path = write_aperio_j2k(tmp_path / "a.svs", sample_image(512, 300), compression=33005)
    overwrite_tile(path, 1, bytes(500), at=-500)

    error = refused(path, tmp_path / "p")

    assert error.code == "corrupt_tile"
    assert "end in zeros, without an end marker" in str(error)


def test_a_damaged_tile_with_a_checksum_is_refused(tmp_path):
    """Deflate has a checksum; LZW, zstd as written by libtiff, and uncompressed tiles have none."""
    path = write_pyramid(tmp_path / "a.tiff", [sample_image(500, 370)], tile_px=64, compression="deflate")
    overwrite_tile(path, 9, b"\x55" * 64, at=tile_bytes(path, 9) // 2)

    assert refused(path, tmp_path / "p").code == "corrupt_tile"


@pytest.mark.parametrize("compression", ["lzw", None])
@pytest.mark.parametrize("tag", [STRIP_OFFSETS, STRIP_BYTE_COUNTS])
def test_a_strip_that_is_missing_is_refused_and_not_shown_black(tmp_path, compression, tag):
    path = write_pyramid(
        tmp_path / "a.tiff", [sample_image(300, 200)], tile_px=None, compression=compression, rowsperstrip=16
    )
    overwrite_tag(path, tag, 0, index=5)

    assert refused(path, tmp_path / "p").code in ("corrupt_tile", "unreadable")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n", "is a Git LFS pointer of 64 bytes"),
        (b"%PDF-1.4 not a slide", "neither OpenSlide nor tifffile knows this format"),
        (b"II*\0\x08\0\0\0", "tifffile cannot read its structure|no image in it"),
        (b"II*\0" + b"\xff" * 100, "tifffile cannot read its structure|no image in it"),
        (b"MM\0+" + b"\0" * 100, "tifffile cannot read its structure|no image in it"),
    ],
)
def test_what_is_no_slide_is_unreadable(tmp_path, content, message):
    path = tmp_path / "a.svs"
    path.write_bytes(content)

    with pytest.raises(UnreadableError, match=message):
        open_slide(path)


def test_a_folder_a_missing_file_and_a_pipe_are_unreadable_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe.tiff")

    for name, message in (
        ("", "is a folder without"),
        ("none.tiff", "no such file"),
        ("pipe.tiff", "neither a file nor"),
    ):
        with pytest.raises(UnreadableError, match=message):
            open_slide(tmp_path / name)


@pytest.mark.parametrize(
    ("width", "height", "tile_px"),
    [(10**6, 10**6, 256), (2**31 - 1, 2**31 - 1, 256), (60_000, 60_000, 16_384), (60_000, 60_000, None)],
)
def test_a_small_file_that_claims_a_huge_image_claims_too_much(tmp_path, width, height, tile_px):
    path = write_pyramid(
        tmp_path / "a.tiff", [sample_image(500, 370)], compression="lzw", tile_px=256 if tile_px else None
    )
    for code, value in ((256, width), (257, height)):
        rewrite_as_long(path, code, value)
    if tile_px and tile_px != 256:
        for code in (322, 323):
            rewrite_as_long(path, code, tile_px)

    error = refused(path, tmp_path / "p")

    assert isinstance(error, DecompressionBombError)


def rewrite_as_long(path, code, value):
    with tifffile.TiffFile(path, mode="r+") as tiff:
        tiff.pages[0].tags[code].overwrite(value, dtype=4)


def test_a_size_that_is_a_list_of_numbers_is_unreadable_and_takes_no_memory(tmp_path, pyramid):
    """Multiplying such a list by a damaged width would repeat the list millions of times."""
    with tifffile.TiffFile(pyramid, mode="r+") as tiff:
        tiff.pages[0].tags[257].overwrite((370, 370, 370, 370), dtype=4)

    with pytest.raises(UnreadableError, match=r"several numbers|cannot read its structure"):
        open_slide(pyramid)


@pytest.mark.parametrize("kind", [1, 2, 7, 11])
@pytest.mark.parametrize("tag", [324, 325])
def test_tiles_whose_places_are_no_numbers_are_refused(tmp_path, pyramid, tag, kind):
    """BYTE, ASCII, UNDEFINED and FLOAT in place of LONG: tifffile returns bytes, text and fractions."""
    with tifffile.TiffFile(pyramid) as tiff:
        at = tiff.pages[0].tags[tag].offset + 2
    with pyramid.open("r+b") as stream:
        stream.seek(at)
        stream.write(kind.to_bytes(2, "little"))

    assert refused(pyramid, tmp_path / "p").code in ("unreadable", "corrupt_tile")


def test_a_large_file_in_strips_is_refused_with_what_to_do(tmp_path):
    path = tmp_path / "a.tiff"
    tifffile.imwrite(path, shape=(10_000, 10_000, 3), dtype=np.uint8, photometric="rgb")

    with pytest.raises(DecompressionBombError, match="Convert it to a tiled TIFF"):
        open_slide(path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_without_permission_is_unreadable(tmp_path, pyramid):
    pyramid.chmod(0)

    with pytest.raises(UnreadableError, match="Permission denied"):
        open_slide(pyramid)


def test_random_damage_ends_in_pixels_or_in_one_clear_error(tmp_path, pyramid):
    """Header bytes are changed at random: opening and reading may raise nothing but GemslideError."""
    lossless = write_pyramid(tmp_path / "b.tiff", [sample_image(130, 90)], tile_px=64, compression="lzw")
    random = np.random.default_rng(7)
    for source in (pyramid, lossless):
        content = source.read_bytes()
        with tifffile.TiffFile(source) as tiff:
            ifd = tiff.pages[0].offset
        for _ in range(60):
            damaged = bytearray(content)
            for at in random.integers(ifd, min(len(content), ifd + 250), 3):
                damaged[at] = random.integers(256)
            target = tmp_path / "damaged.tiff"
            target.write_bytes(damaged)
            try:
                with open_slide(target) as slide:
                    slide.read_region(0, Box(0, 0, 200, 200))
            except GemslideError:
                pass


@pytest.mark.parametrize("tag", [322, 323])
def test_tiles_without_a_size_are_refused(tmp_path, pyramid, tag):
    overwrite_tag(pyramid, tag, 0)

    assert refused(pyramid, tmp_path / "p").code in ("unreadable", "corrupt_tile")


def test_a_file_that_lost_the_pages_behind_its_finest_level_is_refused(tmp_path, pyramid):
    """tifffile silently shows the remaining pages."""
    with tifffile.TiffFile(pyramid) as tiff:
        second = tiff.pages[1].offset
    pyramid.write_bytes(pyramid.read_bytes()[: second - 1])

    assert "cut short" in str(refused(pyramid, tmp_path / "p"))


def test_a_copy_under_another_name_is_the_same_slide(tmp_path, pyramid):
    shutil.copy(pyramid, tmp_path / "no suffix at all")

    with open_slide(pyramid) as one, open_slide(tmp_path / "no suffix at all") as other:
        assert one.info == other.info
