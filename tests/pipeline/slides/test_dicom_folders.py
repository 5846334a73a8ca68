"""DICOM folders: one series is a pyramid with its associated images; several, parts and copies."""

from __future__ import annotations

import numpy as np
import openslide
import pytest
from pydicom import dcmread
from pydicom.dataset import Dataset

from pipeline.box import Box
from pipeline.errors import AmbiguousSeriesError, NotBrightfieldRgbError
from pipeline.slides.registry import open_slide
from pipeline.store.reading.reader import StoreReader
from tests.pipeline.make import ingest, sample_image
from tests.pipeline.slides import make_dicom as make
from tests.pipeline.slides.make_dicom import MPP0, tiles_of, write_dicom
from tests.pipeline.slides.test_dicom_reader import LOSSLESS, by_pillow, from_streams, through, whole
from training.foundation.errors import UnreadableError

WIDTH_PX, HEIGHT_PX = 300, 200  # 5 × 4 tiles of 64 px


@pytest.fixture
def pixels():
    return sample_image(WIDTH_PX, HEIGHT_PX)


def write_pyramid(folder, pixels, *, series="1.2.3.4", **coded):
    """Write three levels, a label, an overview and a thumbnail, under names that do not reveal their order."""
    folder.mkdir(exist_ok=True)
    for name, level in (("m", 0), ("z", 1), ("b", 2)):
        reduced = np.ascontiguousarray(pixels[:: 2**level, :: 2**level])
        write_dicom(folder / f"{name}.dcm", reduced, downsample=2**level, series=series, **coded)
    for name, kind, size_wh in (("a", "LABEL", (70, 90)), ("c", "OVERVIEW", (120, 40)), ("d", "THUMBNAIL", (50, 33))):
        small = sample_image(*size_wh, seed=7)
        write_dicom(folder / f"{name}.dcm", small, tile_wh=size_wh, kind=kind, series=series, **LOSSLESS["native"])
    return folder


def test_a_folder_of_one_series_is_a_pyramid_with_its_associated_images(tmp_path, pixels):
    folder = write_pyramid(tmp_path / "slide", pixels, **LOSSLESS["native"])
    other = Dataset()
    other.file_meta = dcmread(folder / "a.dcm").file_meta
    other.SOPClassUID = other.file_meta.MediaStorageSOPClassUID = make.ANNOTATIONS
    other.SOPInstanceUID, other.SeriesInstanceUID = "1.2.9", "1.2.10"
    other.save_as(folder / "annotations.dcm", enforce_file_format=True)
    (folder / "readme.txt").write_text("not DICOM")

    with open_slide(folder) as slide:
        levels = [(level.width_px, level.height_px, level.downsample) for level in slide.info.levels]
        assert levels == [(300, 200, 1.0), (150, 100, 2.0), (75, 50, 4.0)]
        for level in range(3):
            np.testing.assert_array_equal(whole(slide, level), pixels[:: 2**level, :: 2**level])
        assert slide.info.associated == ("thumbnail", "label", "macro")
        np.testing.assert_array_equal(slide.associated_image("label"), sample_image(70, 90, seed=7))
        np.testing.assert_array_equal(slide.associated_image("macro"), sample_image(120, 40, seed=7))
        assert [path.name for path in slide.files] == ["a.dcm", "b.dcm", "c.dcm", "d.dcm", "m.dcm", "z.dcm"]


def test_a_grey_label_is_refused_when_it_is_asked_for_and_not_before(tmp_path, pixels):
    def grey(ds):
        ds.SamplesPerPixel, ds.PhotometricInterpretation = 1, "MONOCHROME2"

    write_dicom(tmp_path / "a.dcm", pixels, **LOSSLESS["native"])
    write_dicom(tmp_path / "b.dcm", pixels, kind="LABEL", change=grey, **LOSSLESS["native"])

    with open_slide(tmp_path) as slide:
        assert slide.info.associated == ("label",)
        np.testing.assert_array_equal(whole(slide), pixels)
        with pytest.raises(NotBrightfieldRgbError, match="MONOCHROME2"):
            slide.associated_image("label")


