"""Slides as DICOM: frames are the store's chunks, other programs see the store's pixels, and nobody is named."""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess

import numpy as np
import openslide
import pydicom
import pytest
from pydicom.encaps import get_frame, parse_basic_offsets
from wsidicom import WsiDicom

from pipeline.box import Box
from pipeline.codecs.images import decode_jpeg, decode_jpeg_2000
from pipeline.export.export import ExportRequest, export_slide
from pipeline.files import sha256_of_files
from pipeline.store.reading.reader import StoreReader
from tests.pipeline.export.make_store import jfif, jpeg_level, make_store, rgb_jpeg, zstd_level
from tests.pipeline.make import halved, ingest, sample_image, write_jpeg_pyramid

BASELINE, LOSSLESS_J2K, LOSSY_J2K = "JPEGBaseline8Bit", "JPEG2000Lossless", "JPEG2000"


def exported(store, out, **options):
    report = export_slide(ExportRequest(store, out, "dicom", **options))
    return report, [pydicom.dcmread(path) for path in sorted(out.glob("*.dcm"))]


def frames(dataset) -> list[bytes]:
    """Found by the extended offset table."""
    number = int(dataset.NumberOfFrames)
    tables = dataset.ExtendedOffsetTable, dataset.ExtendedOffsetTableLengths
    assert parse_basic_offsets(dataset.PixelData) == []
    return [get_frame(dataset.PixelData, i, extended_offsets=tables, number_of_frames=number) for i in range(number)]


def without_padding(frame: bytes) -> bytes:
    return frame.removesuffix(b"\0") if frame.endswith(b"\xff\xd9\0") else frame


@pytest.fixture(scope="module")
def jpeg_store(tmp_path_factory):
    """Two levels of 4:2:2, with tiles that were left out. wsidicom leaves out levels of another tile size."""
    first, second = halved(sample_image(1330, 970), 1)
    levels = [
        jpeg_level(first, 240, jfif("422"), sparse={(0, 0), (4, 5)}),
        jpeg_level(second, 240, jfif("422"), sparse={(1, 1)}),
    ]
    return make_store(tmp_path_factory.mktemp("jpeg") / "slides/D-1.ome.zarr", levels)


@pytest.mark.parametrize(
    ("encode", "photometric", "subsampling"),
    [
        (jfif("422"), "YBR_FULL_422", ((2, 1), (1, 1), (1, 1))),
        (jfif("420"), "YBR_FULL_422", ((2, 2), (1, 1), (1, 1))),
        (jfif("444"), "YBR_FULL_422", ((1, 1), (1, 1), (1, 1))),
        (rgb_jpeg, "RGB", ((1, 1), (1, 1), (1, 1))),
    ],
)
def test_every_frame_is_a_chunk_byte_for_byte_and_white_where_there_is_none(tmp_path, encode, photometric, subsampling):
    pixels = sample_image(700, 500)
    store = make_store(tmp_path / "S.ome.zarr", [jpeg_level(pixels, 240, encode, sparse={(1, 0)})])

    report, (dataset,) = exported(store, tmp_path / "out")

    assert report.how == {"0": "JPEG tiles as stored"}
    assert dataset.file_meta.TransferSyntaxUID.keyword == BASELINE
    assert (dataset.PhotometricInterpretation, dataset.LossyImageCompression) == (photometric, "01")
    reader = StoreReader(store)
    places = itertools.product(range(reader.levels[0].rows), range(reader.levels[0].columns))
    for place, frame in zip(places, frames(dataset), strict=True):
        assert len(frame) % 2 == 0
        chunk = reader.chunk(0, *place)
        if chunk is not None:
            assert without_padding(frame) == without_padding(chunk)
            continue
        white = decode_jpeg(frame)
        assert (white.shape, white.min()) == ((240, 240, 3), 255)
        assert pydicom_sampling(frame) == subsampling
    assert dataset.pixel_array.shape == (9, 240, 240, 3)


def pydicom_sampling(stream: bytes) -> tuple[tuple[int, int], ...]:
    at = re.search(rb"\xff\xc0", stream).start() + 10
    return tuple((stream[at + 3 * i + 1] >> 4, stream[at + 3 * i + 1] & 15) for i in range(3))


def test_levels_without_such_streams_become_lossless_jpeg_2000(tmp_path, j2k_store):
    first, second = halved(sample_image(700, 500, seed=4), 1)
    mixed = jpeg_level(first, 240, lambda tile: (rgb_jpeg if tile[0, 0, 0] % 2 else jfif("444"))(tile))
    store = make_store(tmp_path / "S.ome.zarr", [mixed, zstd_level(second, 100)])

    report, datasets = exported(store, tmp_path / "out")
    kept, (as_stored, *_) = exported(j2k_store, tmp_path / "j2k")

    assert report.how == {
        "0": "lossless JPEG 2000, because it is stored as JPEG of several kinds",
        "1": "lossless JPEG 2000, because it is stored as zstd",
    }
    reader = StoreReader(store)
    for level, dataset in enumerate(datasets):
        assert dataset.file_meta.TransferSyntaxUID.keyword == LOSSLESS_J2K
        assert dataset.PhotometricInterpretation == "YBR_RCT"
        t = reader.levels[level].chunk_px
        for number, frame in enumerate(frames(dataset)):
            row, column = divmod(number, reader.levels[level].columns)
            expected = reader.read_region(level, Box(column * t, row * t, t, t))
            np.testing.assert_array_equal(decode_jpeg_2000(frame), expected)
    assert kept.how == {"0": "JPEG 2000 tiles as stored", "1": "JPEG 2000 tiles as stored"}
    assert (as_stored.file_meta.TransferSyntaxUID.keyword, as_stored.LossyImageCompression) == (LOSSLESS_J2K, "00")


