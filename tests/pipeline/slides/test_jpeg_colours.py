"""One rule for colour: a JPEG stream's own statement decides, then the file's tag; on every route, with a warning."""

from __future__ import annotations

from dataclasses import replace

import imagecodecs
import numpy as np
import openslide
import pytest
import tifffile
from PIL import Image

from pipeline.box import Box
from pipeline.codecs import jpeg
from pipeline.export.export import ExportRequest, export_slide
from pipeline.slides.common.slide import one_stream
from pipeline.slides.openslide.reader import VendorSlide
from pipeline.slides.registry import open_slide
from pipeline.slides.tiff.reader import TiffSlide
from pipeline.store.format.chunks import decode_chunk
from tests.pipeline.make import PHOTOMETRIC, halved, ingest, overwrite_tag, sample_image
from tests.pipeline.slides import make_dicom
from tests.pipeline.slides.make_colours import (
    ADOBE_RGB,
    ADOBE_YCC,
    JFIF_SEGMENT,
    Coding,
    split_tables,
    tiles_of,
    write_coded,
    write_tiles,
)
from tests.pipeline.slides.make_dicom import write_dicom
from training.foundation.errors import UnreadableError

PIXELS = sample_image(150, 110)
NEAR = 40
"""More than the error of JPEG on noise, less than that of swapped colours."""

CODINGS = {
    "jfif": (Coding("ycbcr", JFIF_SEGMENT), False),
    "jfif subsampled": (Coding("ycbcr", JFIF_SEGMENT, subsampling="420"), False),
    "adobe 0": (Coding("rgb", ADOBE_RGB), True),
    "adobe 0 named": (Coding("rgb", ADOBE_RGB, b"RGB"), True),
    "adobe 1": (Coding("ycbcr", ADOBE_YCC), False),
    "adobe 1 named": (Coding("ycbcr", ADOBE_YCC, b"RGB"), False),
    "jfif before adobe": (Coding("ycbcr", ADOBE_RGB + JFIF_SEGMENT), False),
    "named": (Coding("rgb", b"", b"RGB"), True),
    "subsampled": (Coding("ycbcr", b"", subsampling="420"), False),
}
UNMARKED = {"rgb": Coding("rgb"), "ycbcr": Coding("ycbcr")}


def both_routes(path, level=0):
    """Pixels of a level, decoded from the level and from its copied tiles."""
    with open_slide(path) as slide:
        size, encoded = slide.info.levels[level], slide.encoded_level(level)
        decoded = slide.read_region(level, Box(0, 0, size.width_px, size.height_px))
        copied = np.empty_like(decoded)
        t = encoded.tile_px
        for row in range(encoded.rows):
            for column in range(encoded.columns):
                tile = decode_chunk(encoded.codec, one_stream(encoded, row, column), t)
                inside = copied[row * t : row * t + t, column * t : column * t + t]
                inside[:] = tile[: inside.shape[0], : inside.shape[1]]
        return decoded, copied, list(slide.info.warnings)


def is_near(ours, wanted):
    return np.abs(ours.astype(int) - wanted).mean() < NEAR / 4


@pytest.mark.parametrize("tag", ["rgb", "ycbcr"])
@pytest.mark.parametrize("name", CODINGS)
def test_what_a_stream_states_decides_on_both_routes_and_a_tag_that_says_else_is_named(tmp_path, name, tag):
    coding, is_rgb = CODINGS[name]
    path = write_coded(tmp_path / "a.tif", halved(PIXELS, 1), coding, tag=tag)

    for level, wanted in enumerate(halved(PIXELS, 1)):
        decoded, copied, warnings = both_routes(path, level)
        np.testing.assert_array_equal(decoded, copied)
        assert is_near(decoded, wanted)
    assert bool(warnings) == (is_rgb != (tag == "rgb"))
    if warnings:
        assert "PhotometricInterpretation says" in warnings[0]
        assert "levels of 150×110 px, 75×55 px" in warnings[0]


@pytest.mark.parametrize("tag", ["rgb", "ycbcr"])
def test_without_any_statement_the_tag_decides_and_nothing_is_warned_of(tmp_path, tag):
    path = write_coded(tmp_path / "a.tif", [PIXELS], UNMARKED[tag], tag=tag)

    decoded, copied, warnings = both_routes(path)

    np.testing.assert_array_equal(decoded, copied)
    assert is_near(decoded, PIXELS)
    assert warnings == []