def test_openslide_sees_the_same_pyramid(tmp_path, pixels):
    folder = write_pyramid(tmp_path / "slide", pixels)

    with open_slide(folder) as slide, openslide.OpenSlide(folder / "m.dcm") as other:
        sizes_wh = [(level.width_px, level.height_px) for level in slide.info.levels]
        assert list(other.level_dimensions) == sizes_wh
        assert set(other.associated_images) == set(slide.info.associated)
        for level, size_wh in enumerate(sizes_wh):
            expected = np.asarray(other.read_region((0, 0), level, size_wh))[..., :3]
            np.testing.assert_array_equal(whole(slide, level), expected)


def test_a_single_file_of_a_pyramid_is_that_level_alone(tmp_path, pixels):
    folder = write_pyramid(tmp_path / "slide", pixels, **LOSSLESS["native"])

    with open_slide(folder / "z.dcm") as slide:
        assert [(level.width_px, level.downsample) for level in slide.info.levels] == [(150, 1.0)]
        assert slide.info.mpp_xy == (2 * MPP0, 2 * MPP0)
        assert slide.files == (folder / "z.dcm",)


def test_two_series_in_a_folder_are_refused_unless_one_is_named(tmp_path, pixels):
    folder = write_pyramid(tmp_path / "study", pixels, series="1.2.3.41", **LOSSLESS["native"])
    (folder / "below").mkdir()
    write_dicom(folder / "below" / "other.dcm", pixels[:90, :70], series="1.2.3.52", **LOSSLESS["native"])

    with pytest.raises(AmbiguousSeriesError, match="2 series") as caught:
        open_slide(folder)
    for text in ("1.2.3.41 (6 files, 300×200 px)", "1.2.3.52 (1 file, 70×90 px)", "--series"):
        assert text in str(caught.value)
    for named in ("1.2.3.52", "52"):
        with open_slide(folder, series=named) as slide:
            assert slide.info.levels[0].width_px == 70
    for wrong in ("1.2.3", "", "9"):
        with pytest.raises(AmbiguousSeriesError, match="--series"):
            open_slide(folder, series=wrong)


def split(path, pixels, at, folder):
    """Write an instance as a concatenation of parts that start at these frames."""
    whole_instance = dcmread(write_dicom(path, pixels))
    frames = [make.jpeg_ycc(tile) for tile in tiles_of(pixels, (64, 64))]
    path.unlink()
    for number, (start, end) in enumerate(zip(at, [*at[1:], len(frames)], strict=True)):
        part = whole_instance
        part.ConcatenationUID, part.SOPInstanceUIDOfConcatenationSource = "1.2.77", "1.2.78"
        part.SOPInstanceUID = part.file_meta.MediaStorageSOPInstanceUID = f"1.2.79.{number + 1}"
        part.InConcatenationNumber, part.InConcatenationTotalNumber = number + 1, len(at)
        part.ConcatenationFrameOffsetNumber, part.NumberOfFrames = start, end - start
        make.put_pixels(part, frames[start:end], "basic")
        part.save_as(folder / f"part{9 - number}.dcm", enforce_file_format=True)


def test_the_parts_of_a_concatenation_are_one_level(tmp_path, pixels):
    split(tmp_path / "a.dcm", pixels, [0, 7, 8], tmp_path)
    expected = through(pixels, make.jpeg_ycc, by_pillow)

    for path in (tmp_path, tmp_path / "part8.dcm"):
        with open_slide(path) as slide:
            assert len(slide.files) == 3
            np.testing.assert_array_equal(whole(slide), expected)
            np.testing.assert_array_equal(from_streams(slide), expected)


def test_a_concatenation_that_misses_a_part_is_refused(tmp_path, pixels):
    split(tmp_path / "a.dcm", pixels, [0, 7, 8], tmp_path)
    (tmp_path / "part8.dcm").unlink()

    with pytest.raises(UnreadableError, match="frame 9 of its concatenation where frame 8"):
        open_slide(tmp_path)


def test_the_reference_of_a_pyramid_is_its_finest_file(tmp_path, pixels):
    folder = write_pyramid(tmp_path / "slide", pixels)

    with open_slide(folder) as slide:
        assert slide.openslide_file == folder / "m.dcm"


