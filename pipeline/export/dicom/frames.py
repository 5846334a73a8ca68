"""Encapsulated frames of one DICOM file, written as they come: few of them are in memory.

DICOM PS3.5, A.4: an empty basic offset table, then an item per frame, padded to an even length. Where the items begin,
and how long they are, is in the extended offset table (PS3.3, C.7.6.3.1.8), which comes before them in the file; it is
filled in at the end.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable
from typing import BinaryIO

from pydicom import dcmwrite
from pydicom.dataset import Dataset

from pipeline.export.dicom.behind import WrittenBehind

_ITEM, _END_OF_SEQUENCE = b"\xfe\xff\x00\xe0", b"\xfe\xff\xdd\xe0\0\0\0\0"
_PIXEL_DATA = b"\xe0\x7f\x10\x00OB\0\0\xff\xff\xff\xff"
_ELEMENT_HEADER_BYTES, _ITEM_HEADER_BYTES, _OFFSET_BYTES = 12, 8, 8


def write_file(stream: BinaryIO, dataset: Dataset, some_frames: Iterable[list[bytes]]) -> None:
    """Write a dataset and its frames.

    Args:
        dataset: with `file_meta` and NumberOfFrames, without pixel data.
        some_frames: encoded streams, in order; as many as NumberOfFrames in all.
    """
    num_frames = int(dataset.NumberOfFrames)
    dataset.ExtendedOffsetTable = dataset.ExtendedOffsetTableLengths = bytes(_OFFSET_BYTES * num_frames)
    dcmwrite(stream, dataset, enforce_file_format=True)
    # These two elements are the last in the file so far.
    tables_at = stream.tell() - 2 * (_ELEMENT_HEADER_BYTES + _OFFSET_BYTES * num_frames)
    stream.write(_PIXEL_DATA + _ITEM + bytes(4))
    lengths = _write_items(stream, some_frames)
    assert len(lengths) == num_frames
    stream.write(_END_OF_SEQUENCE)
    end = stream.tell()
    offsets, at = array("Q"), 0
    for length in lengths:
        offsets.append(at)
        at += _ITEM_HEADER_BYTES + length
    for number, table in enumerate((offsets, lengths)):
        stream.seek(tables_at + number * (_ELEMENT_HEADER_BYTES + _OFFSET_BYTES * num_frames) + _ELEMENT_HEADER_BYTES)
        stream.write(struct.pack(f"<{num_frames}Q", *table))
    stream.seek(end)


def _write_items(stream: BinaryIO, some_frames: Iterable[list[bytes]]) -> array[int]:
    """Write the frames. Returns their lengths, with padding."""
    lengths = array("Q")
    with WrittenBehind(stream) as file:
        for frames in some_frames:
            for frame in frames:
                padding = b"\0" * (len(frame) % 2)
                lengths.append(len(frame) + len(padding))
                file.append((_ITEM, lengths[-1].to_bytes(4, "little"), frame, padding))
    return lengths