@pytest.mark.parametrize("make", ["jpeg_store", "j2k_store"])
def test_wsidicom_sees_the_store_s_pixels(tmp_path, make, request):
    store = request.getfixturevalue(make)
    exported(store, tmp_path / "out")
    reader, random = StoreReader(store), np.random.default_rng(0)

    with WsiDicom.open(tmp_path / "out") as theirs:
        assert [level.size.to_tuple() for level in theirs.levels] == [
            (level.width_px, level.height_px) for level in reader.levels
        ]
        assert theirs.levels[0].mpp.width == pytest.approx(reader.mpp0)
        for level, _ in itertools.product(theirs.levels, range(12)):
            own = min(reader.levels, key=lambda each: abs(each.width_px - level.size.width))
            x, y = (int(random.integers(0, side - 90)) for side in (own.width_px, own.height_px))
            region = np.asarray(theirs.read_region((x, y), level.level, (90, 90)))
            np.testing.assert_array_equal(region, reader.read_region(own.level, Box(x, y, 90, 90)))


@pytest.mark.parametrize("make", ["jpeg_store", "mixed_store", "j2k_store"])
def test_openslide_sees_the_store_s_pixels_at_every_level(tmp_path, make, request):
    store = request.getfixturevalue(make)
    exported(store, tmp_path / "out")
    reader = StoreReader(store)

    slide = openslide.OpenSlide(tmp_path / "out" / "level-0.dcm")
    for level, (width_px, height_px) in enumerate(slide.level_dimensions):
        region = np.asarray(slide.read_region((0, 0), level, (width_px, height_px)).convert("RGB"))
        np.testing.assert_array_equal(region, reader.read_region(level, Box(0, 0, width_px, height_px)))
    assert float(slide.properties["openslide.mpp-x"]) == pytest.approx(reader.mpp0)
    slide.close()


def test_ingest_of_an_export_gives_the_same_chunks(tmp_path):
    source = write_jpeg_pyramid(tmp_path / "Doe.tiff", halved(sample_image(1700, 1300), 2), subsampling="422")
    store = ingest(source, tmp_path).store
    exported(store, tmp_path / "out")

    again = StoreReader(ingest(tmp_path / "out", tmp_path, slide_id="S-2").store)

    reader = StoreReader(store)
    assert again.mpp0 == pytest.approx(reader.mpp0)
    for mine, theirs in zip(reader.levels, again.levels, strict=True):
        for place in itertools.product(range(mine.rows), range(mine.columns)):
            assert reader.chunk(mine.level, *place) == again.chunk(theirs.level, *place)
    assert {level.route for level in again.attributes.levels} == {"pass-through"}


def test_two_exports_are_equal_and_other_slides_have_other_uids(tmp_path, jpeg_store, j2k_store):
    _, first = exported(jpeg_store, tmp_path / "a")
    _, again = exported(jpeg_store, tmp_path / "b")
    _, other = exported(j2k_store, tmp_path / "c")

    assert [sha256_of_files([path]) for path in sorted((tmp_path / "a").iterdir())] == [
        sha256_of_files([path]) for path in sorted((tmp_path / "b").iterdir())
    ]
    assert len({dataset.SOPInstanceUID for dataset in [*first, *other]}) == 4
    for keyword in ("StudyInstanceUID", "SeriesInstanceUID", "FrameOfReferenceUID", "PyramidUID"):
        assert len({dataset[keyword].value for dataset in first}) == 1
        assert first[0][keyword].value != other[0][keyword].value
    assert again[0].SpecimenDescriptionSequence[0].SpecimenIdentifier == "D-1"


def test_no_attribute_names_a_patient_a_file_or_a_day(tmp_path):
    source = write_jpeg_pyramid(tmp_path / "Doe.tiff", [sample_image(500, 400)])
    _, (dataset,) = exported(ingest(source, tmp_path).store, tmp_path / "out")

    del dataset.PixelData
    assert "Doe" not in str(dataset)
    for keyword in ("PatientName", "PatientID", "PatientBirthDate", "AccessionNumber", "StudyDate"):
        assert not dataset[keyword].value
    assert {str(element.value)[:4] for element in dataset if element.VR in ("DA", "DT") and element.value} == {"1900"}
    assert dataset.PatientIdentityRemoved == "YES"


@pytest.mark.parametrize("make", ["jpeg_store", "mixed_store", "j2k_store"])
def test_the_validator_finds_no_error(tmp_path, make, request):
    validator = shutil.which("dciodvfy")
    if validator is None:
        pytest.skip("dciodvfy is not installed (Debian: dicom3tools)")
    exported(request.getfixturevalue(make), tmp_path / "out")
    for path in (tmp_path / "out").iterdir():
        done = subprocess.run([validator, path], capture_output=True, text=True, check=False)
        output = done.stdout + done.stderr
        assert "VLWholeSlideMicroscopyImage" in output.splitlines()
        assert [line for line in output.splitlines() if line.startswith("Error")] == []


def test_the_command_names_the_folder_and_how_each_level_was_written(tmp_path, jpeg_store, gemslide):
    done = gemslide("export", jpeg_store, tmp_path / "out", "--to", "dicom", "--project", tmp_path)
    with_label = gemslide(
        "export", jpeg_store, tmp_path / "other", "--to", "dicom", "--associated", "--project", tmp_path
    )

    assert done.code == 0, done.err
    assert "0 JPEG tiles as stored; 1 JPEG tiles as stored" in done.out + done.err
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["level-0.dcm", "level-1.dcm"]
    assert with_label.code == 1
    assert "labels and macros are not written as DICOM" in with_label.err
    assert not (tmp_path / "other").exists()
