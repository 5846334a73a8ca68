"""Suffixes come from the readers alone; unsupported formats are refused by name; stacks are refused everywhere."""

from __future__ import annotations

import csv
import shutil
import struct
from contextlib import nullcontext
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest
import tifffile

from pathology_app.jobs.offers import SlideFolders
from pipeline.box import Box
from pipeline.cohort.manifest import init_cohort
from pipeline.errors import NotBrightfieldRgbError
from pipeline.ingest.cohort_check import check_entries
from pipeline.ingest.ingest import IngestRequest, ingest_slide
from pipeline.naming.sources import SourceNames
from pipeline.project import Project
from pipeline.settings.config import IngestConfig
from pipeline.slides import plugins
from pipeline.slides.openslide.planes import check_one_plane
from pipeline.slides.registry import open_slide
from pipeline.slides.suffixes import slide_id_from, slide_suffixes
from pipeline.store.reading.reader import StoreReader
from tests.pipeline.make import sample_image, write_pyramid
from tests.pipeline.slides.make_czi import write_czi
from tests.pipeline.slides.make_dicom import write_dicom
from tests.pipeline.slides.make_ndpi import write_ndpi
from tests.pipeline.slides.make_ome_zarr import write_ome_zarr
from tests.pipeline.slides.make_vendor_slides import ScnArea, write_scn
from tests.pipeline.slides.test_dicom_reader import LOSSLESS
from training.foundation.errors import DecompressionBombError, UnreadableError


class SiteReader:
    """Reader from a site's package with its own suffix."""

    name, priority, suffixes = "site", 50, (".site", ".part.site")

    def accepts(self, path, vendor):
        return False

    def open(self, path, series):
        raise NotImplementedError


@pytest.fixture
def site_reader(monkeypatch):
    entry = EntryPoint("site", "tests.pipeline.slides.test_formats_by_name:SiteReader", plugins.GROUP)
    monkeypatch.setattr(plugins, "entry_points", lambda group: [entry])
    for cached in (plugins.load_plugins, slide_suffixes):
        cached.cache_clear()
    yield
    for cached in (plugins.load_plugins, slide_suffixes):
        cached.cache_clear()


# --- suffixes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "slide_id"),
    [
        ("x.ome.tif", "x"), ("x.ome.tiff", "x"), ("x.OME.TIFF", "x"), ("x.ome.tf8", "x"), ("x.ome.btf", "x"),
        ("x.ome.zarr", "x"), ("x.zarr", "x"), ("x.svs", "x"), ("TCGA-A1.0123.svs", "TCGA-A1.0123"), ("x.czi", "x"),
        ("x.home.tif", "x.home"), ("x.unknown", "x"), ("x", "x"), (".ome.tif", ".ome"),
    ],
)  # fmt: skip
def test_a_slide_s_id_is_its_file_s_name_without_the_suffix_that_a_reader_declares(name, slide_id):
    assert slide_id_from(Path("folder") / name) == slide_id


def test_ingest_and_cohort_init_name_an_ome_tiff_alike(tmp_path, gemslide):
    (tmp_path / "in").mkdir()
    write_pyramid(tmp_path / "in" / "x.ome.tif", [sample_image(300, 210)])

    assert [entry.slide_id for entry in init_cohort(tmp_path / "in", tmp_path / "c.csv").entries] == ["x"]
    assert gemslide("ingest", tmp_path / "in" / "x.ome.tif", "--project", tmp_path / "p").code == 0
    assert [store.name for store in (tmp_path / "p" / "slides").glob("[!.]*")] == ["x.ome.zarr"]


@pytest.mark.usefixtures("site_reader")
def test_a_site_s_suffix_is_known_to_cohort_init_to_the_app_and_to_what_hides_names(tmp_path):
    folder = tmp_path / "p" / "incoming"
    folder.mkdir(parents=True)
    for name in ("a.site", "b.part.site", "c.svs", "d.czi", "e.zvi", "f.dat"):
        (folder / name).write_bytes(b"x")

    assert [entry.slide_id for entry in init_cohort(folder, tmp_path / "c.csv").entries] == ["a", "b", "c", "d"]
    offered = SlideFolders.of(Project(tmp_path / "p"), ("incoming",)).offered()
    assert offered == [f"incoming/{name}" for name in ("a.site", "b.part.site", "c.svs", "d.czi")]
    names = SourceNames(project=Project(tmp_path / "p"))
    names.add_typed(["Jane-Doe.site", "Jane-Doe-2.vsi"], Project(tmp_path / "p"))
    assert "Jane" not in str(names.removed_from("Jane-Doe.site and Jane-Doe-2.vsi: no such slide"))


