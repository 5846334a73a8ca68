"""JPEG 2000 streams as bytes (ISO/IEC 15444-1, annex A): one parser that copies only what it knows.

Of a JP2 file only the codestream is kept, and of that only what pixels are decoded with. Comments, lengths that only
speed up reading, boxes, unknown segments and everything after the end are dropped.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from pipeline.codecs.stream_header import StreamError, StreamHeader

START, _END = b"\xff\x4f", b"\xff\xd9"
_SIZE, _TILE_PART, _DATA = 0xFF51, 0xFF90, 0xFF93
_CAPABILITIES, _STYLE, _COMPONENT_STYLE = 0xFF50, 0xFF52, 0xFF53
_STEPS, _COMPONENT_STEPS, _REGION, _ORDER = 0xFF5C, 0xFF5D, 0xFF5E, 0xFF5F
_HEADERS_OF_STREAM, _HEADERS_OF_PART = 0xFF60, 0xFF61
_IN_BOTH = frozenset({_STYLE, _COMPONENT_STYLE, _STEPS, _COMPONENT_STEPS, _REGION, _ORDER})
_IN_MAIN_HEADER = _IN_BOTH | {_SIZE, _CAPABILITIES, _HEADERS_OF_STREAM}
_IN_TILE_PART = _IN_BOTH | {_HEADERS_OF_PART}
_MAY_BE_LONGER = frozenset({_STEPS, _COMPONENT_STEPS})
"""Some encoders list steps for more bands than they use."""
_WITHOUT_LENGTH = range(0xFF30, 0xFF40)
_TILE_PART_BYTES, _STYLE_BYTES = 12, 10
_BOX_FILE = b"\0\0\0\x0cjP  "
"""The first bytes of a JP2 file, which holds the codestream in a box."""
_CODESTREAM_BOX = b"jp2c"


class Jpeg2000Error(StreamError):
    """The bytes are not a JPEG 2000 stream this project can pass through."""


@dataclass(frozen=True)
class Jpeg2000Header(StreamHeader):
    """Header of a JPEG 2000 stream."""

    has_colour_transform: bool
    is_reversible: bool
    """Whether its wavelet loses nothing."""


@dataclass(frozen=True)
class Jpeg2000Start:
    """The main header of one encoder's tiles, and its replacement in a complete stream."""

    own: bytes
    head: bytes

    def end(self, data: bytes | memoryview, start: int, end: int) -> int | None:
        """End of the image of a tile in `data[start:end]` that begins like this: just after its end marker.

        None unless a single tile part without segments of its own follows: any other tile must be parsed.
        """
        at = start + len(self.own)
        if at + _TILE_PART_BYTES + 2 > end:
            return None
        marker, length, tile, num_bytes, part, num_parts, then = struct.unpack_from(">HHHIBBH", data, at)
        is_single = (marker, length, tile, part, then) == (_TILE_PART, 10, 0, 0, _DATA) and num_parts <= 1
        stop = at + num_bytes + len(_END)
        is_whole = num_bytes > _TILE_PART_BYTES + 2 and stop <= end and data[stop - len(_END) : stop] == _END
        return stop if is_single and is_whole else None


@dataclass(frozen=True)
class Jpeg2000:
    """A parsed stream: only what its pixels need."""

    header: Jpeg2000Header
    own_start: bytes
    """The stream's own bytes up to the first tile part."""
    head: bytes
    """Their replacement in a complete stream."""
    coded: bytes
    """The tile parts and the end marker."""

    def start(self) -> Jpeg2000Start:
        """Start shared by tiles of the same encoder."""
        return Jpeg2000Start(self.own_start, self.head)


def parse(stream: bytes) -> Jpeg2000:
    """Read a codestream, or that of a JP2 file, up to its end marker.

    Raises:
        Jpeg2000Error: not a codestream, of components of unequal kind, damaged or cut short.
    """
    check_end(stream)
    start, end = _codestream(stream)
    size = _read_size(stream, start)
    segments, at = _segments(stream[:end], start + len(START), stop=_TILE_PART)
    styles = [body for marker, body in segments if marker == _STYLE]
    if len(styles) != 1 or len(styles[0]) < _STYLE_BYTES:
        raise Jpeg2000Error("has no coding style, or several")
    if len(set(size.kinds)) != 1:
        raise Jpeg2000Error(f"its {len(size.kinds)} components differ in depth or sampling")
    bits, has_colour_transform, is_reversible = (size.kinds[0][0] & 0x7F) + 1, styles[0][4] != 0, styles[0][9] == 1
    header = Jpeg2000Header(size.width_px, size.height_px, len(size.kinds), bits, has_colour_transform, is_reversible)
    rules = _Rules(len(size.kinds), _num_levels(segments, len(size.kinds)))
    head = START + rules.kept(segments, _IN_MAIN_HEADER)
    return Jpeg2000(header, stream[:at], head, b"".join(_tile_parts(stream[:end], at, size.num_tiles, rules)))


