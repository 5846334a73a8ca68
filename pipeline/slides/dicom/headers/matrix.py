"""Pixels of a whole-slide DICOM instance as its file describes them: total pixel matrix, frames, kind of image."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.slides.common.damage import DamagedFileError
from pipeline.slides.dicom.headers.attributes import first_item, integer, text, values
from pipeline.slides.dicom.headers.header import Header
from training.foundation.errors import UnreadableError

NATIVE = {"1.2.840.10008.1.2", "1.2.840.10008.1.2.1", "1.2.840.10008.1.2.1.98"}
"""Uncompressed, little endian; the last one encapsulated."""
JPEG = {"1.2.840.10008.1.2.4.50", "1.2.840.10008.1.2.4.51"}
JPEG_2000 = {"1.2.840.10008.1.2.4.90", "1.2.840.10008.1.2.4.91"}
HIGH_THROUGHPUT_JPEG_2000 = {f"1.2.840.10008.1.2.4.{n}" for n in (201, 202, 203)}
RUN_LENGTH = "1.2.840.10008.1.2.5"
OTHERS_OF_RGB = {RUN_LENGTH} | {f"1.2.840.10008.1.2.4.{n}" for n in (57, 70, 80, 81)}
"""RLE, lossless JPEG, JPEG-LS: read if the file says RGB, as their streams cannot state what they hold."""


IMAGE_KINDS = {"VOLUME": "volume", "LABEL": "label", "OVERVIEW": "macro", "THUMBNAIL": "thumbnail"}
IMAGE_KINDS["LOCALIZER"] = "thumbnail"  # as drafts of the standard named it


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
        UnreadableError: it states neither; a label must never be mistaken for the slide.
    """
    image_type = values(header.dataset, "ImageType")
    for groups in (first_item(header.dataset, "SharedFunctionalGroupsSequence"), header.frames.first):
        image_type = image_type or values(first_item(groups, "WholeSlideMicroscopyImageFrameTypeSequence"), "FrameType")
    kind = IMAGE_KINDS.get(str(image_type[2])) if len(image_type) > 2 else None
    if kind is None:
        raise UnreadableError(
            f"{header.path.name}: does not say whether it is an image of the slide or of its label (Image Type: "
            f"{'/'.join(map(str, image_type)) or 'absent'}). "
            "Set ImageType to ORIGINAL/PRIMARY/VOLUME/NONE if it shows the tissue."
        )
    return kind


def read_matrix(header: Header) -> Matrix:
    """The level's matrix as the file states it, to be checked by `validate.check_matrix`.

    Raises:
        UnreadableError: it does not state it.
    """
    ds = header.dataset
    try:
        return Matrix(
            width_px=integer(ds, "TotalPixelMatrixColumns"),
            height_px=integer(ds, "TotalPixelMatrixRows"),
            tile_w_px=integer(ds, "Columns"),
            tile_h_px=integer(ds, "Rows"),
            transfer_syntax=str(header.transfer_syntax),
            photometric=text(ds, "PhotometricInterpretation") or "absent",
            is_planar=integer(ds, "PlanarConfiguration") == 1,
        )
    except DamagedFileError as error:
        raise UnreadableError(
            f"{header.path.name}: does not describe its pixels ({error}). The file is damaged or not a "
            "whole-slide image."
        ) from error


def num_frames(header: Header) -> int:
    """Number of frames that the file claims, at least one."""
    return integer(header.dataset, "NumberOfFrames") or 1