def test_cohort_init_takes_an_ome_zarr_folder_and_a_dicom_series_for_one_slide_each(tmp_path):
    folder = tmp_path / "in"
    (folder / "study").mkdir(parents=True)
    (folder / "two").mkdir()
    write_ome_zarr(folder / "a.ome.zarr", [sample_image(300, 210)])
    pixels = sample_image(300, 200)
    options = LOSSLESS["native"]
    for place, series in (("study", "1.2.1"), ("two", "1.2.2"), ("two", "1.2.3")):
        for level in range(2):
            reduced = np.ascontiguousarray(pixels[:: 2**level, :: 2**level])
            write_dicom(
                folder / place / f"{series}-{level}.dcm", reduced, downsample=2**level, series=series, **options
            )
    write_dicom(folder / "alone.dcm", pixels, series="1.2.4", **options)
    ingest_slide(
        IngestRequest(folder / "a.ome.zarr", "own", mpp_option=0.5), Project(folder / "project"), IngestConfig()
    )

    cohort = init_cohort(folder, tmp_path / "c.csv")

    with (tmp_path / "c.csv").open() as stream:
        rows = [(row["path"], row["series"]) for row in csv.DictReader(stream)]
    assert rows == [
        ("in/a.ome.zarr", ""), ("in/alone.dcm", ""), ("in/study", ""), ("in/two", "1.2.2"), ("in/two", "1.2.3"),
    ]  # fmt: skip
    assert [outcome.status for outcome in check_entries(cohort)] == ["done"] * 5


# --- refused by name -----------------------------------------------------------------------------------------

COMPOUND = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.isyntax", b'<DataObject ObjectType="DPUfsImport">', "iSyntax.*Philips TIFF"),
        ("a.xml", b'<?xml version="1.0"?>\n<DataObject ObjectType="DPUfsImport">', "iSyntax"),
        ("a.lif", b"\x70\0\0\0\x10\0\0\0\x2a", "Leica LIF.*bfconvert"), ("a.zvi", COMPOUND, "ZVI.*bfconvert"),
        ("a.bin", COMPOUND, "compound document"), ("a.mds", COMPOUND, "Motic MDS.*viewer"),
        ("a.kfb", b"KFB\0", "KFBio"), ("a.sdpc", b"SQ", "Sqray"), ("a.tmap", b"x", "TMAP"), ("a.nd2", b"x", "ND2"),
        ("a.afi", b"<ImageList>", "AFI.*brightfield"), ("a.dzi", b"<Image ", "Deep Zoom"), ("a.ets", b"SIS\0", "ETS"),
        ("a.jp2", b"\0\0\0\x0cjP  \r\n\x87\n", "JPEG 2000.*vips"), ("a.jpg", b"\xff\xd8\xff\xe0", "JPEG.*--mpp"),
        ("a.svs", b"\xff\xd8\xff\xe0", "JPEG.*vips"), ("a.png", b"\x89PNG\r\n\x1a\n", "PNG"),
        ("a.zip", b"PK\x03\x04", "archive.*Unpack"), ("a.czi", b"ZISRAWFILX", "neither OpenSlide nor tifffile"),
        ("a.vsi", b"II*\0", "VSI.*bioformats2raw"),
    ],
)  # fmt: skip
def test_a_format_that_is_not_read_is_refused_by_name_with_the_way_round(tmp_path, name, content, said):
    (tmp_path / name).write_bytes(content + bytes(5000))

    with pytest.raises(UnreadableError, match=said):
        open_slide(tmp_path / name)


@pytest.mark.parametrize("name", ["a.vsi", "A.VSI", "a.tif"])
def test_the_preview_of_an_olympus_slide_is_never_the_slide_whatever_it_is_called(tmp_path, name):
    write_pyramid(tmp_path / name, [sample_image(300, 210)])
    stack = tmp_path / f"_{Path(name).stem}_" / "stack1"
    stack.mkdir(parents=True)
    (stack / "frame_t.ets").write_bytes(b"SIS\0")

    with pytest.raises(UnreadableError, match=r"is Olympus or Evident VSI.*bioformats2raw"):
        open_slide(tmp_path / name)


def test_a_bif_that_openslide_does_not_know_is_not_read_as_a_plain_tiff(tmp_path):
    write_pyramid(tmp_path / "a.bif", [sample_image(300, 210)])

    with pytest.raises(UnreadableError, match=r"Ventana BIF of a variant that OpenSlide .* does not know"):
        open_slide(tmp_path / "a.bif")


# --- CZI -----------------------------------------------------------------------------------------------------


