"""Types that the codecs and their callers share: pixels, streams, and the error of both."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]
"""uint8 of shape (height, width, 3), RGB."""

Stream = tuple[bytes | memoryview, ...]
"""A tile's encoded bytes as buffers to be concatenated; () for a tile the scanner left out."""

StreamCodec = Literal["imagecodecs_jpeg", "imagecodecs_jpeg2k"]
"""zarr's names for the codecs whose streams a store keeps as the scanner wrote them."""


class DecodeError(ValueError):
    """Encoded bytes that cannot be decoded."""
