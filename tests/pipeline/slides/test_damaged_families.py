"""Vendor files with damaged headers: pixels or one clear error, never the end of the process.

OpenSlide aborts if it cannot allocate what a header claims, so such headers are refused before it sees them.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tifffile

from pipeline.box import Box
from pipeline.slides.registry import open_slide
from pipeline.slides.tiff.prescan import compressions, prescan_tags
from tests.pipeline.make import sample_image
from tests.pipeline.slides.test_families_to_store import ome, ome_zarr, philips
from tests.pipeline.slides.test_vendor_slides import bif, mrxs, ndpi, scn
from training.foundation.errors import DecompressionBombError, GemslideError


def headers(path: Path) -> list[Path]:
    """Files of a slide that describe its structure."""
    if path.is_dir():
        return sorted(file for file in path.rglob("*") if file.name.startswith(".z") or file.suffix == ".json")
    return [path.with_suffix("") / name for name in ("Slidedat.ini", "Index.dat")] if path.suffix == ".mrxs" else [path]


def damaged(content: bytes, random: np.random.Generator) -> Iterator[bytes]:
    """Damaged versions: cut short, bytes or digits changed, numbers enlarged, four-byte words set to the maximum."""
    digits = [i for i, byte in enumerate(content) if 48 <= byte <= 57]
    while True:
        yield content[: random.integers(len(content))]
        changed = bytearray(content)
        for at in random.integers(len(changed), size=3):
            changed[at] = random.integers(256)
        yield bytes(changed)
        if digits:
            at = digits[random.integers(len(digits))]
            yield content[:at] + b"9" + content[at + 1 :]
            yield content[:at] + b"9876"[: random.integers(1, 5)] + content[at + 4 :]
        at = max(0, len(content) - 4 * int(random.integers(1, 120)))
        yield content[:at] + random.choice([b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\0\0\1\0"]) + content[at + 4 :]


@pytest.mark.parametrize("maker", [mrxs, ndpi, scn, bif, philips, ome, ome_zarr])
def test_random_damage_of_headers_ends_in_pixels_or_in_one_clear_error(tmp_path, maker):
    path = maker(tmp_path).path
    random = np.random.default_rng(7)
    outcomes = []
    for file in headers(path):
        content = file.read_bytes()
        for _, changed in zip(range(80 // len(headers(path))), damaged(content, random), strict=False):
            file.write_bytes(changed)
            try:
                with open_slide(path) as slide:
                    for level in range(len(slide.info.levels)):
                        slide.read_region(level, Box(-5, -5, 200, 150))
                outcomes.append("pixels")
            except GemslideError as error:
                outcomes.append(error.code)
        file.write_bytes(content)

    assert {"pixels", "unreadable"} <= set(outcomes)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("IMAGENUMBER_X", 200_000_000),
        ("IMAGENUMBER_Y", 10**30),
        ("DIGITIZER_WIDTH", 2**30),
        ("DIGITIZER_HEIGHT", 2**31),
    ],
)
def test_a_mirax_slide_that_claims_more_images_than_a_slide_has_is_refused(tmp_path, key, value):
    path = mrxs(tmp_path).path
    ini = tmp_path / "a" / "Slidedat.ini"
    ini.write_text(re.sub(f"{key} = [0-9]+", f"{key} = {value}", ini.read_text("utf-8-sig")), "utf-8")

    with pytest.raises(DecompressionBombError, match="more than a slide can have"):
        open_slide(path)


def test_a_ventana_slide_that_claims_more_tiles_than_a_slide_has_is_refused(tmp_path):
    path = bif(tmp_path).path
    path.write_bytes(path.read_bytes().replace(b'NumRows="3" NumCols="5" W', b'NumRows="9999999999" W    '[:25]))

    with pytest.raises(DecompressionBombError, match="tiles in one area"):
        open_slide(path)


@pytest.mark.parametrize("maker", [ndpi, scn, bif])
def test_a_page_that_claims_more_than_the_file_can_hold_is_refused(tmp_path, maker):
    path = maker(tmp_path).path
    with tifffile.TiffFile(path) as tiff:
        tags = [tiff.pages[1].aspage().tags[code] for code in (256, 257)]
        at = [(tag.valueoffset, {3: "H", 4: "I", 16: "Q"}[int(tag.dtype)]) for tag in tags]
    content = bytearray(path.read_bytes())
    for offset, kind in at:
        struct.pack_into(f"<{kind}", content, offset, 65_000 if kind == "H" else 500_000)
    path.write_bytes(content)

    with pytest.raises(DecompressionBombError, match="on page 1"):
        open_slide(path)


@pytest.mark.parametrize("bigtiff", [False, True])
@pytest.mark.parametrize("byteorder", ["<", ">"])
def test_a_tag_that_claims_gigabytes_is_not_shown_to_openslide(tmp_path, bigtiff, byteorder):
    """tifffile reads around such a tag; the image is complete."""
    path, pixels = tmp_path / "a.tiff", sample_image(100, 80)
    tifffile.imwrite(path, pixels, tile=(64, 64), bigtiff=bigtiff, byteorder=byteorder, software="scanner")
    assert prescan_tags(path)
    with tifffile.TiffFile(path) as tiff:
        at = tiff.pages.first.tags[305].offset
    content = bytearray(path.read_bytes())
    struct.pack_into(byteorder + ("Q" if bigtiff else "I"), content, at + 4, 2**50 if bigtiff else 2**31)
    path.write_bytes(content)

    assert not prescan_tags(path)
    with open_slide(path) as slide:
        np.testing.assert_array_equal(slide.read_region(0, Box(0, 0, 100, 80)), pixels)


@pytest.mark.parametrize("bigtiff", [False, True])
@pytest.mark.parametrize("byteorder", ["<", ">"])
def test_the_compressions_of_all_pages_are_known_without_listing_their_tiles(tmp_path, bigtiff, byteorder):
    path, pixels = tmp_path / "a.tiff", sample_image(100, 80)
    with tifffile.TiffWriter(path, bigtiff=bigtiff, byteorder=byteorder) as writer:
        for compression in ("jpeg", "lzw", "deflate"):
            writer.write(pixels, tile=(64, 64), compression=compression, photometric="rgb")

    assert compressions(path) == {7, 5, 32946}
    path.write_bytes(b"no TIFF")
    assert compressions(path) == set()
