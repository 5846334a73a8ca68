"""The slide is chosen among several images: never a label, macro or thumbnail, and neither of two slides."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest
import tifffile
import typer
import zarr

from pipeline.box import Box
from pipeline.cohort.manifest import load_cohort
from pipeline.errors import AmbiguousSeriesError, ChangedSourceError
from pipeline.ingest.cohort_check import check_entries
from pipeline.ingest.ingest import IngestRequest, ingest_slide
from pipeline.project import Project
from pipeline.settings.config import IngestConfig
from pipeline.slides.common.level_content import few_places
from pipeline.slides.common.series import Candidate, choose_series, recorded_series
from pipeline.slides.common.side_images import kind_by_description, kind_by_name
from pipeline.slides.registry import open_slide
from pipeline.store.reading.reader import StoreReader
from pipeline.verbs.info import run_info
from tests.pipeline.make import halved, overwrite_tag, sample_image
from tests.pipeline.slides.make_dicom import write_dicom
from tests.pipeline.slides.make_ome_zarr import create, state_scales, write_container, write_image
from tests.pipeline.slides.make_tiff_families import write_ome_tiff
from tests.pipeline.slides.test_dicom_reader import LOSSLESS
from training.foundation.errors import UnreadableError

SLIDE = sample_image(600, 440)
OTHER = sample_image(560, 480, 3)
LABEL_OF_ITS_SHAPE = np.ascontiguousarray(255 - sample_image(300, 220, 5))
TILED, STRIPS = {"tile": (128, 128)}, {}


def page(pixels, *, mpp=None, layout=TILED, below=(), **options):
    """Page as `write_pages` takes it; `below` become its SubIFDs."""
    if mpp:
        options |= {"resolution": (1e4 / mpp, 1e4 / mpp), "resolutionunit": "CENTIMETER"}
    return pixels, {**layout, **options}, below


def write_pages(path, *pages):
    with tifffile.TiffWriter(path) as tiff:
        for pixels, options, below in pages:
            subifds = {"subifds": len(below)} if below else {}
            hanging = [sub if isinstance(sub, tuple) else (sub, None) for sub in below]
            parts = [(pixels, {**options, **subifds})]
            parts += [(sub, {"tile": (128, 128), "description": name}) for sub, name in hanging]
            for part, more in parts:
                tiff.write(part, photometric="rgb", compression="deflate", metadata=None, **more)
    return path


APERIO = "Aperio Leica Biosystems GT450 v1.0.1 \r\n"
LEVELS = [SLIDE, np.ascontiguousarray(SLIDE[::2, ::2]), np.ascontiguousarray(SLIDE[::4, ::4])]
FILLED_UP = np.pad(LEVELS[1], ((0, 256 - 220), (0, 384 - 300), (0, 0)), constant_values=255)
"""Image padded to whole tiles, as some programs write lower levels."""
SLIDE_PAGES = [page(level, mpp=0.5 * 2**i) for i, level in enumerate(LEVELS)]

ONE_SLIDE = {
    "thumbnail page first": [page(LEVELS[2], layout=STRIPS, mpp=2, subfiletype=1), *SLIDE_PAGES[:2]],
    "smallest level first": SLIDE_PAGES[::-1],
    "levels in no order": [SLIDE_PAGES[1], SLIDE_PAGES[0], SLIDE_PAGES[2]],
    "label page first": [page(sample_image(300, 300, 1), description="Label"), *SLIDE_PAGES],
    "label page first, by its page name": [
        page(sample_image(300, 300, 1), extratags=[(285, 2, 0, "slide_label", True)]), *SLIDE_PAGES,
    ],
    "tiled label of the slide's proportions": [
        SLIDE_PAGES[0], page(LABEL_OF_ITS_SHAPE, description="label 300x220", subfiletype=1), SLIDE_PAGES[2],
    ],
    "macro larger than the slide": [page(sample_image(1600, 500, 2), description="Macro image"), *SLIDE_PAGES],
    "overview in German": [*SLIDE_PAGES, page(sample_image(400, 300, 2), description="Uebersichtsbild")],
    "label in XML": [
        *SLIDE_PAGES, page(sample_image(400, 300, 2), description="<X><ImageType>Label</ImageType></X>"),
    ],
    "a level filled up to whole tiles": [SLIDE_PAGES[0], page(FILLED_UP)],
    "a reduced copy in strips": [*SLIDE_PAGES, page(LEVELS[1], layout=STRIPS)],
    "a reduced copy whose sides were rounded": [SLIDE_PAGES[0], page(sample_image(600, 440)[::2, ::2][:-4])],
    "small image without a name": [*SLIDE_PAGES, page(sample_image(90, 60, 2), layout=STRIPS)],
    "levels as SubIFDs": [page(SLIDE, mpp=0.5, below=LEVELS[1:])],
    "a label among the SubIFDs": [page(SLIDE, mpp=0.5, below=[LEVELS[1], (sample_image(700, 500, 5), "Label")])],
    "levels as SubIFDs, smallest first": [page(SLIDE, mpp=0.5, below=LEVELS[:0:-1])],
}  # fmt: skip


@pytest.mark.parametrize("case", ONE_SLIDE)
def test_the_slide_is_read_wherever_its_pages_stand(tmp_path, case):
    path = write_pages(tmp_path / "a.tif", *ONE_SLIDE[case])

    with open_slide(path) as slide:
        for level, size in enumerate(slide.info.levels):
            wanted = SLIDE[:: int(size.downsample), :: int(size.downsample)]
            region = slide.read_region(level, Box(0, 0, size.width_px, size.height_px))
            np.testing.assert_array_equal(region, wanted)
        assert slide.info.levels[0].width_px == 600
        assert slide.info.mpp_xy == (0.5, 0.5)


TWO_SLIDES = {
    "two pages": [page(SLIDE, mpp=0.5), page(OTHER, mpp=0.5)],
    "two pyramids in one chain": [
        page(SLIDE, mpp=0.5), page(LEVELS[1]), page(OTHER, mpp=0.5), page(np.ascontiguousarray(OTHER[::2, ::2])),
    ],
    "two pyramids as SubIFDs": [
        page(SLIDE, mpp=0.5, below=LEVELS[1:]), page(OTHER, mpp=0.5, below=[np.ascontiguousarray(OTHER[::2, ::2])]),
    ],
    "two images of one size": [page(SLIDE, mpp=0.5), page(sample_image(600, 440, 7), mpp=0.5)],
    "a second one of half the size and other proportions": [page(SLIDE, mpp=0.5), page(sample_image(280, 240, 7))],
    "a second one of the same proportions": [page(SLIDE, mpp=0.5), page(LABEL_OF_ITS_SHAPE)],
    "a second one of the same proportions in strips": [page(SLIDE, mpp=0.5), page(LABEL_OF_ITS_SHAPE, layout=STRIPS)],
    "a second one of nearly the same proportions": [page(SLIDE, mpp=0.5), page(255 - sample_image(302, 218, 5))],
    "a second one of whole tiles": [page(SLIDE, mpp=0.5), page(255 - sample_image(384, 256, 5))],
    "a small one at the same scale": [page(SLIDE, mpp=0.5), page(sample_image(120, 110, 7), mpp=0.5)],
    "a small one from another objective": [page(SLIDE, mpp=0.25), page(sample_image(120, 110, 7), mpp=1)],
    "a small one from a stronger objective": [page(SLIDE, mpp=0.5), page(sample_image(120, 110, 7), mpp=0.25)],
    "a small one beside a slide without a scale": [page(SLIDE), page(sample_image(120, 110, 7), mpp=0.34)],
}  # fmt: skip


@pytest.mark.parametrize("case", TWO_SLIDES)
def test_of_two_slides_in_one_tiff_neither_is_guessed_and_each_can_be_chosen(tmp_path, case):
    pages = TWO_SLIDES[case]
    path = write_pages(tmp_path / "a.tif", *pages)

    with pytest.raises(AmbiguousSeriesError, match=r"2 series that may each be the slide: 0 \(600×440 px.*--series"):
        open_slide(path)
    second = 2 if "one chain" in case else 1
    for number in (0, second):
        wanted = pages[number][0]
        with open_slide(path, series=str(number)) as slide:
            assert slide.info.series == str(number)
            slide_region = slide.read_region(0, Box(0, 0, wanted.shape[1], wanted.shape[0]))
            np.testing.assert_array_equal(slide_region, wanted)
            for level, size in enumerate(slide.info.levels):
                step = int(size.downsample)
                region = slide.read_region(level, Box(0, 0, size.width_px, size.height_px))
                np.testing.assert_array_equal(region, wanted[::step, ::step])
    with pytest.raises(AmbiguousSeriesError, match=rf"no series '9'. It has 0 \(600×440.*; {second} \("):
        open_slide(path, series="9")


@pytest.mark.parametrize("is_brief", [False, True], ids=["compared", "few places"])
def test_a_level_without_data_vouches_for_no_other_image(tmp_path, is_brief):
    slide = sample_image(2400, 1760)
    pages = [page(slide, mpp=0.5), page(slide[::2, ::2].copy()), page(255 - sample_image(1000, 733, 5), layout=STRIPS)]
    path = write_pages(tmp_path / "a.tif", *pages)
    with tifffile.TiffFile(path, mode="r+b") as tiff:
        counts = tiff.pages[1].tags["TileByteCounts"]
        counts.overwrite([0] * len(counts.value))

    with few_places() if is_brief else nullcontext(), pytest.raises(AmbiguousSeriesError, match="1000×733"):
        open_slide(path)


def test_a_second_slide_below_the_first_in_a_subifd_does_not_go_unnoticed(tmp_path):
    path = write_pages(tmp_path / "a.tif", page(OTHER, mpp=0.5, below=[LEVELS[0], LEVELS[1]]))

    with pytest.raises(AmbiguousSeriesError, match=r"2 series.*0 \(560×480 px, 0.5 µm/px\); 0/0 \(600×440 px"):
        open_slide(path)
    for series, wanted in (("0", OTHER), ("0/0", SLIDE)):
        with open_slide(path, series) as slide:
            size = slide.info.levels[0]
            np.testing.assert_array_equal(slide.read_region(0, Box(0, 0, size.width_px, size.height_px)), wanted)
            assert slide.info.series == series


def test_a_second_slide_that_the_xml_of_an_ome_tiff_does_not_mention_does_not_go_unnoticed(tmp_path):
    path = write_ome_tiff(tmp_path / "a.ome.tiff", [SLIDE], beside={"scene": OTHER}).path
    content = path.read_bytes()
    start, end = content.index(b'<Image ID="Image:1"'), content.index(b"</OME>")
    path.write_bytes(content[:start] + b" " * (end - start) + content[end:])

    with pytest.raises(AmbiguousSeriesError, match=r"2 series.*0 \(600×440.*; 1 \(560×480 px\)"):
        open_slide(path)
    with open_slide(path, "1") as slide:
        np.testing.assert_array_equal(slide.read_region(0, Box(0, 0, 560, 480)), OTHER)


OME_XML = (
    '<?xml version="1.0" encoding="UTF-8"?><OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06">'
    '<Image ID="Image:0" Name="a"><Pixels ID="Pixels:0" DimensionOrder="XYCZT" Type="uint8" SizeX="600" SizeY="440" '
    'SizeC="3" SizeZ="1" SizeT="1" PhysicalSizeX="0.5" PhysicalSizeY="0.5"><Channel SamplesPerPixel="3"/>'
    '<TiffData IFD="0" PlaneCount="1"/></Pixels></Image></OME>'
)


@pytest.mark.parametrize("on_all", [False, True])
def test_levels_that_a_program_added_without_changing_the_xml_of_an_ome_tiff_are_levels(tmp_path, on_all):
    pages = [page(level, description=OME_XML if on_all or not k else None) for k, level in enumerate(LEVELS)]
    path = write_pages(tmp_path / "a.ome.tiff", *pages)

    with open_slide(path) as slide:
        assert [size.width_px for size in slide.info.levels] == [600, 300, 150]
        assert (slide.info.mpp_xy, slide.info.series) == ((0.5, 0.5), None)
        np.testing.assert_array_equal(slide.read_region(2, Box(0, 0, 150, 110)), LEVELS[2])


def test_a_second_slide_of_the_same_proportions_that_the_xml_does_not_mention_does_not_go_unnoticed(tmp_path):
    path = write_pages(tmp_path / "a.ome.tiff", page(SLIDE, description=OME_XML), page(LABEL_OF_ITS_SHAPE))

    with pytest.raises(AmbiguousSeriesError, match=r"2 series.*0 \(600×440.*; 1 \(300×220 px"):
        open_slide(path)
    with open_slide(path, "1") as slide:
        np.testing.assert_array_equal(slide.read_region(0, Box(0, 0, 300, 220)), LABEL_OF_ITS_SHAPE)


@pytest.mark.parametrize("name", ["1", "scene"])
def test_a_second_slide_that_a_container_does_not_list_does_not_go_unnoticed(tmp_path, name):
    path = write_container(tmp_path / "a.zarr", {"one": [SLIDE]})
    write_image(zarr.open_group(path).create_group(name), [OTHER])

    with pytest.raises(AmbiguousSeriesError, match=rf"2 series.*0 \(600×440.*{name} \(560×480"):
        open_slide(path)


def test_a_second_slide_below_an_image_s_own_folder_does_not_go_unnoticed(tmp_path):
    path = tmp_path / "a.zarr"
    root = zarr.open_group(path, mode="w")
    write_image(root, [SLIDE, LEVELS[1]])
    write_image(root.create_group("labels"), [OTHER])
    with open_slide(path) as slide:
        assert slide.info.levels[0].width_px == 600
    write_image(root.create_group("second"), [OTHER])

    with pytest.raises(AmbiguousSeriesError, match=r"2 series.*\. \(600×440.*second \(560×480.*--series \."):
        open_slide(path)
    for series, wanted in ((".", SLIDE), ("second", OTHER)):
        with open_slide(path, series) as slide:
            size = slide.info.levels[0]
            np.testing.assert_array_equal(slide.read_region(0, Box(0, 0, size.width_px, size.height_px)), wanted)


@pytest.mark.parametrize("level", [0, 1])
def test_a_tile_that_was_left_out_makes_no_second_slide_of_a_level(tmp_path, level):
    pages = [page(level_pixels, layout={"tile": (640, 448)}, mpp=0.5) for level_pixels in LEVELS[:2]]
    path = write_pages(tmp_path / "a.tif", *pages)
    overwrite_tag(path, 325, 0, page=level)

    with open_slide(path) as slide:
        assert [size.width_px for size in slide.info.levels] == [600, 300]


def test_a_mask_of_the_slide_s_size_is_no_second_slide(tmp_path):
    path = write_pages(tmp_path / "a.tif", *SLIDE_PAGES, page(sample_image(600, 440, 7), subfiletype=1))
    overwrite_tag(path, 254, 4, page=3)

    with open_slide(path) as slide:
        assert [size.width_px for size in slide.info.levels] == [600, 300, 150]


def test_a_level_that_two_slides_could_own_is_built_instead_of_shown_in_the_wrong_one(tmp_path):
    second = sample_image(600, 440, 7)
    path = write_pages(
        tmp_path / "a.tif", page(LEVELS[1]), page(SLIDE, mpp=0.5), page(second, mpp=0.5), page(LEVELS[2])
    )

    with open_slide(path, series="2") as slide:
        assert len(slide.info.levels) == 1


@pytest.mark.parametrize("number", ["0", "2"])
def test_a_label_is_never_read_as_the_slide_not_even_when_it_is_chosen(tmp_path, number):
    label, macro = page(sample_image(900, 700, 1), description="Label"), page(OTHER, description="Macro")
    path = write_pages(tmp_path / "a.tif", label, SLIDE_PAGES[0], macro)

    with pytest.raises(UnreadableError, match=r"never read as the slide. The others: 1 \(600×440"):
        open_slide(path, series=number)


def test_a_file_of_labels_alone_has_no_slide(tmp_path):
    path = write_pages(tmp_path / "a.tif", page(SLIDE, description="Label"), page(OTHER, description="Macro"))

    with pytest.raises(UnreadableError, match=r"no image of the slide, only 0 \(600×440 px, label\); 1 .*macro"):
        open_slide(path)


CALLED = {
    "a part": "Liver, macro",
    "a finger": "Skin biopsy\nThumb, left",
    "a field": "Scanned|Name = Macro 3|MPP = 0.5",
}


@pytest.mark.parametrize("text", CALLED.values(), ids=CALLED)
@pytest.mark.parametrize("below", [False, True], ids=["in the chain", "as SubIFDs"])
def test_an_image_with_a_reduced_copy_of_itself_is_the_slide_whatever_its_description_says(tmp_path, text, below):
    parts = [page(SLIDE, mpp=0.5, description=text, below=LEVELS[1:])] if below else [
        page(SLIDE, mpp=0.5, description=text), *SLIDE_PAGES[1:],
    ]  # fmt: skip
    path = write_pages(tmp_path / "a.tif", *parts, page(sample_image(900, 700, 1), description="Macro image"))

    with open_slide(path) as slide:
        assert [size.width_px for size in slide.info.levels] == [600, 300, 150]
        assert (slide.info.associated, slide.info.mpp_xy) == (("macro",), (0.5, 0.5))
        np.testing.assert_array_equal(slide.read_region(0, Box(0, 0, 600, 440)), SLIDE)


def test_a_label_with_a_reduced_copy_of_itself_is_not_read_and_neither_is_the_copy(tmp_path):
    path = write_pages(tmp_path / "a.tif", page(SLIDE, description="Label"), *SLIDE_PAGES[1:])

    with pytest.raises(UnreadableError, match=r"calls its largest image \(0 \(600×440 px, label\)\) a label"):
        open_slide(path)


@pytest.mark.parametrize("text", ["Liver, macro", "Thumb, left"])
def test_a_slide_alone_that_is_called_a_macro_or_thumbnail_can_be_chosen(tmp_path, text):
    path = write_pages(tmp_path / "a.tif", page(SLIDE, mpp=0.5, description=text))

    with pytest.raises(UnreadableError, match=r"no image of the slide, only 0 .*`--series 0` if that is the slide"):
        open_slide(path)
    with open_slide(path, "0") as slide:
        np.testing.assert_array_equal(slide.read_region(0, Box(0, 0, 600, 440)), SLIDE)
        assert slide.info.associated == ()


def test_a_small_overview_is_not_the_slide_because_the_large_image_is_called_a_macro(tmp_path):
    large, overview = sample_image(1200, 900, 4), sample_image(150, 80, 5)
    path = write_pages(tmp_path / "a.tif", page(large, mpp=0.5, description="Colon macro"), page(overview))

    with pytest.raises(AmbiguousSeriesError, match=r"2 series.*1 \(150×80 px\); 0 \(1200×900 px.*macro\)"):
        open_slide(path)
    for series, wanted in (("0", large), ("1", overview)):
        with open_slide(path, series) as slide:
            region = slide.read_region(0, Box(0, 0, wanted.shape[1], wanted.shape[0]))
            np.testing.assert_array_equal(region, wanted)


def test_the_only_image_of_an_ome_zarr_can_be_chosen_by_a_dot_if_it_is_called_a_macro(tmp_path):
    write_image(create(tmp_path / "a.zarr"), [SLIDE])
    group = zarr.open_group(tmp_path / "a.zarr")
    ome = group.attrs["ome"]
    group.attrs["ome"] = {**ome, "multiscales": [{**ome["multiscales"][0], "name": "liver macro"}]}

    with pytest.raises(UnreadableError, match=r"`--series \.` if that is the slide"):
        open_slide(tmp_path / "a.zarr")
    with open_slide(tmp_path / "a.zarr", ".") as slide:
        np.testing.assert_array_equal(slide.read_region(0, Box(0, 0, 600, 440)), SLIDE)
        assert slide.info.associated == ()


def test_a_label_as_the_first_image_of_an_ome_tiff_is_not_the_slide(tmp_path):
    path = write_ome_tiff(tmp_path / "a.ome.tiff", halved(SLIDE, 1), beside={"label": sample_image(90, 70)}).path
    # The XML is unchanged except for its names: Image:0 is the larger one, and claims to be the label.
    content = (
        path.read_bytes().replace(b'Name="slide"', b'Name="label"', 1).replace(b'Name="label"', b'Name="slide"', 2)
    )
    path.write_bytes(content.replace(b'Name="slide"', b'Name="label"', 1))

    with open_slide(path) as slide:
        assert (slide.info.levels[0].width_px, slide.info.associated, slide.info.series) == (90, ("label",), "1")


@pytest.mark.parametrize("version", ["0.4", "0.5"])
def test_a_label_or_macro_first_in_a_container_is_not_the_slide(tmp_path, version):
    images = {"label image": [sample_image(900, 700, 1)], "macro": [OTHER], "slide": halved(SLIDE, 1)}
    path = write_container(tmp_path / "a.zarr", images, version=version)

    with open_slide(path) as slide:
        np.testing.assert_array_equal(slide.read_region(0, Box(0, 0, 600, 440)), SLIDE)
        assert (slide.info.series, slide.info.associated) == ("2", ("label", "macro"))


def test_names_in_the_xml_of_a_container_count_too(tmp_path):
    path = write_container(tmp_path / "a.zarr", {"0": [OTHER], "1": [SLIDE]})
    names = '<Image Name="label image"/><Image Name="a.svs"/>'
    xml = f'<OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06">{names}</OME>'
    (path / "OME" / "METADATA.ome.xml").write_text(xml)

    with open_slide(path) as slide:
        np.testing.assert_array_equal(slide.read_region(0, Box(0, 0, 600, 440)), SLIDE)


def test_levels_of_an_ome_zarr_listed_smallest_first_are_read(tmp_path):
    write_image(create(tmp_path / "a.zarr"), LEVELS[::-1], mpp=0.5)
    state_scales(tmp_path / "a.zarr", [2.0, 1.0, 0.5])

    with open_slide(tmp_path / "a.zarr") as slide:
        assert [size.width_px for size in slide.info.levels] == [600, 300, 150]
        np.testing.assert_array_equal(slide.read_region(0, Box(0, 0, 600, 440)), SLIDE)


def test_two_slides_in_a_container_in_a_container_are_refused(tmp_path):
    root = create(tmp_path / "a.zarr")
    root.attrs["ome"] = {"version": "0.5", "bioformats2raw.layout": 3}
    inner = root.create_group("0")
    inner.attrs["ome"] = {"version": "0.5", "bioformats2raw.layout": 3}
    for name, pixels in (("0", SLIDE), ("1", OTHER)):
        write_image(inner.create_group(name), [pixels])

    with pytest.raises(AmbiguousSeriesError, match=r"2 series.*0/0 \(600×440.*0/1 \(560×480"):
        open_slide(tmp_path / "a.zarr")
    with open_slide(tmp_path / "a.zarr", series="0/1") as slide:
        np.testing.assert_array_equal(slide.read_region(0, Box(0, 0, 560, 480)), OTHER)
        assert slide.info.series == "0/1"


def test_a_series_of_labels_in_a_dicom_folder_is_passed_over(tmp_path):
    options = LOSSLESS["native"]
    write_dicom(tmp_path / "a.dcm", OTHER[:200, :300], kind="LABEL", series="1.2.1", **options)
    write_dicom(tmp_path / "b.dcm", SLIDE[:90, :130], series="1.2.2", **options)

    with open_slide(tmp_path) as slide:
        assert slide.info.levels[0].width_px == 130
    (tmp_path / "b.dcm").unlink()
    with pytest.raises(UnreadableError, match=r"no image of the slide, only 1.2.1 \(1 file, 300×200 px, label\)"):
        open_slide(tmp_path)


# --- the same answer everywhere ------------------------------------------------------------------------------


@pytest.mark.parametrize("case", [*ONE_SLIDE, *TWO_SLIDES])
def test_ingest_info_and_cohort_check_give_the_same_answer(tmp_path, capsys, case):
    path = write_pages(tmp_path / "a.tif", *(ONE_SLIDE.get(case) or TWO_SLIDES[case]))
    (tmp_path / "cohort.csv").write_text("path,series\na.tif,\n")
    request, project = IngestRequest(path, "a"), Project(tmp_path / "p")

    (checked,) = check_entries(load_cohort(tmp_path / "cohort.csv"))

    if case in ONE_SLIDE:
        run_info(str(path), tmp_path / "p", series=None, as_json=True)
        assert '"0: 600 \\u00d7 440 px' in capsys.readouterr().out
        assert checked.status == "done"
        assert StoreReader(ingest_slide(request, project, IngestConfig()).store).size_wh_px0 == (600, 440)
        return
    with pytest.raises(typer.Exit):
        run_info(str(path), tmp_path / "p", series=None, as_json=True)
    assert "which_series" in capsys.readouterr().out
    assert checked.code == "which_series"
    with pytest.raises(AmbiguousSeriesError):
        ingest_slide(request, project, IngestConfig())


def test_the_column_series_of_a_manifest_chooses_for_check_and_ingest_and_is_recorded(tmp_path, gemslide):
    write_pages(tmp_path / "a.tif", *TWO_SLIDES["two pages"])
    manifest = tmp_path / "cohort.csv"
    manifest.write_text("path,slide_id,series\na.tif,first,0\na.tif,second,1\n")
    assert [outcome.status for outcome in check_entries(load_cohort(manifest))] == ["done", "done"]

    assert gemslide("ingest", manifest, "--project", tmp_path / "p").code == 0

    stores = [StoreReader(tmp_path / "p" / "slides" / f"{name}.ome.zarr") for name in ("first", "second")]
    assert [store.size_wh_px0 for store in stores] == [(600, 440), (560, 480)]
    assert [store.attributes.source.series for store in stores] == ["0", "1"]
    assert "series" in gemslide("ingest", manifest, "--series", "1", "--project", tmp_path / "p").err


def test_another_series_of_the_same_file_is_not_taken_for_the_store_that_is_there(tmp_path):
    path = write_pages(tmp_path / "a.tif", *TWO_SLIDES["two images of one size"])
    project = Project(tmp_path / "p")
    ingest_slide(IngestRequest(path, "S-1", series="0"), project, IngestConfig())

    assert ingest_slide(IngestRequest(path, "S-1", series="0"), project, IngestConfig()).skipped
    with pytest.raises(ChangedSourceError, match="holds series 0 of its file, but series 1 was requested"):
        ingest_slide(IngestRequest(path, "S-1", series="1"), project, IngestConfig())


def test_the_first_of_several_images_of_a_folder_s_own_group_can_be_chosen(tmp_path):
    path = tmp_path / "a.zarr"
    root = create(path)
    write_image(root, [SLIDE])
    write_image(root.create_group("more"), [OTHER])
    ome, second = root.attrs["ome"], root["more"].attrs["ome"]["multiscales"][0]
    second["datasets"][0]["path"] = "more/0"
    root["more"].attrs["ome"] = {}
    root.attrs["ome"] = {**ome, "multiscales": [*ome["multiscales"], second]}

    with pytest.raises(AmbiguousSeriesError, match=r"2 series.*\. \(600×440.*\.#1 \(560×480.*--series \."):
        open_slide(path)
    for series, width_px in ((".", 600), (".#1", 560)):
        with open_slide(path, series) as slide:
            assert slide.info.levels[0].width_px == width_px


def test_a_folder_s_only_image_can_be_named_by_a_dot(tmp_path):
    write_image(create(tmp_path / "a.zarr"), [SLIDE])

    with open_slide(tmp_path / "a.zarr", ".") as slide:
        assert slide.info.series is None


def test_a_label_is_known_by_the_xml_of_a_container_of_which_an_image_is_missing(tmp_path):
    path = write_container(tmp_path / "a.zarr", {"x": [OTHER], "y": [SLIDE]})
    names = '<Image Name="label image"/><Image Name="a.svs"/><Image Name="macro image"/>'
    (path / "OME" / "METADATA.ome.xml").write_text(f"<OME>{names}</OME>")

    with open_slide(path) as slide:
        assert (slide.info.series, slide.info.associated) == ("1", ("label",))


# --- the rule ------------------------------------------------------------------------------------------------


def test_a_name_of_an_image_is_never_printed_or_recorded():
    candidates = [Candidate("Jane Doe/0", 600, 440), Candidate("Jane Doe/1", 560, 480)]

    assert recorded_series(candidates, candidates[1]) == "#1"
    assert recorded_series(candidates[:1], candidates[0]) is None


def test_the_end_of_a_uid_is_enough_where_only_one_has_it():
    candidates = [Candidate("1.2.41", 9, 9), Candidate("1.2.52", 9, 9), Candidate("1.3.52", 9, 9)]

    assert choose_series(candidates, "41", "x", by_end=True) is candidates[0]
    with pytest.raises(AmbiguousSeriesError, match="2 of them end in 52"):
        choose_series(candidates, "52", "x", by_end=True)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("label image", "label"), ("Label_Image", "label"), ("LabelImage", "label"), ("a.svs [label]", "label"),
        ("Barcode", "label"), ("Etikett", "label"), ("étiquette", "label"), ("标签", "label"), ("ラベル", "label"),
        ("macro image", "macro"), ("SlidePreview", "macro"), ("Overview", "macro"), ("ÜBERSICHT", "macro"),
        ("Thumbnail", "thumbnail"), ("Vorschau", "thumbnail"), ("aperçu", "thumbnail"), ("preview 2", "thumbnail"),
        ("slide", None), ("scene 1", None), ("labelled slide", None), ("macrophages", None), ("label.svs", None),
        ("S24-01234 Doe Jane A1 HE colon left.svs [label image]", "label"),
        ("S24-01234 Doe Jane A1 HE colon left - macro image", "macro"),
        ("S24-01234 Doe Jane A1 HE colon left [label removed]", None),
        ("Thumb left #01", None), ("thumb", "thumbnail"), ("thumb image", "thumbnail"),
        ("overview.czi #1", None), ("H&E section that was labelled on the label of 3 May", None), ("", None),
    ],
)  # fmt: skip
def test_images_are_known_by_their_names_and_slides_are_not_mistaken_for_them(name, kind):
    assert kind_by_name(name) == kind


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (APERIO + "label 375x275", "label"), (APERIO + "macro 1280x431|AppMag = 20", "macro"),
        ("Macro -offset=(0,0) -pixelspacing=(0.03,0.03)", "macro"), ('{"type": "thumbnail"}', "thumbnail"),
        ("<PerkinElmer><ImageType>Overview</ImageType></PerkinElmer>", "macro"), ("Thumbnail", "thumbnail"),
        (APERIO + "1500x1100 [0,0,1500x1100] (256x256) JPEG/YCC Q=91|Title = label|Filename = macro", None),
        (APERIO + "1500x1100|Label = 12|Barcode = 7|MPP = 0.5", None), ("level=0 mag=40 quality=95", None),
        ('{"shape": [440, 600, 3]}', None), ("", None),
    ],
)  # fmt: skip
def test_pages_are_known_by_their_descriptions_and_free_text_is_not_believed(text, kind):
    assert kind_by_description(text) == kind
