"""Tags that a TIFF needs about JPEG tiles, so that every reader decodes them as the stream intends."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.codecs.jpeg import JpegError, read_header

_SUBSAMPLINGS = {(1, 1), (2, 1), (2, 2), (4, 1)}
"""Subsamplings that TIFF readers support, as (horizontal, vertical) factors of the first component."""


@dataclass(frozen=True)
class JpegKind:
    """Colours and subsampling of a stream; one per level, because a TIFF states them once per level."""

    is_rgb: bool
    """Whether the components are R, G, B; otherwise Y, Cb, Cr."""
    subsampling: tuple[int, int]

    def fits_tiff(self, tile_px: int) -> bool:
        """Whether TIFF can express it: known factors, and tiles of whole blocks."""
        whole = tile_px % 16 == 0 and tile_px % (8 * max(self.subsampling)) == 0
        return whole and self.subsampling in ({(1, 1)} if self.is_rgb else _SUBSAMPLINGS)


def jpeg_kind(stream: bytes) -> JpegKind | None:
    """Colours as a decoder interprets them, and subsampling.

    None: not a JPEG, or not three 8-bit components of which the last two are sampled 1×1.
    """
    try:
        header = read_header(stream)
    except JpegError:
        return None
    first, *others = header.sampling
    if (header.bits, others) != (8, [(1, 1), (1, 1)]):
        return None
    return JpegKind(header.holds_rgb(), first)
