"""Header of a DICOM file (everything before its pixels), read through pydicom in bounded memory."""

from __future__ import annotations

import io
import logging
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pydicom
from pydicom.dataset import Dataset
from pydicom.filereader import read_dataset, read_partial, read_sequence_item
from pydicom.uid import UID, DeflatedExplicitVRLittleEndian

from pipeline.slides.common.damage import DamagedFileError
from pipeline.slides.common.reading import PositionedFile
from pipeline.slides.dicom.headers.attributes import integer, pydicom_errors, text, values
from pipeline.slides.dicom.headers.positions import FramePositions
from training.foundation.errors import UnreadableError

# pydicom reports oddities of damaged files through logging and warnings; our errors say what matters.
logging.getLogger("pydicom").setLevel(logging.CRITICAL)
pydicom.config.settings.reading_validation_mode = pydicom.config.IGNORE

WHOLE_SLIDE_IMAGE = "1.2.840.10008.5.1.4.1.1.77.1.6"
"""SOP class VL Whole Slide Microscopy Image Storage."""

_MAX_META_BYTES = 2**16
_MAX_HEADER_BYTES = 256 * 2**20
_MAX_FRAME_ITEM_BYTES = 2**20
_AFTER_MATRIX_SIZE = 0x00480008
_PER_FRAME_GROUPS = 0x52009230
_PIXEL_DATA, _FLOAT_PIXELS = 0x7FE00010, {0x7FE00008, 0x7FE00009}
_ITEM, _UNDEFINED_LENGTH = b"\xfe\xff\x00\xe0", 0xFFFFFFFF


@dataclass(frozen=True)
class Brief:
    """Series and kind of a file, read from its first few kilobytes."""

    path: Path
    sop_class: str
    series_uid: str
    matrix_wh: tuple[int, int]
    """(0, 0) if it is not a tiled image."""
    concatenation_uid: str | None
    image_type: str = ""
    """Third value of Image Type (VOLUME, LABEL, OVERVIEW, THUMBNAIL); "" where older exports state it elsewhere."""

    @property
    def kind(self) -> str:
        """The SOP class by its name."""
        return UID(self.sop_class).name.removesuffix(" Storage") or "unknown kind of object"


@dataclass(frozen=True)
class Header:
    """One file's attributes, and the position of its pixel data."""

    path: Path
    dataset: Dataset
    transfer_syntax: UID
    frames: FramePositions
    pixels_at: int
    """Byte position of the first byte of Pixel Data's value."""
    pixel_bytes: int | None
    """Length of that value; None if it is encapsulated (of undefined length)."""
    file_bytes: int


def read_brief(path: Path) -> Brief:
    """Read as far as the size of the pixel matrix.

    Raises:
        UnreadableError: not DICOM, or cut short or damaged up to there.
    """
    with refusing_damage(path), PositionedFile(path, _MAX_HEADER_BYTES) as raw:
        _refuse_deflated(raw, path.name)
        with pydicom_errors():
            ds = read_partial(_buffered(raw), stop_when=lambda tag, vr, length: tag >= _AFTER_MATRIX_SIZE)
        sop_class = text(ds, "SOPClassUID") or text(ds.file_meta, "MediaStorageSOPClassUID")
        if not sop_class:
            raise DamagedFileError("it does not say what kind of object it is (no SOP Class UID)")
        return Brief(
            path=path,
            sop_class=sop_class,
            series_uid=text(ds, "SeriesInstanceUID"),
            matrix_wh=(integer(ds, "TotalPixelMatrixColumns"), integer(ds, "TotalPixelMatrixRows")),
            concatenation_uid=text(ds, "ConcatenationUID") or None,
            image_type=str((values(ds, "ImageType") + [""] * 3)[2]),
        )


def read_header(path: Path) -> Header:
    """Read everything before the pixels; per-frame groups one by one, as there may be hundreds of thousands.

    Raises:
        UnreadableError: not DICOM, no pixel data, cut short or damaged.
    """
    with refusing_damage(path), PositionedFile(path, _MAX_HEADER_BYTES) as raw:
        _refuse_deflated(raw, path.name)
        stream = _buffered(raw)
        with pydicom_errors():
            ds = read_partial(stream, stop_when=lambda tag, vr, length: tag >= _PER_FRAME_GROUPS)
        syntax = _transfer_syntax(ds, path.name)
        reader = _Elements(raw, stream, is_implicit=syntax.is_implicit_VR, is_little=syntax.is_little_endian)
        frames = FramePositions()
        if reader.peek_tag() == _PER_FRAME_GROUPS:
            # Frames of TILED_FULL are in order; only the first one's groups can hold anything else of interest, except
            # where there are several focal planes.
            is_full = text(ds, "DimensionOrganizationType") == "TILED_FULL"
            only_first = is_full and integer(ds, "TotalPixelMatrixFocalPlanes") <= 1
            reader.read_positions(frames, integer(ds, "NumberOfFrames") or 1, only_first=only_first)
        reader.add_rest(ds)
        tag, length = reader.next_element()
        if tag != _PIXEL_DATA:
            raise DamagedFileError("it has no pixel data, or ends before them")
        return Header(
            path=path,
            dataset=ds,
            transfer_syntax=syntax,
            frames=frames,
            pixels_at=stream.tell(),
            pixel_bytes=None if length == _UNDEFINED_LENGTH else length,
            file_bytes=path.stat().st_size,
        )


