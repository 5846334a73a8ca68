"""TIFF copies: stored JPEG tiles byte for byte, and the store's pixels in every reader."""

from __future__ import annotations

import base64
from io import BytesIO

import numpy as np
import openslide
import pytest
import tifffile
from PIL import ImageCms

from pipeline.export.export import ExportRequest, export_slide, kind_of
from pipeline.store.reading.reader import StoreReader
from tests.pipeline.export.conftest import planes
from tests.pipeline.export.make_store import jfif, jpeg_level, make_store, rgb_jpeg, zstd_level
from tests.pipeline.make import halved, ingest, sample_image

SUFFIX = {"ome-tiff": "ome.tiff", "tiff": "tiff"}


@pytest.fixture(scope="module")
def copies(tmp_path_factory, mixed_store, j2k_store):
    folder = tmp_path_factory.mktemp("tiffs")

    def make(store, kind):
        out = folder / f"{store.name[0]}.{SUFFIX[kind]}"
        return out, export_slide(ExportRequest(store, out, kind, with_associated=True))

    return {(s.name[0], kind): make(s, kind) for s in (mixed_store, j2k_store) for kind in SUFFIX}


def level_pages(tiff, kind):
    first = tiff.pages[0]
    return [first, *first.pages] if kind == "ome-tiff" else [p for p in tiff.pages if p.index == 0 or p.subfiletype & 1]


def yxc(reader, level):
    return np.moveaxis(planes(reader, level), 0, -1)


@pytest.mark.parametrize("kind", SUFFIX)
@pytest.mark.parametrize("slide", ["M", "J"])
def test_tifffile_reads_the_store_s_pixels_at_every_level(copies, mixed_store, j2k_store, slide, kind):
    ours = StoreReader({"M": mixed_store, "J": j2k_store}[slide])

    with tifffile.TiffFile(copies[slide, kind][0]) as tiff:
        pages = level_pages(tiff, kind)
        assert tiff.is_bigtiff
        assert len(pages) == len(ours.levels)
        for level, page in enumerate(pages):
            assert np.array_equal(page.asarray(), yxc(ours, level)), level


def test_openslide_reads_the_store_s_pixels_at_every_level_of_a_plain_tiff(copies, mixed_store):
    ours = StoreReader(mixed_store)

    with openslide.OpenSlide(copies["M", "tiff"][0]) as slide:
        assert slide.level_count == 3
        assert float(slide.properties["openslide.mpp-x"]) == pytest.approx(0.5)
        for level, (width, height) in enumerate(slide.level_dimensions):
            read = np.asarray(slide.read_region((0, 0), level, (width, height)))
            assert (read[..., 3] == 255).all()
            assert np.array_equal(read[..., :3], yxc(ours, level)), level


def test_openslide_reads_jpeg_2000_slides_from_a_plain_tiff(copies, j2k_store):
    ours = StoreReader(j2k_store)

    with openslide.OpenSlide(copies["J", "tiff"][0]) as slide:
        for level, size in enumerate(slide.level_dimensions):
            assert np.array_equal(np.asarray(slide.read_region((0, 0), level, size))[..., :3], yxc(ours, level))


def test_openslide_reads_the_finest_level_of_an_ome_tiff(copies, mixed_store):
    with openslide.OpenSlide(copies["M", "ome-tiff"][0]) as slide:
        read = np.asarray(slide.read_region((0, 0), 0, slide.dimensions))[..., :3]

    assert np.array_equal(read, yxc(StoreReader(mixed_store), 0))


@pytest.mark.parametrize("kind", SUFFIX)
def test_stored_jpeg_tiles_are_copied_byte_for_byte_and_holes_become_white_tiles(copies, mixed_store, kind):
    ours = StoreReader(mixed_store)
    path, report = copies["M", kind]

    with tifffile.TiffFile(path) as tiff, path.open("rb") as stream:
        for level, page in enumerate(level_pages(tiff, kind)[:2]):
            for index, (at, count) in enumerate(zip(page.dataoffsets, page.databytecounts, strict=True)):
                stream.seek(at)
                stored = ours.chunk(level, *divmod(index, ours.levels[level].columns))
                assert stored is None or stream.read(count) == stored
                assert count
    assert [report.how[name] for name in ("0", "1")] == ["JPEG tiles as stored"] * 2
    assert [report.how[name] for name in ("2", "label")] == ["deflate, lossless"] * 2