def check_claim(stream: bytes, max_bytes: int) -> None:
    """Check that a decoder allocates `max_bytes` of pixels at most: it trusts the header, whatever the file says.

    Raises:
        StreamError: more, or not a codestream.
    """
    read_size(stream).check_claim(max_bytes)


def read_size(stream: bytes) -> StreamHeader:
    """The size and number of components that a codestream states; it may be cut short after them.

    Raises:
        Jpeg2000Error: not a codestream.
    """
    size = _read_size(stream, _codestream(stream)[0])
    return StreamHeader(size.width_px, size.height_px, len(size.kinds), bits=8)


def check_end(stream: bytes) -> None:
    """Refuse a stream that ends in zeros. Decoders do without the end marker, so only these count as damage.

    Raises:
        Jpeg2000Error: the end was overwritten with zeros.
    """
    if stream.endswith(bytes(8)) and stream.rfind(_END) < 0:
        raise Jpeg2000Error(f"its {len(stream)} bytes end in zeros, without an end marker (ffd9)")


def _codestream(stream: bytes) -> tuple[int, int]:
    """Start and end of the codestream; a JP2 file has it in a box (annex I)."""
    if not stream.startswith(_BOX_FILE):
        return 0, len(stream)
    at = 0
    while at + 8 <= len(stream):
        length, kind = struct.unpack_from(">I4s", stream, at)
        first = at + 8
        if length == 1 and at + 16 <= len(stream):
            (length,) = struct.unpack_from(">Q", stream, first)
            first = at + 16
        end = len(stream) if length == 0 else at + length
        if not first <= end <= len(stream):
            break
        if kind == _CODESTREAM_BOX:
            return first, end
        at = end
    raise Jpeg2000Error("a JP2 file without a whole codestream in it")


@dataclass(frozen=True)
class _Size:
    """The size segment, which comes right after the start of every codestream (A.5.1)."""

    width_px: int
    height_px: int
    num_tiles: int
    kinds: tuple[tuple[int, int, int], ...]
    """Depth and sampling of each component."""


