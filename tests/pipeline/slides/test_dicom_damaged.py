"""DICOM files that are cut, inconsistent or hold something else end in one clear error."""

from __future__ import annotations

import random
import re
import resource
import struct
import subprocess
import sys
from itertools import product

import numpy as np
import pytest
from pydicom import dcmread
from pydicom.dataset import Dataset
from pydicom.uid import generate_uid

from pipeline.box import Box
from pipeline.errors import CorruptTileError, NotBrightfieldRgbError
from pipeline.slides.common.slide import NotCopied, planes_of
from pipeline.slides.registry import open_slide
from tests.pipeline.make import sample_image
from tests.pipeline.slides import make_dicom as make
from tests.pipeline.slides.make_dicom import write_dicom, write_dicom_stack
from training.foundation.errors import DecompressionBombError, GemslideError, UnreadableError

WIDTH_PX, HEIGHT_PX = 300, 200  # 5 × 4 tiles of 64 px
NATIVE = {"syntax": make.NATIVE, "encode": make.native, "photometric": "RGB"}


@pytest.fixture(scope="module")
def pixels():
    return sample_image(WIDTH_PX, HEIGHT_PX)


def setting(**attributes):
    def change(ds):
        for name, value in attributes.items():
            setattr(ds, name, value)

    return change


def read_all(path):
    with open_slide(path) as opened:
        for slide, (level, size) in product(planes_of(opened), enumerate(opened.info.levels)):
            slide.read_region(level, Box(0, 0, min(size.width_px, 2000), min(size.height_px, 2000)))
            encoded = slide.encoded_level(level)
            if not isinstance(encoded, NotCopied):
                assert encoded.byte_counts().shape == (encoded.rows, encoded.columns)
                for row in range(min(encoded.rows, 30)):
                    encoded.streams(row, range(min(encoded.columns, 30)))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (setting(BitsAllocated=16, BitsStored=12), NotBrightfieldRgbError, "16 bits (12 used)"),
        (setting(SamplesPerPixel=1, PhotometricInterpretation="MONOCHROME2"), NotBrightfieldRgbError, "MONOCHROME2"),
        (setting(PhotometricInterpretation="PALETTE COLOR"), NotBrightfieldRgbError, "PALETTE COLOR"),
        (setting(TotalPixelMatrixFocalPlanes=3), UnreadableError, "3 focal planes and does not state their distance"),
        (setting(TotalPixelMatrixFocalPlanes=2**31 - 1), DecompressionBombError, "more than they can"),
        (setting(TotalPixelMatrixFocalPlanes=300), UnreadableError, "300 focal planes; at most 256"),
        (setting(NumberOfOpticalPaths=2), UnreadableError, "2 optical paths"),
        (setting(ImageType=["ORIGINAL", "PRIMARY"]), UnreadableError, "ORIGINAL/PRIMARY"),
        (setting(ImageType=["ORIGINAL", "PRIMARY", "LABEL", "NONE"]), UnreadableError, "only: label"),
        (setting(NumberOfFrames=19), UnreadableError, "need 20 frames, but it claims 19"),
        (setting(NumberOfFrames=21), UnreadableError, "need 20 frames, but it claims 21"),
        (setting(TotalPixelMatrixColumns=350), UnreadableError, "6×4 tiles need 24 frames"),
        (setting(TotalPixelMatrixColumns=0), UnreadableError, "claims 0×200 px"),
        (setting(TotalPixelMatrixColumns=None), UnreadableError, "damaged"),
        (setting(Rows=0), UnreadableError, "damaged"),
        (setting(Rows=65535, Columns=65535), DecompressionBombError, "at most 64 MiB per frame"),
        (
            setting(TotalPixelMatrixColumns=2**31, TotalPixelMatrixRows=2**31),
            DecompressionBombError, "more than they can",
        ),
        (setting(NumberOfFrames=2**31 - 1), DecompressionBombError, "2147483647 frames"),
        (setting(DimensionOrganizationType=None), UnreadableError, "do not state their positions"),
    ],
)  # fmt: skip
def test_a_header_that_is_wrong_or_of_another_kind_is_refused_with_the_reason(tmp_path, pixels, change, error, message):
    with pytest.raises(error, match=re.escape(message)):
        open_slide(write_dicom(tmp_path / "a.dcm", pixels, change=change))


