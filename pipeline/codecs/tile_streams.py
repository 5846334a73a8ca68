"""A level's own tiles as self-contained streams: parsed once per encoder, then copied."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pipeline.codecs.jpeg import JpegStart
from pipeline.codecs.jpeg2000 import Jpeg2000Start
from pipeline.codecs.types import Stream

TileStart = JpegStart | Jpeg2000Start


@dataclass(frozen=True)
class ParsedTile:
    """A tile's stream, and the start of other tiles of its encoder, if these need not be parsed."""

    stream: Stream
    start: TileStart | None


class TileStreams:
    """Makes tiles of one level complete. Tiles that begin like the last one parsed are not parsed again.

    Args:
        parse: parses and checks a tile that begins otherwise; its errors are passed on.
    """

    def __init__(self, parse: Callable[[bytes], ParsedTile]) -> None:
        self._parse = parse
        self.known: TileStart | None = None

    def stream(self, data: bytes | memoryview, view: memoryview, start: int, end: int) -> Stream:
        """The stream of the tile in `data[start:end]`, of which `view` is a view."""
        known = self.known
        if known is not None and view[start : start + len(known.own)] == known.own:
            stop = known.end(data, start, end)
            if stop is not None:
                return (known.head, view[start + len(known.own) : stop])
        parsed = self._parse(bytes(view[start:end]))
        self.known = parsed.start or known
        return parsed.stream