def test_a_czi_is_read_pixel_by_pixel_through_openslide_and_its_label_is_not_the_slide(tmp_path):
    pixels = sample_image(300, 200)
    path = write_czi(tmp_path / "a.czi", pixels, mpp=0.25, label=sample_image(64, 48, 3))

    with open_slide(path) as slide:
        assert (slide.info.format, slide.info.mpp_xy) == ("openslide:zeiss", pytest.approx((0.25, 0.25)))
        np.testing.assert_array_equal(slide.read_region(0, Box(0, 0, 300, 200)), pixels)
        assert slide.info.associated == ("label",)
    report = ingest_slide(IngestRequest(path, "S-1"), Project(tmp_path / "p"), IngestConfig())
    np.testing.assert_array_equal(StoreReader(report.store).read_region(0, Box(0, 0, 300, 200)), pixels)


def test_a_czi_that_openslide_cannot_read_is_refused(tmp_path):
    path = write_czi(tmp_path / "a.czi", sample_image(300, 200), pixel_type=1)  # 16 bits of grey

    with pytest.raises((UnreadableError, NotBrightfieldRgbError)):
        open_slide(path)


def test_a_czi_in_jpeg_xr_is_refused_with_the_way_round(tmp_path):
    """Most scanners write it, and OpenSlide 4.0.1 does not decode it."""
    path = write_czi(tmp_path / "a.czi", sample_image(300, 200))
    content = bytearray(path.read_bytes())
    for entry in (content.index(b"ZISRAWDIRECTORY") + 32 + 128, content.index(b"ZISRAWSUBBLOCK") + 32 + 16):
        struct.pack_into("<i", content, entry + 18, 4)
    path.write_bytes(content)

    with pytest.raises(UnreadableError, match=r"variant that OpenSlide .* does not read: JPEG XR .*bioformats2raw"):
        open_slide(path)


def test_a_czi_of_several_focal_planes_is_refused(tmp_path):
    path = write_czi(tmp_path / "a.czi", sample_image(300, 200), size_z=3)

    with pytest.raises(NotBrightfieldRgbError, match="3 focal planes"):
        open_slide(path)


@pytest.mark.parametrize(
    ("field", "value"),
    [("stored", 0), ("stored", -1), ("stored", 2**30), ("size", 0), ("position", 2**40), ("dimensions", 10**6)],
)
def test_a_czi_whose_directory_claims_what_cannot_be_is_refused_before_openslide_sees_it(tmp_path, field, value):
    """OpenSlide divides by a stored size of 0, and aborts on one that is too large."""
    path = write_czi(tmp_path / "a.czi", sample_image(300, 200), label=sample_image(64, 48, 3))
    content = bytearray(path.read_bytes())
    for directory in (content.index(b"ZISRAWDIRECTORY"), content.rindex(b"ZISRAWDIRECTORY")):
        damaged, entry = bytearray(content), directory + 32 + 128
        offset, kind = {"stored": (48, "i"), "size": (40, "i"), "position": (6, "q"), "dimensions": (28, "i")}[field]
        struct.pack_into(f"<{kind}", damaged, entry + offset, value)
        path.write_bytes(damaged)

        with pytest.raises((UnreadableError, DecompressionBombError), match=r"a\.czi: .*damaged|at most"):
            open_slide(path)


# --- stacks --------------------------------------------------------------------------------------------------


def test_an_ndpi_whose_images_are_of_one_size_is_refused_though_no_height_tells_them_apart(tmp_path):
    path = write_ndpi(tmp_path / "a.ndpi", [sample_image(512, 256), sample_image(512, 256, 1)]).path

    with pytest.raises(NotBrightfieldRgbError, match="2 images of one size"):
        check_one_plane(path, "hamamatsu", {})
    with pytest.raises((NotBrightfieldRgbError, UnreadableError)):  # OpenSlide may fail to open it
        open_slide(path)


def test_an_scn_of_several_focal_planes_is_refused(tmp_path):
    area = ScnArea(20_000, 30_000, [sample_image(128, 128), sample_image(64, 64)])
    path = write_scn(tmp_path / "a.scn", [area], slide_nm=(200_000, 300_000)).path
    with open_slide(path):
        pass
    with tifffile.TiffFile(path) as tiff:
        text = tiff.pages[0].description
    content = path.read_bytes().replace(text.encode(), text.replace('r="1" ', 'z="1" ').encode())
    path.write_bytes(content)

    with pytest.raises((NotBrightfieldRgbError, UnreadableError)):
        open_slide(path)


