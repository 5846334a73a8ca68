"""Requirements on a whole-slide DICOM instance for its pixels to come out right; everything else is refused."""

from __future__ import annotations

import numpy as np
from pydicom.dataset import Dataset

from pipeline.codecs import jpeg
from pipeline.codecs.stream_header import StreamError
from pipeline.errors import NotBrightfieldRgbError
from pipeline.slides.common.limits import MAX_TILE_BYTES, MAX_UNPACK_RATIO, most_raw_bytes
from pipeline.slides.common.pyramid import is_reduced_copy
from pipeline.slides.dicom.frames import FrameError
from pipeline.slides.dicom.headers.attributes import integer, items, number, text
from pipeline.slides.dicom.headers.header import Header
from pipeline.slides.dicom.headers.matrix import (
    HIGH_THROUGHPUT_JPEG_2000,
    JPEG,
    JPEG_2000,
    NATIVE,
    OTHERS_OF_RGB,
    RUN_LENGTH,
    Matrix,
    num_frames,
)
from training.foundation.errors import DecompressionBombError, UnreadableError
from training.foundation.words.counts import counted

_EPIFLUORESCENCE = "111743"
_MAX_SPARSE_RATIO = 10 * MAX_UNPACK_RATIO
"""Raw bytes of the whole matrix per byte of file: most of a sparsely tiled slide is not in the file."""
_MAX_TILES = 2**22
_MAX_RUN_LENGTH_BYTES = 4 * 2**20
"""Raw bytes of a run-length frame: two bytes of it can claim 128, and the decoder trusts them."""
_RUN_LENGTH_HEADER_BYTES, _COLOURS = 64, 3
_SAME_IN_A_SERIES = ("PatientID", "PatientName", "ContainerIdentifier", "StudyInstanceUID")
_SAME_IN_LEVELS = (*_SAME_IN_A_SERIES, "FrameOfReferenceUID")
"""The label and the overview may be positioned in frames of their own."""
_MAX_SCALE_ERROR = 0.1
"""Largest relative deviation of two levels' ratio of pixel sizes from the ratio of their matrices."""


def check_matrix(header: Header, matrix: Matrix, file_bytes: int) -> None:
    """Check that a file's pixels can be read as a level.

    Args:
        file_bytes: of all files of the level, to judge what it claims.

    Raises:
        UnreadableError, DecompressionBombError, NotBrightfieldRgbError: they cannot.
    """
    _check_pixels_are_rgb(header.dataset, matrix, header.path.name)
    _check_one_path(header)
    _check_transfer_syntax(header, matrix)
    _check_claim(header, matrix, file_bytes)


def check_pyramid(levels: list[tuple[Matrix, tuple[float, float] | None]], name: str) -> None:
    """Check that levels are one image at decreasing sizes: separate regions cannot be distinguished.

    Args:
        levels: matrix and microns per pixel of each, finest first.

    Raises:
        UnreadableError: they are not.
    """
    first, finest_mpp = levels[0]
    widths_px = {matrix.width_px for matrix, _ in levels}
    if len(widths_px) != len(levels):
        raise UnreadableError(
            f"{name}: several images of the same width ({sorted(widths_px)} px) and height above the glass. Optical "
            "paths or regions are not read together; name a single file."
        )
    for matrix, mpp in levels[1:]:
        is_copy = is_reduced_copy((matrix.width_px, matrix.height_px), (first.width_px, first.height_px))
        if finest_mpp and mpp:
            downsample = first.width_px / matrix.width_px
            is_copy &= abs(mpp[0] / finest_mpp[0] / downsample - 1) <= _MAX_SCALE_ERROR
        if not is_copy:
            raise UnreadableError(
                f"{name}: its images of {first.width_px}×{first.height_px} and {matrix.width_px}×"
                f"{matrix.height_px} px are not the same field at two sizes. Name a single file."
            )


def check_one_slide(levels: list[Header], others: list[Header], name: str) -> None:
    """Check that images of a series are of one slide of one patient: PS3.3 has these attributes alike in all of them.

    Args:
        others: label, overview and thumbnail.

    Raises:
        UnreadableError: two images state different values.
    """
    differing = [key for key in _SAME_IN_A_SERIES if len(_stated([*levels, *others], key)) > 1]
    differing += [key for key in _SAME_IN_LEVELS if key not in differing and len(_stated(levels, key)) > 1]
    if differing:
        raise UnreadableError(
            f"{name}: its images are of one series but differ in {', '.join(differing)}, so they are not levels of one "
            "slide. Put each slide's files into a folder of its own."
        )


def _stated(headers: list[Header], keyword: str) -> set[str]:
    return {text(header.dataset, keyword).strip("^ ") for header in headers} - {""}


def first_frame(header: Header) -> int:
    """Number of the first frame of a part among all frames of its concatenation."""
    return integer(header.dataset, "ConcatenationFrameOffsetNumber")


def check_parts(parts: list[Header]) -> None:
    """Check that the parts of a concatenation, in order, are complete. Raises UnreadableError."""
    expected = 0
    for part in parts:
        if first_frame(part) != expected:
            raise UnreadableError(
                f"{part.path.name}: begins with frame {first_frame(part) + 1} of its concatenation where frame "
                f"{expected + 1} should follow. A part is missing or duplicated; put all parts into one folder."
            )
        expected += num_frames(part)
    total = integer(parts[0].dataset, "InConcatenationTotalNumber")
    if total and total != len(parts):
        raise UnreadableError(
            f"{parts[0].path.name}: {counted(len(parts), 'is', 'are')} present of its concatenation's "
            f"{counted(total, 'part')}."
        )


