"""Items of encapsulated pixel data (DICOM PS3.5, A.4): a frame is one fragment or several, each with a header."""

from __future__ import annotations

from pipeline.codecs.stream_header import StreamError

ITEM_HEADER_BYTES = 8
_ITEM = b"\xfe\xff\x00\xe0"


def item_length(head: bytes) -> int | None:
    """Length of the item that begins with these bytes; None if none does."""
    if len(head) < ITEM_HEADER_BYTES or head[:4] != _ITEM:
        return None
    return int.from_bytes(head[4:ITEM_HEADER_BYTES], "little")


def fragments_joined(data: memoryview) -> memoryview:
    """A frame's own bytes, from all of its items.

    Raises:
        StreamError: its items are incomplete.
    """
    if item_length(bytes(data[:ITEM_HEADER_BYTES])) == len(data) - ITEM_HEADER_BYTES:
        return data[ITEM_HEADER_BYTES:]
    fragments = []
    at = 0
    while at < len(data):
        length = item_length(bytes(data[at : at + ITEM_HEADER_BYTES]))
        if length is None or at + ITEM_HEADER_BYTES + length > len(data):
            raise StreamError(f"no whole item at byte {at} of its {len(data)}")
        at += ITEM_HEADER_BYTES
        fragments.append(data[at : at + length])
        at += length
    return memoryview(b"".join(fragments))
