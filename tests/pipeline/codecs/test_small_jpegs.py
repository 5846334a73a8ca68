"""A JPEG decoded at a smaller size is the mean of its pixels, and only JPEGs are decoded that way."""

from __future__ import annotations

import imagecodecs
import numpy as np
import pytest

from pipeline.codecs.images import decode_jpeg, decode_jpeg_small
from pipeline.codecs.types import DecodeError
from tests.pipeline.make import sample_image

PIXELS = sample_image(256, 256)
KINDS = {
    "as photographs are": {"subsampling": "420"},
    "as some scanners write": {"subsampling": "422"},
    "whole": {"subsampling": "444"},
    "RGB with a marker": {"colorspace": "RGB", "outcolorspace": "RGB"},
}


@pytest.mark.parametrize("shrink", [2, 4, 8])
@pytest.mark.parametrize("kind", KINDS)
def test_it_is_the_mean_of_the_squares(kind: str, shrink: int) -> None:
    stream = bytes(imagecodecs.jpeg8_encode(PIXELS, level=85, **KINDS[kind]))
    side = 256 // shrink
    mean = decode_jpeg(stream).reshape(side, shrink, side, shrink, 3).mean((1, 3))

    small = decode_jpeg_small(stream, 256, shrink)

    assert (small.shape, small.dtype) == ((side, side, 3), np.uint8)
    assert np.abs(small - mean).mean() < 3


def test_what_is_no_such_jpeg_is_an_error() -> None:
    stream = bytes(imagecodecs.jpeg8_encode(PIXELS, level=85))
    wide = bytes(imagecodecs.jpeg8_encode(PIXELS[:128], level=85))
    for bad in (b"", b"\xff\xd8\xff", b"no JPEG", stream[:100], stream[: len(stream) // 2], wide):
        with pytest.raises(DecodeError):
            decode_jpeg_small(bad, 256, 2)