@pytest.mark.parametrize(
    ("vendor", "properties"),
    [
        ("mirax", {"mirax.HIERARCHICAL.HIER_2_NAME": "Microscope focus level", "mirax.HIERARCHICAL.HIER_2_COUNT": "3"}),
        ("ventana", {"ventana.Z-layers": "3"}), ("hamamatsu", {"hamamatsu.NoLayers": "3"}),
        ("zeiss", {"zeiss.Information.Image.SizeZ": "3"}),
    ],
)  # fmt: skip
def test_what_makers_write_of_their_stacks_is_understood(tmp_path, vendor, properties):
    with pytest.raises(NotBrightfieldRgbError, match="a stack: 3 focal planes"):
        check_one_plane(tmp_path / "a.x", vendor, properties)
    check_one_plane(tmp_path / "a.x", vendor, {key: text.replace("3", "1") for key, text in properties.items()})


# --- regions -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["tiff", "ome-zarr", "dicom", "ndpi", "store"])
def test_a_level_or_a_size_that_does_not_exist_is_one_clear_error_in_every_reader(tmp_path, kind):
    pixels = sample_image(300, 210)
    (tmp_path / "dicom").mkdir()
    write_dicom(tmp_path / "dicom" / "a.dcm", pixels, **LOSSLESS["native"])
    write_ome_zarr(tmp_path / "a.zarr", [pixels])
    write_ndpi(tmp_path / "a.ndpi", [sample_image(512, 256)])
    write_pyramid(tmp_path / "a.tif", [pixels])
    names = {"tiff": "a.tif", "ome-zarr": "a.zarr", "dicom": "dicom", "ndpi": "a.ndpi"}

    if kind == "store":
        report = ingest_slide(IngestRequest(tmp_path / "a.tif", "a"), Project(tmp_path / "p"), IngestConfig())
        opened = nullcontext(StoreReader(report.store))
    else:
        opened = open_slide(tmp_path / names[kind])

    with opened as reader:
        for level in (9, -1):
            with pytest.raises(UnreadableError, match=f"has no level {level}; it has level"):
                reader.read_region(level, Box(0, 0, 8, 8))
        with pytest.raises(UnreadableError, match="a region of -8×8 px cannot be read"):
            reader.read_region(0, Box(0, 0, -8, 8))
        assert (reader.read_region(0, Box(10_000, -10_000, 8, 8)) == 255).all()
        assert reader.read_region(0, Box(0, 0, 0, 8)).shape == (8, 0, 3)


def test_regions_and_squares_of_a_store_say_the_same(tmp_path):
    write_pyramid(tmp_path / "a.tif", [sample_image(300, 210)])
    reader = StoreReader(
        ingest_slide(IngestRequest(tmp_path / "a.tif", "a"), Project(tmp_path / "p"), IngestConfig()).store
    )

    for ask in (
        lambda: reader.read_regions(9, [(0, 0)], 8, 8),
        lambda: reader.read_square(9, 0, 0, 8, 8),
        lambda: reader.read_at_mpp(0, 0, -8, 8, 1.0),
    ):
        with pytest.raises(UnreadableError, match="slide a: "):
            ask()


# --- field cases ---------------------------------------------------------------------------------------------

FIELD_CASES = {
    "F1b_zstack_3_planes.ndpi": [1536, 768], "F2_like_olympus.vsi": "unreadable",
    "F2_two_slides_one_tiff.tif": "which_series", "F3_two_scenes.zarr": "which_series",
    "F2_thumbnail_page_first.tif": [600, 300], "F2_label_page_as_level.svs": [1500, 750],
}  # fmt: skip


@pytest.mark.data
@pytest.mark.parametrize("name", FIELD_CASES)
def test_field_cases_give_the_slide_or_the_right_refusal_from_every_verb(tmp_path, real_slides, gemslide, name):
    right = FIELD_CASES[name]
    source = real_slides / "field_cases" / name
    manifest = tmp_path / "cohort.csv"
    manifest.write_text(f"path,slide_id\n{source},a\n")

    answers = {
        verb: gemslide(*verb.split(), what, "--project", tmp_path / "p", "--json")
        for verb, what in (("info", source), ("cohort check", manifest), ("ingest", source))
    }

    if isinstance(right, str):
        assert all(done.code == 1 and f'"{right}"' in done.out for done in answers.values()), answers
        assert not list((tmp_path / "p").glob("slides/*.ome.zarr"))
        return
    assert {done.code for done in answers.values()} == {0}
    with open_slide(source) as slide:
        assert [size.width_px for size in slide.info.levels] == right
    shutil.rmtree(tmp_path / "p")


@pytest.mark.data
@pytest.mark.parametrize("name", ["F2_two_slides_one_tiff.tif", "F3_two_scenes.zarr"])
def test_each_of_two_slides_of_a_field_case_can_be_chosen(real_slides, name):
    sizes = []
    for series in ("0", "1"):
        with open_slide(real_slides / "field_cases" / name, series) as slide:
            sizes.append((slide.info.levels[0].width_px, slide.info.levels[0].height_px))
    assert sizes == [(600, 440), (560, 480)]
