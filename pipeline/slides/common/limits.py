"""Limits on what a file may claim, which every reader applies against damaged and hostile headers."""

MAX_TILE_BYTES = 64 * 2**20
"""Raw bytes of one tile or frame."""
MAX_WHOLE_PAGE_BYTES = 256 * 2**20
"""Raw bytes of an image that can only be read as a whole."""
MAX_UNPACK_RATIO = 1000
"""Raw bytes claimed per byte of file. White JPEG tiles reach about 300; real slides 10 to 40."""
_SMALL_CLAIM_BYTES = 2**30
"""A claim this small is harmless whatever the ratio."""


def most_raw_bytes(file_bytes: int, ratio: int = MAX_UNPACK_RATIO) -> int:
    """The most raw bytes of pixels that files of this size may claim."""
    return max(_SMALL_CLAIM_BYTES, ratio * file_bytes)