def test_stored_jpeg_2000_tiles_are_copied_into_an_ome_tiff(copies, j2k_store):
    path, report = copies["J", "ome-tiff"]

    with tifffile.TiffFile(path) as tiff, path.open("rb") as stream:
        page = tiff.pages[0]
        stream.seek(page.dataoffsets[1])
        assert stream.read(page.databytecounts[1]) == StoreReader(j2k_store).chunk(0, 0, 1)
    assert set(report.how.values()) == {"JPEG 2000 tiles as stored"}


def test_the_ome_xml_gives_size_scale_power_and_names_every_image(copies, label):
    with tifffile.TiffFile(copies["M", "ome-tiff"][0]) as tiff:
        (first, second), xml = tiff.series, tiff.ome_metadata
        assert (first.kind, first.axes, len(first.levels), first.name) == ("ome", "YXS", 3, "M-1")
        assert second.name == "label"
        assert np.array_equal(second.asarray(), label)
    image = tifffile.xml2dict(xml)["OME"]["Image"][0]["Pixels"]
    assert (image["SizeX"], image["SizeY"], image["PhysicalSizeX"], image["PhysicalSizeY"]) == (1330, 970, 0.5, 0.5)
    assert 'NominalMagnification="20"' in xml


@pytest.mark.parametrize("kind", SUFFIX)
def test_labels_and_macros_stay_behind_unless_asked_for(tmp_path, mixed_store, kind):
    out = tmp_path / f"c.{SUFFIX[kind]}"
    report = export_slide(ExportRequest(mixed_store, out, kind))

    with tifffile.TiffFile(out) as tiff:
        assert len(tiff.series) == 1
    assert set(report.how) == {"0", "1", "2"}


@pytest.mark.parametrize("subsampling", ["444", "422", "420", "411"])
def test_every_subsampling_that_tiff_knows_is_copied(tmp_path, subsampling):
    pixels = sample_image(500, 300)
    level = jpeg_level(pixels, 256, jfif(subsampling), sparse={(0, 1)})
    store = make_store(tmp_path / "S.ome.zarr", [level])

    report = export_slide(ExportRequest(store, tmp_path / "s.tiff", "tiff"))

    expected = yxc(StoreReader(store), 0)
    assert report.how == {"0": "JPEG tiles as stored"}
    assert np.array_equal(tifffile.imread(tmp_path / "s.tiff"), expected)
    with openslide.OpenSlide(tmp_path / "s.tiff") as slide:
        assert np.array_equal(np.asarray(slide.read_region((0, 0), 0, (500, 300)))[..., :3], expected)


@pytest.mark.parametrize("tile_px", [240, 100])
def test_tiles_that_tiff_cannot_say_are_compressed_anew_without_loss(tmp_path, tile_px):
    """4:1:1 requires tiles of whole 32 px blocks, TIFF a side divisible by 16."""
    store = make_store(tmp_path / "S.ome.zarr", [jpeg_level(sample_image(500, 300), tile_px, jfif("411"))])

    report = export_slide(ExportRequest(store, tmp_path / "s.tiff", "tiff"))

    assert report.how == {"0": "deflate, lossless"}
    assert np.array_equal(tifffile.imread(tmp_path / "s.tiff"), yxc(StoreReader(store), 0))


def test_a_level_of_tiles_of_two_kinds_is_compressed_anew_without_loss(tmp_path):
    def either(tile):
        return (rgb_jpeg if tile[0, 0, 0] < 128 else jfif("420"))(tile)

    first, second = halved(sample_image(700, 500), 1)
    store = make_store(tmp_path / "S.ome.zarr", [jpeg_level(first, 128, rgb_jpeg), jpeg_level(second, 128, either)])

    report = export_slide(ExportRequest(store, tmp_path / "s.ome.tif", "ome-tiff"))

    assert report.how == {"0": "JPEG tiles as stored", "1": "deflate, lossless"}
    with tifffile.TiffFile(tmp_path / "s.ome.tif") as tiff:
        for level, page in enumerate(level_pages(tiff, "ome-tiff")):
            assert np.array_equal(page.asarray(), yxc(StoreReader(store), level))


def test_a_quality_makes_jpeg_of_what_is_not_stored_as_jpeg(tmp_path, mixed_store):
    report = export_slide(ExportRequest(mixed_store, tmp_path / "s.tiff", "tiff", quality=95))

    expected = yxc(StoreReader(mixed_store), 2).astype(int)
    with tifffile.TiffFile(tmp_path / "s.tiff") as tiff:
        difference = np.abs(tiff.pages[2].asarray() - expected)
    assert report.how["0"] == "JPEG tiles as stored"
    assert report.how["2"] == "JPEG of quality 95"
    assert 0 < difference.mean() < 5