@pytest.mark.parametrize(
    ("codes", "wavelength_nm"), [(["111743"], None), (["111744", "111743"], None), (["111741"], 355.0)]
)
def test_fluorescence_is_refused(tmp_path, pixels, codes, wavelength_nm):
    def fluorescent(ds):
        path = ds.OpticalPathSequence[0]
        path.IlluminationTypeCodeSequence = []
        for value in codes:
            code = Dataset()
            code.CodeValue, code.CodingSchemeDesignator = value, "DCM"
            path.IlluminationTypeCodeSequence.append(code)
        if wavelength_nm:
            path.IlluminationWaveLength = wavelength_nm

    with pytest.raises(NotBrightfieldRgbError, match="fluorescence"):
        open_slide(write_dicom(tmp_path / "a.dcm", pixels, change=fluorescent))


def test_an_export_that_does_not_say_what_it_shows_is_refused_because_it_may_be_the_label(tmp_path, pixels):
    with pytest.raises(UnreadableError, match=r"of its label \(Image Type: absent\)"):
        open_slide(write_dicom(tmp_path / "a.dcm", pixels, kind=None))


@pytest.mark.parametrize(
    ("coded", "error", "message"),
    [
        ({**NATIVE, "photometric": "YBR_FULL"}, NotBrightfieldRgbError, "holds YBR_FULL under Explicit"),
        (
            {
                "syntax": make.JPEG_2000_LOSSLESS, "encode": make.jpeg_2000_without_transform,
                "photometric": "YBR_FULL_422",
            },
            NotBrightfieldRgbError, "no colour transform",
        ),
        ({"syntax": "1.2.840.10008.1.2.4.100"}, UnreadableError, "MPEG2"),
    ],
)  # fmt: skip
def test_frames_whose_colours_cannot_be_told_are_refused(tmp_path, pixels, coded, error, message):
    with pytest.raises(error, match=message):
        open_slide(write_dicom(tmp_path / "a.dcm", pixels, **coded))


def test_a_transfer_syntax_that_nobody_knows_is_refused(tmp_path, pixels):
    path = write_dicom(tmp_path / "a.dcm", pixels)
    path.write_bytes(path.read_bytes().replace(make.JPEG.encode(), make.JPEG[:-2].encode() + b"99", 1))

    with pytest.raises(UnreadableError, match=r"1\.2\.4\.99 is unknown"):
        open_slide(path)


def test_dicom_deflated_as_a_whole_is_refused_unpacked(tmp_path, pixels):
    ds = dcmread(write_dicom(tmp_path / "a.dcm", pixels, **NATIVE))
    ds.file_meta.TransferSyntaxUID = "1.2.840.10008.1.2.1.99"
    ds.save_as(tmp_path / "a.dcm", enforce_file_format=True)

    with pytest.raises(UnreadableError, match="deflated"):
        open_slide(tmp_path / "a.dcm")


def moved_place(frame, **place):
    def change(ds):
        for name, value in place.items():
            setattr(ds.PerFrameFunctionalGroupsSequence[frame].PlanePositionSlideSequence[0], name, value)

    return change


def other_paths(ds):
    for frame, groups in enumerate(ds.PerFrameFunctionalGroupsSequence):
        path = Dataset()
        path.OpticalPathIdentifier = str(frame % 2)
        groups.OpticalPathIdentificationSequence = [path]


def other_heights(ds):
    for frame, groups in enumerate(ds.PerFrameFunctionalGroupsSequence):
        groups.PlanePositionSlideSequence[0].ZOffsetInSlideCoordinateSystem = frame % 2