@pytest.mark.parametrize("subfiletype", [0, 1])
@pytest.mark.parametrize("name", ["jfif", "adobe 0"])
def test_the_pyramid_around_a_level_does_not_change_its_colours(tmp_path, name, subfiletype):
    """NewSubfileType decides whether OpenSlide sees the levels; it follows the tag."""
    coding, is_rgb = CODINGS[name]
    tag = "ycbcr" if is_rgb else "rgb"
    path = write_coded(tmp_path / "a.tif", halved(PIXELS, 1), coding, tag=tag, subfiletype=subfiletype)

    report = ingest(path, tmp_path)

    assert [(level.route, level.gate.equal) for level in report.levels] == [("pass-through", True)] * 2
    assert all("tifffile" in level.gate.against for level in report.levels)
    assert any("the tiles were trusted" in warning for warning in report.warnings)
    other = "ycbcr" if tag == "rgb" else "rgb"
    plain = write_coded(tmp_path / "b.tif", halved(PIXELS, 1), coding, tag=other, subfiletype=subfiletype)
    honest = ingest(plain, tmp_path, slide_id="S-2")
    assert not any("trusted" in warning for warning in honest.warnings)
    for level in ("0", "1"):
        shards = [sorted((one.store / "0" / level / "c").rglob("*")) for one in (report, honest)]
        assert [file.read_bytes() for file in shards[0] if file.is_file()] == [
            file.read_bytes() for file in shards[1] if file.is_file()
        ]


def test_openslide_that_shows_other_colours_is_named_and_never_stored(tmp_path):
    path = write_coded(tmp_path / "a.tif", [PIXELS], CODINGS["jfif"][0], tag="rgb")
    with openslide.OpenSlide(path) as slide:
        shown = np.asarray(slide.read_region((0, 0), 0, (150, 110)))[..., :3]

    report = ingest(path, tmp_path)

    assert not is_near(shown, PIXELS)
    assert any(warning.startswith("OpenSlide, and programs that read with it") for warning in report.warnings)


def test_a_single_tile_that_says_else_is_noticed_while_it_is_copied(tmp_path):
    tiles = [UNMARKED["rgb"].encode(tile) for tile in tiles_of(sample_image(640, 320), 64)]
    tiles[17] = CODINGS["jfif"][0].encode(tiles_of(sample_image(640, 320), 64)[17])
    path = write_tiles(tmp_path / "a.tif", [(sample_image(640, 320), tiles)], tag="rgb")

    with open_slide(path) as slide:
        assert list(slide.info.warnings) == []  # a few tiles were sampled
    report = ingest(path, tmp_path, gate_tiles=8)

    assert any("JFIF marker" in warning for warning in report.warnings)
    decoded, copied, _ = both_routes(path)
    np.testing.assert_array_equal(decoded, copied)
    assert is_near(decoded, sample_image(640, 320))


@pytest.mark.parametrize(
    ("in_tables", "in_tile", "is_rgb", "said"),
    [
        (ADOBE_RGB, b"", True, "Adobe marker in JPEGTables, transform 0"),
        (JFIF_SEGMENT, b"", False, "JFIF marker in JPEGTables"),
        (JFIF_SEGMENT, ADOBE_RGB, True, "Adobe marker, transform 0"),
        (ADOBE_RGB, JFIF_SEGMENT, False, "JFIF marker"),
        (ADOBE_RGB, ADOBE_YCC, False, "Adobe marker, transform 1"),
    ],
)
def test_a_tile_s_own_marker_comes_before_that_of_the_shared_tables(tmp_path, in_tables, in_tile, is_rgb, said):
    coding = Coding("rgb" if is_rgb else "ycbcr", in_tile)
    tables, tiles = split_tables([coding.encode(tile) for tile in tiles_of(PIXELS, 64)], in_tables)
    tag = "ycbcr" if is_rgb else "rgb"
    path = write_tiles(tmp_path / "a.tif", [(PIXELS, tiles)], tag=tag, tables=tables)

    decoded, copied, warnings = both_routes(path)

    np.testing.assert_array_equal(decoded, copied)
    assert is_near(decoded, PIXELS)
    assert f"({said})" in warnings[0]


def test_levels_that_contradict_one_another_are_each_read_by_their_own_markers(tmp_path):
    large, small = halved(PIXELS, 1)
    coded = [
        (large, [CODINGS["jfif"][0].encode(tile) for tile in tiles_of(large, 64)]),
        (small, [CODINGS["adobe 0"][0].encode(tile) for tile in tiles_of(small, 64)]),
    ]
    path = write_tiles(tmp_path / "a.tif", coded, tag=("rgb", "ycbcr"))

    report = ingest(path, tmp_path)

    assert len([warning for warning in report.warnings if "were trusted" in warning]) == 2
    for level, wanted in enumerate((large, small)):
        assert is_near(both_routes(path, level)[0], wanted)


@pytest.mark.parametrize("name", ["jfif", "adobe 0"])
def test_strips_follow_the_same_rule(tmp_path, name):
    coding, is_rgb = CODINGS[name]
    strips = [coding.encode(PIXELS[y : y + 16]) for y in range(0, 110, 16)]
    path = tmp_path / "a.tif"
    with tifffile.TiffWriter(path) as tiff:
        tiff.write(
            iter(strips), shape=PIXELS.shape, dtype=np.uint8, rowsperstrip=16, photometric="rgb", compression="jpeg",
            metadata=None, resolution=(2e4, 2e4), resolutionunit="CENTIMETER",
        )  # fmt: skip
    overwrite_tag(path, PHOTOMETRIC, 6 if is_rgb else 2)

    report = ingest(path, tmp_path)

    with open_slide(path) as slide:
        assert is_near(slide.read_region(0, Box(0, 0, 150, 110)), PIXELS)
    assert any("were trusted" in warning for warning in report.warnings)