def check_claimed_size(matrix: Matrix, stream: bytes) -> None:
    """Refuse a JPEG of any process whose own header claims another size, before a decoder allocates memory for it.

    Raises:
        FrameError: no frame header, or another size.
    """
    try:
        headers = jpeg.claimed_headers(stream)
        for header in headers:
            header.check_is_tile(matrix.tile_w_px, matrix.tile_h_px)
    except StreamError as error:
        raise FrameError(str(error)) from error
    if not headers:
        raise FrameError("it has no JPEG frame header")


def check_run_lengths(matrix: Matrix, payload: bytes) -> None:
    """Refuse a run-length header (PS3.5, G.5) that points outside its frame: the decoder would follow it.

    Raises:
        FrameError: not one segment per colour, segments outside the frame, or far too many bytes.
    """
    if len(payload) > 2 * matrix.frame_bytes + _RUN_LENGTH_HEADER_BYTES:
        raise FrameError(f"its {len(payload)} bytes of run lengths are more than twice the pixels")
    num_segments, *offsets = np.frombuffer(payload[:_RUN_LENGTH_HEADER_BYTES], "<u4").tolist() or [0]
    bounds = [*offsets[:_COLOURS], len(payload)]
    if num_segments != _COLOURS or bounds[0] != _RUN_LENGTH_HEADER_BYTES or bounds != sorted(set(bounds)):
        raise FrameError(f"its run lengths claim {num_segments} segments at {bounds[:-1]} of {len(payload)} bytes")


def _check_pixels_are_rgb(ds: Dataset, matrix: Matrix, name: str) -> None:
    samples, allocated, stored = (integer(ds, key) for key in ("SamplesPerPixel", "BitsAllocated", "BitsStored"))
    is_colour = matrix.photometric == "RGB" or matrix.photometric.startswith("YBR_")
    if (samples, allocated, stored) != (3, 8, 8) or not is_colour:
        raise NotBrightfieldRgbError(
            f"{name}: holds {samples} samples of {allocated} bits ({stored} used), photometric interpretation "
            f"{matrix.photometric}. Only 8-bit brightfield RGB slides are read (no fluorescence, 16-bit, grey or "
            "palette images). Export it as 8-bit RGB."
        )
    for path in items(ds, "OpticalPathSequence"):
        codes = [text(item, "CodeValue") for item in items(path, "IlluminationTypeCodeSequence")]
        wavelength_nm = number(path, "IlluminationWaveLength")
        if _EPIFLUORESCENCE in codes or wavelength_nm:
            how = f"illumination {_EPIFLUORESCENCE}" if _EPIFLUORESCENCE in codes else f"light of {wavelength_nm:g} nm"
            raise NotBrightfieldRgbError(f"{name}: was imaged in fluorescence ({how}); only brightfield is read.")


def _check_one_path(header: Header) -> None:
    paths = max(1, integer(header.dataset, "NumberOfOpticalPaths"), len(header.frames.optical_paths))
    if paths > 1:
        raise UnreadableError(
            f"{header.path.name}: holds {paths} optical paths; one is read. Export a single one, in brightfield."
        )


def _check_transfer_syntax(header: Header, matrix: Matrix) -> None:
    syntax = matrix.transfer_syntax
    if syntax not in NATIVE | JPEG | JPEG_2000 | HIGH_THROUGHPUT_JPEG_2000 | OTHERS_OF_RGB:
        raise UnreadableError(
            f"{header.path.name}: its transfer syntax {header.transfer_syntax.name} is not supported. Convert it to "
            "JPEG, JPEG 2000 or uncompressed little endian."
        )
    if syntax in NATIVE | OTHERS_OF_RGB and matrix.photometric != "RGB":
        raise NotBrightfieldRgbError(
            f"{header.path.name}: holds {matrix.photometric} under {header.transfer_syntax.name}, where only RGB is "
            "read. Convert it to RGB."
        )


def _check_claim(header: Header, matrix: Matrix, file_bytes: int) -> None:
    frames, raw_bytes = num_frames(header), matrix.width_px * matrix.height_px * 3
    raw_bytes *= max(1, integer(header.dataset, "TotalPixelMatrixFocalPlanes"))
    is_full = text(header.dataset, "DimensionOrganizationType") == "TILED_FULL"
    ratio = MAX_UNPACK_RATIO if is_full else _MAX_SPARSE_RATIO
    claim = (
        f"{header.path.name}: claims {matrix.width_px}×{matrix.height_px} px in {frames} frames of "
        f"{matrix.tile_w_px}×{matrix.tile_h_px} px, {raw_bytes / 2**30:.2f} GiB raw"
    )
    if min(matrix.width_px, matrix.height_px, matrix.tile_w_px, matrix.tile_h_px, frames) < 1:
        raise UnreadableError(f"{claim}. The file is damaged.")
    most = _MAX_RUN_LENGTH_BYTES if matrix.transfer_syntax == RUN_LENGTH else MAX_TILE_BYTES
    if matrix.frame_bytes > most:
        raise DecompressionBombError(f"{claim}; at most {most >> 20} MiB per frame are read.")
    if (
        raw_bytes > most_raw_bytes(file_bytes, ratio)
        or frames > header.file_bytes
        or matrix.rows * matrix.columns > _MAX_TILES
    ):
        raise DecompressionBombError(f"{claim}, in {file_bytes} bytes of file: more than they can hold. It is damaged.")