def some_heights(ds):
    for groups in ds.PerFrameFunctionalGroupsSequence[1:]:
        groups.PlanePositionSlideSequence[0].ZOffsetInSlideCoordinateSystem = 1


def no_place(ds):
    del ds.PerFrameFunctionalGroupsSequence[2].PlanePositionSlideSequence


def too_few_places(ds):
    del ds.PerFrameFunctionalGroupsSequence[2]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (moved_place(1, ColumnPositionInTotalImagePixelMatrix=40), "frame 2 is at x=39, y=64, between the tiles"),
        (moved_place(1, RowPositionInTotalImagePixelMatrix=3000), "y=2999, outside the pixel matrix"),
        (moved_place(1, RowPositionInTotalImagePixelMatrix=-5), "outside the pixel matrix"),
        (moved_place(0, ColumnPositionInTotalImagePixelMatrix=65), "several frames have the same position and height"),
        (other_paths, "2 optical paths"),
        (other_heights, "2 focal planes do not hold the same tiles"),
        (some_heights, "only 2 of its 3 frames state their heights"),
        (no_place, "only some of its [0-9]+ frames state their positions"),
        (too_few_places, "only some of its [0-9]+ frames state their positions"),
    ],
)
def test_frames_of_a_sparse_slide_that_cannot_be_placed_are_refused(tmp_path, pixels, change, message):
    path = write_dicom(tmp_path / "a.dcm", pixels, sparse=[5, 6, 0], change=change)

    with pytest.raises(UnreadableError, match=message):
        open_slide(path)


@pytest.mark.parametrize("sparse", [None, range(20)], ids=["full", "sparse"])
@pytest.mark.parametrize("share", [0.001, 0.02, 0.3, 0.6, 0.999])
def test_a_file_cut_short_is_refused(tmp_path, pixels, share, sparse):
    path = write_dicom(tmp_path / "a.dcm", pixels, sparse=sparse)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])

    with pytest.raises(UnreadableError):
        open_slide(path)


@pytest.mark.parametrize("coded", [NATIVE, {"offsets": "extended"}, {"offsets": "none"}], ids=["native", "eot", "bot"])
def test_pixels_that_end_early_are_noticed_before_any_is_read(tmp_path, pixels, coded):
    path = write_dicom(tmp_path / "a.dcm", pixels, **coded)
    path.write_bytes(path.read_bytes()[:-3000])

    with pytest.raises(UnreadableError, match="cut short"):
        open_slide(path)


def table_of_offsets(path):
    """Position of the basic offset table's entries in the file, and the entries."""
    content = path.read_bytes()
    at = content.index(b"\xe0\x7f\x10\x00OB\0\0\xff\xff\xff\xff") + 20
    return at, list(struct.unpack_from("<20L", content, at))


@pytest.mark.parametrize("lie", ["shuffled", "shifted", "zero", "huge"])
def test_an_offset_table_that_lies_is_not_believed(tmp_path, pixels, lie):
    path = write_dicom(tmp_path / "a.dcm", pixels)
    with open_slide(path) as slide:
        truth = slide.read_region(0, Box(0, 0, WIDTH_PX, HEIGHT_PX))
    at, offsets = table_of_offsets(path)
    lies = {
        "shuffled": offsets[::-1], "shifted": [offset + 4 for offset in offsets], "zero": [0] * 20,
        "huge": [*offsets[:-1], 2**32 - 2],
    }  # fmt: skip
    with path.open("r+b") as stream:
        stream.seek(at)
        stream.write(struct.pack("<20L", *lies[lie]))

    with open_slide(path) as slide:
        np.testing.assert_array_equal(slide.read_region(0, Box(0, 0, WIDTH_PX, HEIGHT_PX)), truth)
        assert slide.openslide_file is None  # it would crash


