"""A level's own tiles as self-contained streams: parsed once per encoder, then copied."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pipeline.codecs import jpeg, jpeg2000
from pipeline.codecs.jpeg import JpegStart
from pipeline.codecs.jpeg2000 import Jpeg2000Header, Jpeg2000Start
from pipeline.codecs.jpeg_header import JpegHeader
from pipeline.codecs.types import Stream, StreamCodec

TileStart = JpegStart | Jpeg2000Start
Seen = Callable[[JpegHeader | Jpeg2000Header], None]
"""Called with the header of each tile that is parsed; may refuse it."""


@dataclass(frozen=True)
class TileRule:
    """What makes the tiles of one level complete streams: all that their own bytes do not say."""

    codec: StreamCodec
    size_wh_px: tuple[int, int]
    tables: bytes | None = None
    """JPEG tables that the tiles share (SOI … EOI)."""
    says_rgb: bool = False
    """Whether the file says that they hold R, G, B; it counts if a JPEG itself does not say."""

    def parsed(self, raw: bytes, seen: Seen = lambda _: None) -> ParsedTile:
        """Parse a tile whose beginning has not been seen before.

        Raises:
            StreamError: damaged, or of another size.
        """
        if self.codec == "imagecodecs_jpeg":
            own = jpeg.parse(raw, self.tables)
            own.header.check_is_tile(*self.size_wh_px)
            seen(own.header)
            return ParsedTile((own.head(is_rgb=self.says_rgb), own.coded), own.start(is_rgb=self.says_rgb))
        codestream = jpeg2000.parse(raw)
        codestream.header.check_is_tile(*self.size_wh_px)
        seen(codestream.header)
        return ParsedTile((codestream.head, codestream.coded), codestream.start())


@dataclass(frozen=True)
class ParsedTile:
    """A tile's stream, and the start of other tiles of its encoder, if these need not be parsed."""

    stream: Stream
    start: TileStart | None


class TileStreams:
    """Makes tiles of one level complete. Tiles that begin like the last one parsed are not parsed again. Thread-safe.

    Args:
        seen: called with the headers of tiles that are parsed; its errors are passed on.
    """

    def __init__(self, rule: TileRule, seen: Seen = lambda _: None) -> None:
        self._rule, self._seen = rule, seen
        self.known: TileStart | None = None

    def stream(self, data: bytes | memoryview, view: memoryview, start: int, end: int) -> Stream:
        """The stream of the tile in `data[start:end]`, of which `view` is a view.

        Raises:
            StreamError: damaged, or of another size.
        """
        known = self.known
        if known is not None and view[start : start + len(known.own)] == known.own:
            stop = known.end(data, start, end)
            if stop is not None:
                return (known.head, view[start + len(known.own) : stop])
        parsed = self._rule.parsed(bytes(view[start:end]), self._seen)
        self.known = parsed.start or known
        return parsed.stream
