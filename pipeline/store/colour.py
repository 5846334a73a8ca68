"""A scanner's colours on a screen, by the slide's ICC profile."""

from __future__ import annotations

from io import BytesIO

import numpy as np
from PIL import Image, ImageCms

from pipeline.codecs.types import Pixels


class ToSrgb:
    """Turns a scanner's colours into those of a screen, by the slide's ICC profile."""

    def __init__(self, icc: bytes) -> None:
        source = ImageCms.ImageCmsProfile(BytesIO(icc))
        self._transform = ImageCms.buildTransform(source, ImageCms.createProfile("sRGB"), "RGB", "RGB")

    def __call__(self, pixels: Pixels) -> Pixels:
        converted = ImageCms.applyTransform(Image.fromarray(pixels), self._transform)
        assert converted is not None  # only None when converting in place
        return np.asarray(converted)