def test_frames_that_are_more_or_fewer_than_the_file_says_are_refused(tmp_path, pixels):
    frames = [make.jpeg_ycc(tile) for tile in make.tiles_of(pixels, (64, 64))]
    for held, message in ((frames[:-1], "claims 20 frames but holds 19"), ([*frames, frames[0]], "more fragments")):

        def other(ds, held=held):
            make.put_pixels(ds, held, "none")

        with pytest.raises(UnreadableError, match=message):
            open_slide(write_dicom(tmp_path / "a.dcm", pixels, change=other))


@pytest.mark.parametrize(
    ("syntax", "encode", "said"),
    [(make.JPEG, make.jpeg_ycc, "YBR_FULL_422"), (make.JPEG_2000_LOSSLESS, make.jpeg_2000, "YBR_RCT")],
)
@pytest.mark.parametrize("damage", ["zeros at its end", "another size", "no header"])
def test_a_damaged_frame_is_a_corrupt_tile_and_the_others_are_read(tmp_path, pixels, syntax, encode, said, damage):
    tiles = make.tiles_of(pixels, (64, 64))
    frames = [encode(tile) for tile in tiles]
    frames[8] = {
        "zeros at its end": frames[8][:-40] + bytes(40),
        "another size": encode(np.zeros((32, 32, 3), np.uint8)),
        "no header": b"\x55" * len(frames[8]),
    }[damage]

    path = write_dicom(
        tmp_path / "a.dcm", pixels, syntax=syntax, photometric=said, encode=encode,
        change=lambda ds: make.put_pixels(ds, frames, "basic"),
    )  # fmt: skip

    with open_slide(path) as slide:
        assert not (slide.read_region(0, Box(0, 0, WIDTH_PX, 64)) == 255).all()
        with pytest.raises(CorruptTileError, match="row 1, column 3 of the 300×200 px level"):
            slide.read_region(0, Box(0, 64, WIDTH_PX, 64))
        with pytest.raises(CorruptTileError, match="row 1, column 3"):
            slide.encoded_level(0).streams(1, range(5))
        assert len(slide.encoded_level(0).streams(1, range(3))) == 3


def test_a_frame_that_claims_another_size_is_refused_before_room_is_made_for_it(tmp_path, pixels):
    def claim_all(tile):
        """Make a lossless JPEG's header claim 65500 × 65500 px."""
        encoded = make.jpeg_lossless(tile)
        at = encoded.index(b"\xff\xc3") + 5
        return encoded[:at] + struct.pack(">2H", 65500, 65500) + encoded[at + 4 :]

    path = write_dicom(tmp_path / "a.dcm", pixels, syntax=make.JPEG_LOSSLESS, encode=claim_all, photometric="RGB")

    with open_slide(path) as slide, pytest.raises(CorruptTileError, match="says 65500×65500 px"):
        slide.read_region(0, Box(0, 0, 64, 64))


def test_run_lengths_that_point_outside_their_frame_are_refused(tmp_path, pixels):
    """imagecodecs follows them out of bounds."""

    def astray(tile):
        return struct.pack("<16L", 3, 64, 2**31, 2**32 - 1, *[0] * 12) + bytes(1000)

    path = write_dicom(tmp_path / "a.dcm", pixels, syntax=make.RLE, encode=astray, photometric="RGB")

    with open_slide(path) as slide, pytest.raises(CorruptTileError, match="segments at"):
        slide.read_region(0, Box(0, 0, 64, 64))


def test_levels_that_are_not_one_field_at_falling_size_are_refused(tmp_path, pixels):
    cases = {
        "same": ([pixels, pixels[:, ::-1].copy()], [1, 1], "300×200 px at one height above the glass"),
        "region": ([pixels, pixels[:50, :150]], [1, 2], "not the same field"),
        "scale": ([pixels, pixels[::2, ::2].copy()], [1, 1], "not the same field"),
    }
    for name, (levels, downsamples, message) in cases.items():
        folder = tmp_path / name
        folder.mkdir()
        for number, (level, downsample) in enumerate(zip(levels, downsamples, strict=True)):
            write_dicom(folder / f"{number}.dcm", level, downsample=downsample, **NATIVE)
        with pytest.raises(UnreadableError, match=message):
            open_slide(folder)