@pytest.mark.parametrize("pass_through", [True, False])
def test_verify_reads_the_source_by_the_same_rule(tmp_path, gemslide, pass_through):
    path = write_coded(tmp_path / "a.tif", halved(PIXELS, 1), CODINGS["jfif"][0], tag="rgb")
    (tmp_path / "gemslide.toml").write_text(f"[ingest]\npass_through = {str(pass_through).lower()}\n")
    done = gemslide("ingest", path, "--project", tmp_path, "--slide-id", "S-1")
    assert done.code == 0
    assert "JFIF marker" in done.err + done.out

    checked = gemslide("verify", "S-1", "--project", tmp_path, "--source", path)
    again = gemslide("ingest", path, "--project", tmp_path, "--slide-id", "S-1")
    info = gemslide("info", "S-1", "--project", tmp_path)
    of_file = gemslide("info", path, "--project", tmp_path)

    assert checked.code == 0
    assert "pixels equal the source's" in checked.out
    assert all("JFIF marker" in one.out + one.err for one in (again, info, of_file))


@pytest.mark.parametrize("kind", ["tiff", "ome-tiff"])
def test_an_exported_copy_has_a_tag_that_says_what_its_tiles_hold(tmp_path, kind):
    for name in ("jfif", "adobe 0"):
        coding, is_rgb = CODINGS[name]
        folder = tmp_path / name.replace(" ", "")
        folder.mkdir()
        pixels = sample_image(160, 128)
        path = write_coded(folder / "a.tif", [pixels], coding, tag="ycbcr" if is_rgb else "rgb")
        copy = folder / ("out.ome.tif" if kind == "ome-tiff" else "out.tif")
        export_slide(ExportRequest(ingest(path, folder).store, copy, kind))
        with tifffile.TiffFile(copy) as tiff:
            assert int(tiff.pages[0].photometric) == (2 if is_rgb else 6)
            assert is_near(tiff.pages[0].asarray(), pixels)
        assert both_routes(copy)[2] == []


def test_a_format_that_only_openslide_reads_is_refused_where_its_tags_lie(tmp_path):
    path = write_coded(tmp_path / "a.tif", [PIXELS], CODINGS["jfif"][0], tag="rgb")

    with pytest.raises(UnreadableError, match=r"its JPEG tiles hold Y, Cb, Cr .*follows the tag"):
        VendorSlide(path)


def test_a_merged_stream_carries_the_one_marker_that_decides():
    stream = replace(CODINGS["named"][0]).encode(sample_image(64, 64))

    merged = jpeg.parse(stream).head(is_rgb=False)

    assert merged.count(ADOBE_RGB) == 1


@pytest.mark.parametrize(
    ("encode", "said", "marker"),
    [(make_dicom.jpeg_ycc, "RGB", "JFIF marker"), (make_dicom.jpeg_rgb, "YBR_FULL_422", "Adobe marker, transform 0")],
)
def test_a_dicom_attribute_that_contradicts_its_frames_is_named(tmp_path, encode, said, marker):
    path = write_dicom(tmp_path / "a.dcm", PIXELS, encode=encode, photometric=said)

    report = ingest(path, tmp_path, mpp=0.5)

    assert is_near(both_routes(path)[1], PIXELS)
    assert any(marker in one and "attribute Photometric Interpretation" in one for one in report.warnings)


def test_a_reduced_page_of_jpeg_2000_that_holds_ycbcr_has_its_colours(tmp_path):
    """33003 holds Y, Cb, Cr, declared only by its number."""
    large, small = halved(PIXELS, 1)
    path = tmp_path / "a.tif"
    with tifffile.TiffWriter(path) as tiff:
        for pixels, compression, subfiletype in ((large, "jpeg", 0), (small, 33003, 1)):
            tiles = [
                CODINGS["adobe 0"][0].encode(tile)
                if compression == "jpeg"
                else imagecodecs.jpeg2k_encode(
                    np.asarray(Image.fromarray(tile).convert("YCbCr")), codecformat="j2k", colorspace=0, mct=False,
                    reversible=True, level=0,
                )
                for tile in tiles_of(pixels, 64)
            ]  # fmt: skip
            tiff.write(
                iter(tiles), shape=pixels.shape, dtype=np.uint8, tile=(64, 64), photometric="rgb",
                compression=compression, subfiletype=subfiletype, metadata=None,
            )  # fmt: skip

    with TiffSlide(path) as slide:
        region = slide.read_region(1, Box(0, 0, 75, 55))

    assert np.abs(region.astype(int) - small).max() <= 3