def test_a_folder_is_ingested_level_by_level_as_it_is_without_its_label(tmp_path, pixels):
    folder = write_pyramid(tmp_path / "slide", pixels)

    report = ingest(folder, tmp_path / "project")

    reader = StoreReader(report.store)
    assert [level.route for level in report.levels[:2]] == ["pass-through", "pass-through"]
    assert reader.attributes.source.files == 6
    assert (reader.attributes.source.format, reader.attributes.associated) == ("dicom", ())
    assert (reader.mpp0, reader.attributes.scanner_model) == (MPP0, "Aperio GT 450")
    with open_slide(folder) as slide:
        for level in range(3):
            size = reader.levels[level]
            stored = reader.read_region(level, Box(0, 0, size.width_px, size.height_px))
            np.testing.assert_array_equal(stored, whole(slide, level))
    content = b"".join(path.read_bytes() for path in report.store.rglob("*") if path.is_file())
    for secret in (b"Penicillin", b"P-4711", b"A-0815", b"SN-99", b"1.2.3.4"):
        assert secret not in content


@pytest.mark.parametrize(("encode", "said"), [(make.jpeg_rgb, "YBR_FULL_422"), (make.jpeg_ycc, "RGB")])
def test_a_slide_whose_attribute_denies_its_frames_is_ingested_as_the_frames_say(tmp_path, pixels, encode, said):
    path = write_dicom(tmp_path / "a.dcm", pixels, encode=encode, photometric=said)

    report = ingest(path, tmp_path / "project")

    assert report.levels[0].route == "pass-through"
    stored = StoreReader(report.store).read_region(0, Box(0, 0, WIDTH_PX, HEIGHT_PX))
    np.testing.assert_array_equal(stored, through(pixels, encode, by_pillow))


def test_a_pyramid_in_a_folder_has_openslide_for_a_reference(tmp_path, pixels):
    report = ingest(write_pyramid(tmp_path / "slide", pixels), tmp_path / "project")

    assert "openslide" in report.levels[0].gate.against


@pytest.mark.parametrize("keyword", ["PatientID", "PatientName", "ContainerIdentifier", "FrameOfReferenceUID"])
def test_an_image_of_another_patient_or_slide_in_the_same_series_is_no_level(tmp_path, pixels, keyword):
    folder = write_pyramid(tmp_path / "slide", pixels, **LOSSLESS["native"])
    for name, value in (("m", "1.2.77"), ("b", "1.2.78")):
        instance = dcmread(folder / f"{name}.dcm")
        setattr(instance, keyword, value)
        instance.save_as(folder / f"{name}.dcm")

    with pytest.raises(UnreadableError, match=f"of one series but differ in {keyword}, so") as error:
        open_slide(folder)
    assert "1.2.7" not in str(error.value)