def test_the_colour_profile_comes_along(tmp_path):
    icc = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    level = zstd_level(sample_image(300, 200), 128)
    store = make_store(tmp_path / "S.ome.zarr", [level], icc=base64.b64encode(icc).decode())

    export_slide(ExportRequest(store, tmp_path / "s.tiff", "tiff"))

    with tifffile.TiffFile(tmp_path / "s.tiff") as tiff:
        ImageCms.ImageCmsProfile(BytesIO(tiff.pages[0].iccprofile))
        assert tiff.pages[0].iccprofile == icc


@pytest.mark.parametrize(
    ("name", "kind"),
    [("a.ome.tiff", "ome-tiff"), ("a.OME.TIF", "ome-tiff"), ("a.tif", "tiff"), ("a.ome.zarr", "ngff-0.5")],
)
def test_the_target_s_name_says_the_format(tmp_path, name, kind):
    assert kind_of(None, tmp_path / name) == kind
    assert kind_of("ngff-0.4", tmp_path / name) == "ngff-0.4"


@pytest.mark.parametrize("kind", SUFFIX)
def test_an_exported_tiff_is_ingested_again_with_the_same_tiles(copies, mixed_store, tmp_path, kind):
    """Round trip: stored JPEG tiles pass through again, and every level has its original pixels."""
    before = StoreReader(mixed_store)

    report = ingest(copies["M", kind][0], tmp_path)

    after = StoreReader(report.store)
    assert after.mpp0 == pytest.approx(before.mpp0)
    assert [level.route for level in report.levels][:3] == ["pass-through", "pass-through", "decode"]
    for level in range(3):
        assert np.array_equal(planes(after, level), planes(before, level)), level
    stored = before.chunk(0, 0, 1)
    assert after.chunk(0, 0, 1) == stored


def test_an_exported_jpeg_2000_slide_is_ingested_again(copies, j2k_store, tmp_path):
    before = StoreReader(j2k_store)

    report = ingest(copies["J", "ome-tiff"][0], tmp_path)

    after = StoreReader(report.store)
    assert report.levels[0].route == "pass-through"
    for level in range(2):
        assert np.array_equal(planes(after, level), planes(before, level)), level


@pytest.mark.data
@pytest.mark.parametrize(
    ("slide", "copied"),
    [
        ("Dana-Farber-AIOS+pathml/tests/testdata/small_HE.svs", "JPEG tiles as stored"),
        ("BhavyaKohli+MoNuSAC-Instance-Segmentation/code/sample_original/A9K0_1.svs", "JPEG 2000 tiles as stored"),
    ],
)
def test_a_real_slide_goes_to_ome_tiff_with_the_pixels_of_its_file(real_slides, tmp_path, slide, copied):
    store = ingest(real_slides / slide, tmp_path).store

    report = export_slide(ExportRequest(store, tmp_path / "c.ome.tiff", "ome-tiff"))

    assert report.how["0"] == copied
    expected = tifffile.imread(real_slides / slide, key=0)
    assert np.array_equal(tifffile.imread(tmp_path / "c.ome.tiff", key=0), expected)


class Counted:
    """Progress bar that counts expected and completed steps."""

    def __init__(self):
        self.expected = self.done = 0

    def expect(self, steps):
        self.expected += steps

    def __call__(self, steps):
        self.done += steps


@pytest.mark.parametrize("kind", ["ome-tiff", "tiff", "ngff-0.5", "ngff-0.4"])
def test_the_bar_ends_at_its_end(mixed_store, tmp_path, kind):
    counted = Counted()

    export_slide(ExportRequest(mixed_store, tmp_path / "copy", kind, with_associated=True), advance=counted)

    assert counted.done == counted.expected > 0


def test_the_bar_ends_at_its_end_when_a_level_is_written_twice(tmp_path):
    pixels = sample_image(512, 512)
    encoders = iter([jfif("420"), *[jfif("444")] * 3])
    store = make_store(tmp_path / "K-1.ome.zarr", [jpeg_level(pixels, 256, lambda tile: next(encoders)(tile))])
    counted = Counted()

    report = export_slide(ExportRequest(store, tmp_path / "copy.tiff", "tiff"), advance=counted)

    assert report.how == {"0": "deflate, lossless"}
    assert counted.done == counted.expected == 2  # a tile as stored, then all pixels in one larger tile
