"""What a whole-slide DICOM instance must be for its pixels to come out right, and where each frame lies."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pydicom.dataset import Dataset

from pipeline.errors import DecompressionBombError, NotBrightfieldRgbError, UnreadableError
from pipeline.slides.dicom.header import DICOM_ERRORS, Header
from pipeline.slides.dicom.positions import first_item
from pipeline.slides.limits import MAX_TILE_BYTES, MAX_UNPACK_RATIO, SMALL_CLAIM_BYTES

NATIVE = {"1.2.840.10008.1.2", "1.2.840.10008.1.2.1", "1.2.840.10008.1.2.1.98"}
"""Uncompressed, little endian; the last one encapsulated."""
JPEG = {"1.2.840.10008.1.2.4.50", "1.2.840.10008.1.2.4.51"}
JPEG_2000 = {"1.2.840.10008.1.2.4.90", "1.2.840.10008.1.2.4.91"}
HIGH_THROUGHPUT_JPEG_2000 = {f"1.2.840.10008.1.2.4.{n}" for n in (201, 202, 203)}
RUN_LENGTH = "1.2.840.10008.1.2.5"
OTHERS_OF_RGB = {RUN_LENGTH} | {f"1.2.840.10008.1.2.4.{n}" for n in (57, 70, 80, 81)}
"""RLE, lossless JPEG, JPEG-LS: read where the file says RGB, as their streams cannot say what they hold."""

_EPIFLUORESCENCE = "111743"
_MAX_SPARSE_RATIO = 10 * MAX_UNPACK_RATIO
"""Raw bytes of the whole matrix per byte of file: most of a sparsely tiled slide is not in the file."""
_MAX_TILES = 2**22
_MAX_RUN_LENGTH_BYTES = 4 * 2**20
"""Raw bytes of a run-length frame: two bytes of it can claim 128, and the decoder believes them."""


@dataclass(frozen=True)
class Matrix:
    """The total pixel matrix of one level and how it is cut into frames."""

    width_px: int
    height_px: int
    tile_w_px: int
    tile_h_px: int
    transfer_syntax: str
    photometric: str
    is_planar: bool

    @property
    def columns(self) -> int:
        return -(-self.width_px // self.tile_w_px)

    @property
    def rows(self) -> int:
        return -(-self.height_px // self.tile_h_px)

    @property
    def frame_bytes(self) -> int:
        """Raw bytes of a decoded frame."""
        return self.tile_w_px * self.tile_h_px * 3


def image_kind(header: Header) -> str:
    """volume, label, macro (DICOM: overview) or thumbnail, by Image Type or, in older exports, Frame Type.

    Raises:
        UnreadableError: it says neither; a label must never be taken for the slide.
    """
    said = header.dataset.get("ImageType")
    if not said:
        for groups in (first_item(header.dataset, "SharedFunctionalGroupsSequence"), header.frames.first):
            said = said or first_item(groups, "WholeSlideMicroscopyImageFrameTypeSequence").get("FrameType")
    kinds = {"VOLUME": "volume", "LABEL": "label", "OVERVIEW": "macro", "THUMBNAIL": "thumbnail"}
    kinds["LOCALIZER"] = "thumbnail"  # as drafts of the standard named it
    values = [str(value) for value in said] if said and not isinstance(said, str) else []
    kind = kinds.get(values[2]) if len(values) > 2 else None
    if kind is None:
        raise UnreadableError(
            f"{header.path.name}: does not say whether it is an image of the slide or of its label (Image Type: "
            f"{'/'.join(values) or 'absent'}). Set ImageType to ORIGINAL/PRIMARY/VOLUME/NONE if it shows the tissue."
        )
    return kind


def read_matrix(header: Header, file_bytes: int) -> Matrix:
    """The level's matrix, checked.

    Args:
        file_bytes: of all files the level is spread over, to judge what it claims.

    Raises:
        UnreadableError, DecompressionBombError, NotBrightfieldRgbError: why it cannot be read.
    """
    ds, name = header.dataset, header.path.name
    try:
        matrix = Matrix(
            width_px=int(ds.TotalPixelMatrixColumns),
            height_px=int(ds.TotalPixelMatrixRows),
            tile_w_px=int(ds.Columns),
            tile_h_px=int(ds.Rows),
            transfer_syntax=str(header.transfer_syntax),
            photometric=str(ds.get("PhotometricInterpretation") or "absent"),
            is_planar=int(ds.get("PlanarConfiguration") or 0) == 1,
        )
        _check_pixels_are_rgb(ds, matrix, name)
        _check_one_plane(header)
    except DICOM_ERRORS as error:
        raise UnreadableError(
            f"{name}: does not say what its pixels are ({error}). The file is damaged or no whole-slide image."
        ) from error
    _check_transfer_syntax(header, matrix)
    _check_claim(header, matrix, file_bytes)
    return matrix


def num_frames(header: Header) -> int:
    """Frames the file says it has, at least one."""
    return int(header.dataset.get("NumberOfFrames") or 1)


def position_frames(headers: list[Header], matrix: Matrix) -> NDArray[np.int64]:
    """Number of the frame at every tile, int64 (rows, columns); -1 where there is none.

    Frames of TILED_FULL follow one another row by row (PS3.3, C.7.6.17.3); of TILED_SPARSE each says where it lies.

    Args:
        headers: of all files of the level, in order.

    Raises:
        UnreadableError: frames that do not fit the matrix, or do not say where they lie.
    """
    total = sum(num_frames(header) for header in headers)
    tiles = matrix.rows * matrix.columns
    first = headers[0]
    organization = str(first.dataset.get("DimensionOrganizationType") or "absent")
    has_positions = any(column is not None for header in headers for column in header.frames.columns_px)
    if organization == "TILED_FULL" or (total == tiles == 1 and not has_positions):
        if total != tiles:
            raise _wrong(first, f"its {matrix.columns}×{matrix.rows} tiles need {tiles} frames, it says {total}")
        return np.arange(tiles, dtype=np.int64).reshape(matrix.rows, matrix.columns)
    if not has_positions:
        raise _wrong(
            first, f"its {total} frames do not say where they lie (Dimension Organization Type: {organization})"
        )
    return _by_position(headers, matrix)


def _by_position(headers: list[Header], matrix: Matrix) -> NDArray[np.int64]:
    first = headers[0]
    columns_px = [column for header in headers for column in header.frames.columns_px]
    rows_px = [row for header in headers for row in header.frames.rows_px]
    total = sum(num_frames(header) for header in headers)
    if len(columns_px) != total or None in columns_px or None in rows_px:
        raise _wrong(first, f"of its {total} frames only some say where they lie")
    x_px, y_px = np.array(columns_px, np.int64) - 1, np.array(rows_px, np.int64) - 1
    outside = (x_px < 0) | (y_px < 0) | (x_px >= matrix.width_px) | (y_px >= matrix.height_px)
    if outside.any():
        frame = int(outside.argmax())
        raise _wrong(first, f"frame {frame + 1} lies at x={x_px[frame]}, y={y_px[frame]}, outside the pixel matrix")
    askew = (x_px % matrix.tile_w_px != 0) | (y_px % matrix.tile_h_px != 0)
    if askew.any():
        frame = int(askew.argmax())
        raise _wrong(
            first,
            f"frame {frame + 1} lies at x={x_px[frame]}, y={y_px[frame]}, between the tiles of "
            f"{matrix.tile_w_px}×{matrix.tile_h_px} px; overlapping frames are not read",
        )
    indices = np.full((matrix.rows, matrix.columns), -1, np.int64)
    tile = y_px // matrix.tile_h_px * matrix.columns + x_px // matrix.tile_w_px
    if len(np.unique(tile)) != total:
        raise _wrong(first, "several frames lie at the same place; one focal plane and one optical path are read")
    indices.ravel()[tile] = np.arange(total)
    return indices


def _check_pixels_are_rgb(ds: Dataset, matrix: Matrix, name: str) -> None:
    samples, allocated, stored = (int(ds.get(key) or 0) for key in ("SamplesPerPixel", "BitsAllocated", "BitsStored"))
    is_colour = matrix.photometric == "RGB" or matrix.photometric.startswith("YBR_")
    if (samples, allocated, stored) != (3, 8, 8) or not is_colour:
        raise NotBrightfieldRgbError(
            f"{name}: holds {samples} samples of {allocated} bits ({stored} used), photometric interpretation "
            f"{matrix.photometric}. Only 8-bit brightfield RGB slides are read (no fluorescence, 16-bit, grey or "
            "palette images). Export it as 8-bit RGB."
        )
    for path in ds.get("OpticalPathSequence") or []:
        if str(first_item(path, "IlluminationTypeCodeSequence").get("CodeValue")) == _EPIFLUORESCENCE:
            raise NotBrightfieldRgbError(
                f"{name}: was taken by fluorescence (illumination {_EPIFLUORESCENCE}); only brightfield is read."
            )


def _check_one_plane(header: Header) -> None:
    ds, name = header.dataset, header.path.name
    planes = max(int(ds.get("TotalPixelMatrixFocalPlanes") or 1), len(header.frames.heights))
    paths = max(int(ds.get("NumberOfOpticalPaths") or 1), len(header.frames.optical_paths))
    if planes > 1 or paths > 1:
        raise UnreadableError(
            f"{name}: holds {planes} focal planes and {paths} optical paths; one of each is read. "
            "Export a single plane (or an extended depth of field) in brightfield."
        )


def _check_transfer_syntax(header: Header, matrix: Matrix) -> None:
    syntax = matrix.transfer_syntax
    if syntax not in NATIVE | JPEG | JPEG_2000 | HIGH_THROUGHPUT_JPEG_2000 | OTHERS_OF_RGB:
        raise UnreadableError(
            f"{header.path.name}: its transfer syntax {header.transfer_syntax.name} is not read. Convert it to JPEG, "
            "JPEG 2000 or uncompressed little endian."
        )
    if syntax in NATIVE | OTHERS_OF_RGB and matrix.photometric != "RGB":
        raise NotBrightfieldRgbError(
            f"{header.path.name}: holds {matrix.photometric} under {header.transfer_syntax.name}, where only RGB is "
            "read. Convert it to RGB."
        )


def _check_claim(header: Header, matrix: Matrix, file_bytes: int) -> None:
    frames, raw_bytes = num_frames(header), matrix.width_px * matrix.height_px * 3
    is_full = header.dataset.get("DimensionOrganizationType") == "TILED_FULL"
    ratio = MAX_UNPACK_RATIO if is_full else _MAX_SPARSE_RATIO
    says = (
        f"{header.path.name}: claims {matrix.width_px}×{matrix.height_px} px in {frames} frames of "
        f"{matrix.tile_w_px}×{matrix.tile_h_px} px, {raw_bytes / 2**30:.2f} GiB raw"
    )
    if min(matrix.width_px, matrix.height_px, matrix.tile_w_px, matrix.tile_h_px, frames) < 1:
        raise UnreadableError(f"{says}. The file is damaged.")
    most = _MAX_RUN_LENGTH_BYTES if matrix.transfer_syntax == RUN_LENGTH else MAX_TILE_BYTES
    if matrix.frame_bytes > most:
        raise DecompressionBombError(f"{says}; at most {most >> 20} MiB per frame are read.")
    too_much = raw_bytes > SMALL_CLAIM_BYTES and raw_bytes > ratio * file_bytes
    if too_much or frames > header.file_bytes or matrix.rows * matrix.columns > _MAX_TILES:
        raise DecompressionBombError(f"{says}, in {file_bytes} bytes of file: more than they can hold. It is damaged.")


def _wrong(header: Header, why: str) -> UnreadableError:
    return UnreadableError(f"{header.path.name}: {why}. The file is damaged, incomplete or of a kind that is not read.")
