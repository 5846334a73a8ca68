"""Pages of a TIFF: which tags they have, and the numbers that say how pixels are stored. No text, no other values."""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path
from typing import Any

import tifffile

from pipeline.codecs.jpeg_segments import ANY_FRAME, Segment, segments
from pipeline.codecs.stream_header import StreamError
from pipeline.slides.common.damage import DamagedFileError
from pipeline.slides.tiff.library import TiffStructure
from pipeline.slides.tiff.segments import SegmentReader
from pipeline.slides.tiff.validate import COMPRESSIONS_JPEG, has_plain_sizes
from training.foundation.errors import UnreadableError

MAX_PAGES, MAX_TAGS, MAX_NUMBERS, MAX_SEGMENTS = 100, 200, 8, 40
_NUMBERS_OF_STORAGE = frozenset(
    {254, 255, 256, 257, 258, 259, 262, 266, 274, 277, 278, 282, 283, 284, 296, 317, 322, 323, 330, 338, 339, 530, 532}
    | {32997, 65420, 65421, 65424, 65441}
)
"""Tags whose values are shown: sizes, tiles, compression, colours, resolution; of Hamamatsu magnification, height of
the focal plane and capture mode."""
_HEADER_BYTES = 2**16


def describe_tiff(path: Path) -> dict[str, Any]:
    """Pages of a TIFF, as far as they can be read."""
    described: list[dict[str, Any]] = []
    try:
        with TiffStructure(path) as tiff:
            pages = tiff.pages()
            for page in pages[:MAX_PAGES]:
                described.append(_page(tiff, path, page))
            return {"pages": len(pages), "described": described}
    except (DamagedFileError, UnreadableError) as error:
        return {"pages": f"cannot be read ({type(error).__name__})", "described": described}


def _page(tiff: TiffStructure, path: Path, page: tifffile.TiffPage) -> dict[str, Any]:
    tags = [_tag(tiff, page, *kind) for kind in tiff.tag_kinds(page)[:MAX_TAGS]]
    return {"tags": tags, "is_tiled": bool(page.is_tiled), "first_stream": _first_stream(path, page)}


def _tag(tiff: TiffStructure, page: tifffile.TiffPage, code: int, kind: int, count: int) -> dict[str, Any]:
    """Code, type and number of values; the values of `_NUMBERS_OF_STORAGE`."""
    facts: dict[str, Any] = {"code": code, "type": kind, "count": count}
    if code in _NUMBERS_OF_STORAGE and count <= MAX_NUMBERS:
        value = tiff.tag(code, page)
        values = value if isinstance(value, tuple) else (value,)
        facts["values"] = [_number(each) for each in values if isinstance(each, int | float)]
    return facts


def _number(value: int | float) -> int | float:
    """Without tifffile's enumerations, which are integers by another name."""
    return value if isinstance(value, float) else int(value)


def _first_stream(path: Path, page: tifffile.TiffPage) -> list[dict[str, Any]] | str:
    """Markers of the first JPEG tile or strip that has data, up to its scan; of frame headers their content, too."""
    if page.compression not in COMPRESSIONS_JPEG or not has_plain_sizes(page):
        return "not JPEG"
    descriptor = os.open(path, os.O_RDONLY)
    try:
        reader = SegmentReader(descriptor, path.stat().st_size, path.name)
        for index in range(min(len(page.dataoffsets), MAX_PAGES)):
            raw = reader.read(page, index, at_most=_HEADER_BYTES)
            if raw is not None:
                return [_segment(each) for each in islice(segments(raw), MAX_SEGMENTS)]
        return "no data"
    except (DamagedFileError, StreamError, UnreadableError) as error:
        return f"cannot be read ({type(error).__name__})"
    finally:
        os.close(descriptor)


def _segment(segment: Segment) -> dict[str, Any]:
    """A marker and its length; of a frame header its bytes: sizes, sampling, tables."""
    facts: dict[str, Any] = {"marker": f"ff{segment.marker:02x}", "bytes": len(segment.body)}
    return {**facts, "frame": segment.body.hex()} if segment.marker in ANY_FRAME else facts
