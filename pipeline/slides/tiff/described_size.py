"""Size of the image that a page's text describes. Programs that shrink an image or take a level out of a file keep its
text, and its scale then belongs to another size.

Source of Aperio's notation: openslide.org/formats/aperio; the size after an arrow is the page's own.
"""

from __future__ import annotations

import re

SizeWh = tuple[int, int]

_SIZES = re.compile(
    r"(?<!\d)(?P<scan>\d{1,9}x\d{1,9})\s*(?:\[-?\d{1,9},-?\d{1,9}[ ,](?P<part>\d{1,9}x\d{1,9})\])?"
    r"(?:[^>]*->\s*(?P<page>\d{1,9}x\d{1,9}))?",
    re.ASCII,
)
_MIN_RATIO = 1.1
"""Less is the cutting of an edge, as to whole tiles."""


def aperio_size(description: str) -> tuple[SizeWh, SizeWh | None] | None:
    """Size that an Aperio description's MPP is for, and that of the page if it states one; None if it has no size."""
    match = _SIZES.search(re.split("[;|]", description, maxsplit=1)[0])
    if match is None:
        return None
    page = match["page"]
    return _size(match["part"] or match["scan"]), _size(page) if page else None


def shrinkage(described: SizeWh, page: SizeWh) -> float | None:
    """Ratio of the described size to the page's if the page has the same proportions, and so may be a smaller or larger
    copy; None if it has the same size, other proportions, as a crop has, or none, as a damaged page may claim."""
    if min(page) < 1:
        return None
    ratio = described[0] / page[0]
    if not ratio or 1 / _MIN_RATIO < ratio < _MIN_RATIO:
        return None
    # Halving rounds each side up or down: the two may disagree by a pixel of the smaller image, or two.
    return ratio if abs(described[1] - ratio * page[1]) <= 2 * max(ratio, 1.0) else None


def _size(text: str) -> SizeWh:
    width, height = text.split("x")
    return int(width), int(height)