@contextmanager
def refusing_damage(path: Path) -> Iterator[None]:
    """Turn damage to a file into the error that names it."""
    try:
        yield
    except DamagedFileError as error:
        raise UnreadableError(
            f"{path.name}: its header cannot be read ({error}). The file is damaged or cut short; copy it again."
        ) from error


def _buffered(raw: PositionedFile) -> io.BufferedReader:
    raw.seek(0)
    return io.BufferedReader(raw, buffer_size=2**16)


def _transfer_syntax(ds: Dataset, name: str) -> UID:
    syntax = UID(text(ds.file_meta, "TransferSyntaxUID"))
    with pydicom_errors():
        is_known = bool(syntax.is_transfer_syntax)
    if not is_known:
        raise UnreadableError(f"{name}: its transfer syntax {syntax} is unknown. Convert it to another.")
    return syntax


def _refuse_deflated(raw: PositionedFile, name: str) -> None:
    """Refuse deflated DICOM: its whole content would have to be unpacked to read the header."""
    head = io.BytesIO(raw.read(_MAX_META_BYTES))
    with pydicom_errors():
        try:
            meta = read_partial(head, stop_when=lambda tag, vr, length: True).file_meta
        except zlib.error:  # pydicom starts to unpack at once
            raise _deflated(name) from None
    syntax = text(meta, "TransferSyntaxUID")
    if not syntax:
        raise DamagedFileError(f"its first {_MAX_META_BYTES} bytes name no transfer syntax")
    if syntax == DeflatedExplicitVRLittleEndian:
        raise _deflated(name)


def _deflated(name: str) -> UnreadableError:
    return UnreadableError(f"{name}: the whole file is deflated DICOM. Convert it to another transfer syntax.")


class _Elements:
    """The data elements of a stream, one header at a time."""

    def __init__(self, raw: PositionedFile, stream: io.BufferedReader, *, is_implicit: bool, is_little: bool) -> None:
        self._raw, self._stream, self._is_implicit, self._is_little = raw, stream, is_implicit, is_little
        self._order = "<" if is_little else ">"

    def allow(self, more_bytes: int) -> None:
        """Allow so many more bytes to be read from here."""
        self._raw.stop_at = self._stream.tell() + more_bytes

    def add_rest(self, ds: Dataset) -> None:
        """Read everything between here and the pixels into a data set."""
        self.allow(_MAX_HEADER_BYTES)
        with pydicom_errors():
            ds.update(
                read_dataset(
                    self._stream, self._is_implicit, self._is_little,
                    stop_when=lambda tag, vr, length: tag in _FLOAT_PIXELS or tag >= _PIXEL_DATA,
                )
            )  # fmt: skip

    def peek_tag(self) -> int | None:
        """Tag of the next element, None at the end of the file."""
        at = self._stream.tell()
        head = self._stream.read(4)
        self._stream.seek(at)
        if len(head) < 4:
            return None
        group, element = struct.unpack(f"{self._order}HH", head)
        return int(group << 16 | element)

    def next_element(self) -> tuple[int, int]:
        """Tag and length; the stream is left at the value. (0, 0) at the end of the file."""
        head = self._stream.read(8)
        if len(head) < 8:
            return 0, 0
        group, element, length = struct.unpack(f"{self._order}HHL", head)
        if not self._is_implicit:
            if head[4:6] not in (b"SQ", b"OB", b"OW", b"UN"):
                raise DamagedFileError(f"element ({group:04x},{element:04x}) has the VR {head[4:6]!r}")
            if head[4:6] == b"UN" and group == 0x5200:
                raise DamagedFileError("its per-frame groups are stored as an unknown kind (UN)")
            longer = self._stream.read(4)
            if len(longer) < 4:
                return 0, 0
            (length,) = struct.unpack(f"{self._order}L", longer)
        return int(group << 16 | element), int(length)

    def read_positions(self, frames: FramePositions, num_frames: int, *, only_first: bool) -> None:
        """Read the sequence of per-frame groups that starts here, item by item; the stream is left just after it."""
        _, length = self.next_element()
        end = None if length == _UNDEFINED_LENGTH else self._stream.tell() + length
        num_items = 0
        is_plain = not self._is_implicit and self._is_little
        while end is None or self._stream.tell() < end:
            if num_items and only_first and end is not None:
                self._stream.seek(end)
                return
            self.allow(_MAX_FRAME_ITEM_BYTES)
            item = self._next_encoded_item() if num_items and is_plain else None
            if item is not None:
                frames.add_encoded(item)
            else:
                with pydicom_errors():
                    groups = read_sequence_item(self._stream, self._is_implicit, self._is_little, "iso8859")
                if groups is None:
                    return
                frames.add(groups)
            num_items += 1
            if num_items > num_frames:
                raise DamagedFileError(f"it has per-frame groups for more than its {num_frames} frames")
        if end is not None and self._stream.tell() != end:
            raise DamagedFileError("its per-frame groups do not end where they should")

    def _next_encoded_item(self) -> bytes | None:
        """Bytes of the item that starts here; None, with nothing read, if its length is undefined or there is none."""
        at = self._stream.tell()
        head = self._stream.read(8)
        length = int.from_bytes(head[4:], "little")
        if head[:4] != _ITEM or length == _UNDEFINED_LENGTH:
            self._stream.seek(at)
            return None
        item = self._stream.read(min(length, _MAX_FRAME_ITEM_BYTES))
        if len(item) != length:
            raise DamagedFileError(f"a frame's groups claim {length} bytes")
        return item