def test_the_same_instance_twice_in_a_folder_is_refused(tmp_path, pixels):
    content = write_dicom(tmp_path / "a.dcm", pixels, **NATIVE).read_bytes()
    (tmp_path / "copy of a.dcm").write_bytes(content)

    with pytest.raises(UnreadableError, match=r"a\.dcm and copy of a\.dcm: are the same instance\."):
        open_slide(tmp_path)


def test_a_folder_without_a_slide_says_what_it_holds(tmp_path, pixels):
    ds = dcmread(write_dicom(tmp_path / "a.dcm", pixels, **NATIVE))
    ds.SOPClassUID = ds.file_meta.MediaStorageSOPClassUID = make.ANNOTATIONS
    ds.SOPInstanceUID = generate_uid()
    ds.save_as(tmp_path / "a.dcm", enforce_file_format=True)

    with pytest.raises(UnreadableError, match="1 × Microscopy Bulk Simple Annotations"):
        open_slide(tmp_path)
    with pytest.raises(UnreadableError, match="is DICOM, but a Microscopy Bulk Simple Annotations"):
        open_slide(tmp_path / "a.dcm")


MUTATIONS, LIMIT_BYTES = 250, 3 * 2**30
CASES = [
    {}, {"sparse": [5, 3, 0], "offsets": "none"}, {"offsets": "extended"}, NATIVE,
    {"syntax": make.JPEG_2000_LOSSLESS, "encode": make.jpeg_2000, "photometric": "YBR_RCT"},
    {"syntax": make.JPEG_LS, "encode": make.jpeg_ls, "photometric": "RGB"},
    {"syntax": make.RLE, "encode": make.rle, "photometric": "RGB"},
]  # fmt: skip


def read_mutated(folder, seed, num):
    """Read mutated files; anything but a clear error propagates. Runs in a separate process."""
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT_BYTES, LIMIT_BYTES))
    originals = [write_dicom(folder / "a.dcm", sample_image(160, 100), **case).read_bytes() for case in CASES]
    for is_full in (True, False):
        planes = {2.0 * seed: sample_image(160, 100, seed) for seed in range(2)}
        write_dicom_stack(folder / "a.dcm", planes, is_full=is_full)
        originals.append((folder / "a.dcm").read_bytes())
    draw = random.Random(seed)
    refused = 0
    for _ in range(num):
        content = mutated(bytearray(draw.choice(originals)), draw)
        (folder / "a.dcm").write_bytes(content)
        try:
            read_all(folder / "a.dcm")
        except GemslideError:
            refused += 1
    return refused


def mutated(content, draw):
    """File with some bytes changed, mostly in the header, and sometimes its end cut off."""
    header_end = content.index(b"\xe0\x7f\x10\x00")
    for _ in range(draw.choice([1, 1, 2, 4])):
        at = draw.randrange(132, header_end + 60 if draw.random() < 0.7 else len(content))
        length = draw.choice([1, 1, 2, 4])
        content[at : at + length] = bytes(draw.choice([0, 255, draw.randrange(256)]) for _ in range(length))
    return content[: draw.randrange(140, len(content))] if draw.random() < 0.05 else content


def test_mutated_files_are_read_or_refused_and_never_crash_or_take_all_memory(tmp_path):
    code = (
        "import sys, pathlib; from tests.pipeline.slides.test_dicom_damaged import read_mutated; "
        f"print(read_mutated(pathlib.Path(sys.argv[1]), 0, {MUTATIONS}))"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=300
    )

    assert done.returncode == 0, done.stderr[-2000:]
    assert MUTATIONS // 10 < int(done.stdout) < MUTATIONS