ANOTHER_CONTENT = {
    "of another slide": lambda pixels: sample_image(WIDTH_PX // 2, HEIGHT_PX // 2, seed=3),
    "half a turn": lambda pixels: pixels[::-2, ::-2],
    "mirrored": lambda pixels: pixels[::2, ::-2],
    "shifted": lambda pixels: np.roll(pixels, (60, 90), (0, 1))[::2, ::2],
}


@pytest.fixture
def cells():
    """Tissue whose structure differs from place to place."""
    y, x = np.mgrid[:HEIGHT_PX, :WIDTH_PX]
    blobs = np.sin(x / 11 + y / 37) * np.sin(y / 13 - x / 53) > 0.2
    base = np.stack([180 + 60 * x / WIDTH_PX, 90 + 100 * y / HEIGHT_PX, 140 + 0 * x], -1)
    return np.where(blobs[..., None], base * 0.6, base).astype(np.uint8)


def blank(ds):
    ds.PatientID = ds.PatientName = ds.ContainerIdentifier = ds.FrameOfReferenceUID = ""


@pytest.mark.parametrize("changed", [blank, lambda ds: None], ids=["unidentified", "identified"])
@pytest.mark.parametrize("coded", [{}, LOSSLESS["native"]], ids=["jpeg", "native"])
@pytest.mark.parametrize("case", ANOTHER_CONTENT)
def test_an_image_that_shows_something_else_is_no_level_whatever_its_file_states(tmp_path, cells, case, coded, changed):
    write_dicom(tmp_path / "a.dcm", cells, change=changed, **coded)
    other = np.ascontiguousarray(ANOTHER_CONTENT[case](cells))
    write_dicom(tmp_path / "b.dcm", other, downsample=2, change=changed, **coded)

    with pytest.raises(UnreadableError, match="300×200 and 150×100 px are of one series but show different things"):
        open_slide(tmp_path)


def test_levels_of_files_that_identify_nobody_are_a_slide_if_they_show_the_same(tmp_path, cells):
    for number in range(3):
        level = np.ascontiguousarray(cells[:: 2**number, :: 2**number])
        write_dicom(tmp_path / f"{number}.dcm", level, downsample=2**number, change=blank)

    with open_slide(tmp_path) as slide:
        assert [level.width_px for level in slide.info.levels] == [300, 150, 75]


def test_frames_that_are_left_out_of_a_level_do_not_make_it_another_image(tmp_path, cells):
    write_dicom(tmp_path / "a.dcm", cells, sparse=range(0, 20, 2))
    write_dicom(tmp_path / "b.dcm", np.ascontiguousarray(cells[::2, ::2]), downsample=2, sparse=[0, 1, 2])

    with open_slide(tmp_path) as slide:
        assert len(slide.info.levels) == 2


def at(x_mm, y_mm):
    def change(ds):
        make.placed_on_the_glass(ds)
        origin = ds.TotalPixelMatrixOriginSequence[0]
        origin.XOffsetInSlideCoordinateSystem, origin.YOffsetInSlideCoordinateSystem = x_mm, y_mm

    return change


def turned(ds):
    ds.ImageOrientationSlide = [0, 1, 0, 1, 0, 0]


def level_1(folder, pixels, change):
    write_dicom(folder / "a.dcm", pixels, change=at(20.0, 40.5))
    write_dicom(folder / "b.dcm", np.ascontiguousarray(pixels[::2, ::2]), downsample=2, change=change)
    return folder


@pytest.mark.parametrize(
    ("change", "states"),
    [
        (turned, r"Image Orientation \(Slide\) \[0.*1.*0.*1.*0.*0.*\], not \[0"),
        (at(20.02, 40.5), r"its first pixel at \[20\.02, 40\.5\] mm, not \[20\.0, 40\.5\] mm"),
        (at(20.0, 39.5), r"its first pixel at \[20\.0, 39\.5\] mm, not"),
    ],
)
def test_a_level_that_states_another_place_on_the_glass_is_refused(tmp_path, pixels, change, states):
    with pytest.raises(UnreadableError, match=rf"its image b\.dcm states {states}"):
        open_slide(level_1(tmp_path, pixels, change))


@pytest.mark.parametrize("change", [at(20.00025, 40.49975), at(20.0, 40.5), lambda ds: None])
def test_levels_may_count_from_the_corner_or_the_centre_of_their_first_pixel_or_not_say(tmp_path, pixels, change):
    with open_slide(level_1(tmp_path, pixels, change)) as slide:
        assert len(slide.info.levels) == 2


@pytest.mark.parametrize("keyword", ["PatientID", "ContainerIdentifier"])
@pytest.mark.parametrize("name", ["a", "c", "d"])
def test_a_label_or_overview_of_another_slide_is_not_taken_for_this_one_s(tmp_path, pixels, keyword, name):
    folder = write_pyramid(tmp_path / "slide", pixels, **LOSSLESS["native"])
    for file in folder.iterdir():
        instance = dcmread(file)
        setattr(instance, keyword, "two" if file.stem == name else "one")
        instance.save_as(file)

    with pytest.raises(UnreadableError, match=f"differ in {keyword}"):
        open_slide(folder)


def test_a_part_of_a_concatenation_from_another_series_does_not_complete_it(tmp_path, pixels):
    split(tmp_path / "a.dcm", pixels, [0, 7, 8], tmp_path)
    part = dcmread(tmp_path / "part8.dcm")
    part.SeriesInstanceUID = "1.2.3.99"
    part.save_as(tmp_path / "part8.dcm")

    with pytest.raises(UnreadableError, match="A part is missing"):
        open_slide(tmp_path / "part9.dcm")
