"""What a TIFF must say about a JPEG tile so that every reader decodes it as the stream itself means it."""

from __future__ import annotations

from dataclasses import dataclass

_FRAMES = {0xC0, 0xC1, 0xC2}
_START_OF_SCAN = 0xDA
_SUBSAMPLINGS = {(1, 1), (2, 1), (2, 2), (4, 1)}
"""Those that TIFF readers know, as (horizontal, vertical) factors of the first component."""


@dataclass(frozen=True)
class JpegKind:
    """Colours and subsampling of a stream: one per level, because a TIFF says it once per level."""

    is_rgb: bool
    """The components are R, G, B; else Y, Cb, Cr."""
    subsampling: tuple[int, int]

    def fits_tiff(self, tile_px: int) -> bool:
        """Whether TIFF can say it: known factors, and tiles of whole blocks."""
        whole = tile_px % 16 == 0 and tile_px % (8 * max(self.subsampling)) == 0
        return whole and self.subsampling in ({(1, 1)} if self.is_rgb else _SUBSAMPLINGS)


def jpeg_kind(stream: bytes) -> JpegKind | None:
    """Colours by the rules that libjpeg follows: JFIF, then Adobe's transform, then the components' names.

    None: not three 8-bit components whose last two share one sampling.
    """
    has_jfif, transform, at = False, None, 2
    while at + 4 <= len(stream) and stream[at] == 0xFF:
        marker = stream[at + 1]
        if marker == 0xFF:  # fill byte
            at += 1
            continue
        length = int.from_bytes(stream[at + 2 : at + 4], "big")
        body = stream[at + 4 : at + 2 + length]
        if marker == 0xE0 and body.startswith(b"JFIF"):
            has_jfif = True
        elif marker == 0xEE and body.startswith(b"Adobe") and len(body) >= 12:
            transform = body[11]
        elif marker in _FRAMES:
            return _kind_of_frame(body, has_jfif, transform)
        elif marker == _START_OF_SCAN:
            return None
        at += 2 + length
    return None


def _kind_of_frame(body: bytes, has_jfif: bool, transform: int | None) -> JpegKind | None:
    if len(body) < 15 or body[0] != 8 or body[5] != 3:
        return None
    names = body[6], body[9], body[12]
    first, *others = ((body[at] >> 4, body[at] & 15) for at in (7, 10, 13))
    if others != [(1, 1), (1, 1)]:
        return None
    by_name = names == (ord("R"), ord("G"), ord("B"))
    is_rgb = not has_jfif and (transform == 0 if transform is not None else by_name)
    return JpegKind(is_rgb, first)