def _read_size(stream: bytes, start: int) -> _Size:
    if not stream.startswith(START + _SIZE.to_bytes(2, "big"), start):
        raise Jpeg2000Error(f"starts with {stream[start : start + 4].hex()}, not ff4fff51")
    try:
        right, bottom, left, top, tile_w, tile_h, tiles_left, tiles_top, num = struct.unpack_from(
            ">8IH", stream, start + 8
        )
        kinds = tuple(struct.unpack_from(">3B", stream, start + 42 + 3 * i) for i in range(num))
    except struct.error as error:
        raise Jpeg2000Error(f"its {len(stream)} bytes end inside the header") from error
    if not (kinds and tile_w and tile_h):
        raise Jpeg2000Error(f"states {num} components in tiles of {tile_w}×{tile_h} px")
    num_tiles = -(-(right - tiles_left) // tile_w) * -(-(bottom - tiles_top) // tile_h)
    return _Size(right - left, bottom - top, num_tiles, kinds)


def _segments(stream: bytes, at: int, *, stop: int) -> tuple[list[tuple[int, bytes]], int]:
    """Marker and body of the segments from a byte on, and the position of the marker at which they stop."""
    segments: list[tuple[int, bytes]] = []
    while at + 4 <= len(stream):
        marker, length = struct.unpack_from(">HH", stream, at)
        if marker == stop:
            return segments, at
        if marker in _WITHOUT_LENGTH:
            at += 2
            continue
        if marker < 0xFF01 or not 2 <= length <= len(stream) - at - 2:
            break
        segments.append((marker, stream[at + 4 : at + 2 + length]))
        at += 2 + length
    raise Jpeg2000Error(f"no whole segment at byte {at} of its {len(stream)}")


def _num_levels(segments: list[tuple[int, bytes]], components: int) -> int:
    """The most decompositions that a style segment specifies."""
    at = {_STYLE: 5, _COMPONENT_STYLE: _index_bytes(components) + 1}
    return max([body[at[marker]] for marker, body in segments if marker in at and len(body) > at[marker]], default=0)


def _index_bytes(components: int) -> int:
    return 1 if components < 257 else 2


@dataclass(frozen=True)
class _Rules:
    """Rules for which segments are kept, and how long each is."""

    components: int
    levels: int

    def kept(self, segments: list[tuple[int, bytes]], known: frozenset[int]) -> bytes:
        """The known segments of a header, each cut to what it needs.

        Raises:
            Jpeg2000Error: one occurs twice, is of a missing component, or of another length than its content needs.
        """
        kept, seen = [], set()
        for marker, body in segments:
            if marker not in known:
                continue
            what = (marker, self._segment_index(marker, body))
            length = self._length(marker, body)
            if what in seen or length > len(body) or (length < len(body) and marker not in _MAY_BE_LONGER):
                raise Jpeg2000Error(f"a segment {marker:04x} of {len(body)} bytes where {length} belong, or repeated")
            seen.add(what)
            kept.append(struct.pack(">HH", marker, length + 2) + body[:length])
        return b"".join(kept)

    def _segment_index(self, marker: int, body: bytes) -> int:
        """Component or number of a segment of which there may be several."""
        if marker in (_HEADERS_OF_STREAM, _HEADERS_OF_PART):
            return body[0] if body else 0
        if marker not in (_COMPONENT_STYLE, _COMPONENT_STEPS, _REGION):
            return 0
        component = int.from_bytes(body[: _index_bytes(self.components)], "big")
        if component >= self.components:
            raise Jpeg2000Error(f"a segment {marker:04x} of component {component} of {self.components}")
        return component

    def _length(self, marker: int, body: bytes) -> int:
        """Bytes that a segment's content needs (A.5, A.6)."""
        index = _index_bytes(self.components)
        match marker:
            case 0xFF51:  # _SIZE
                return 36 + 3 * self.components
            case 0xFF50:  # _CAPABILITIES
                return 4 + 2 * int.from_bytes(body[:4], "big").bit_count()
            case 0xFF52:  # _STYLE
                return _STYLE_BYTES + _precincts(body, 0, 5)
            case 0xFF53:  # _COMPONENT_STYLE
                return index + 6 + _precincts(body, index, index + 1)
            case 0xFF5C:  # _STEPS
                return 1 + self._steps(body[:1], len(body) - 1)
            case 0xFF5D:  # _COMPONENT_STEPS
                return index + 1 + self._steps(body[index : index + 1], len(body) - index - 1)
            case 0xFF5E:  # _REGION
                return index + 2
            case 0xFF5F:  # _ORDER
                return len(body) // (5 + 2 * index) * (5 + 2 * index)
        return len(body)

    def _steps(self, style: bytes, most: int) -> int:
        bands, kind = 3 * self.levels + 1, style[0] & 31 if style else 0
        return min(most, {0: bands, 1: 2}.get(kind, 2 * bands))


def _precincts(body: bytes, at_flags: int, at_levels: int) -> int:
    if len(body) <= at_levels or not body[at_flags] & 1:
        return 0
    return body[at_levels] + 1


def _tile_parts(stream: bytes, at: int, num_tiles: int, rules: _Rules) -> Iterator[bytes]:
    """The tile parts with only what pixels need, and the end marker (A.4.2)."""
    while stream[at : at + 2] != _END:
        if not stream[at:].strip(b"\0"):
            break  # decoders do without the end marker
        part = stream[at : at + _TILE_PART_BYTES]
        if len(part) < _TILE_PART_BYTES or not part.startswith(b"\xff\x90\0\x0a"):
            raise Jpeg2000Error(f"neither a tile part nor an end marker (ffd9) at byte {at} of its {len(stream)}")
        tile, num_bytes, number, num_parts = struct.unpack_from(">HIBB", part, 4)
        segments, data_at = _segments(stream, at + _TILE_PART_BYTES, stop=_DATA)
        end = at + num_bytes if num_bytes else _last_end(stream, data_at)
        if tile >= num_tiles or not data_at < end <= len(stream):
            raise Jpeg2000Error(f"a tile part of tile {tile} of {num_tiles} ends at byte {end} of its {len(stream)}")
        if _num_levels(segments, rules.components) > rules.levels:
            raise Jpeg2000Error("a tile part with more decompositions than the main header states")
        inside = rules.kept(segments, _IN_TILE_PART) + stream[data_at:end]
        yield struct.pack(">HHHIBB", _TILE_PART, 10, tile, _TILE_PART_BYTES + len(inside), number, num_parts)
        yield inside
        at = end
    yield _END


def _last_end(stream: bytes, at: int) -> int:
    """The end of a tile part that states 0 as its length: the end of the codestream."""
    end = stream.find(_END, at)
    return end if end >= 0 else len(stream)
