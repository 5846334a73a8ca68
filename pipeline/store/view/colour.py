"""A scanner's colours on a screen, by the slide's ICC profile."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageCms

from pipeline.codecs.types import Pixels
from training.foundation.errors import UnreadableError

GRID = 33
"""Maximum number of nodes along a channel of a colour table."""


class ToSrgb:
    """Turns a scanner's colours into those of a screen, by the slide's ICC profile.

    Raises:
        UnreadableError: the profile is damaged, or not one of RGB colours.
    """

    def __init__(self, icc: bytes) -> None:
        try:
            source = ImageCms.ImageCmsProfile(BytesIO(icc))
            self._transform = ImageCms.buildTransform(source, ImageCms.createProfile("sRGB"), "RGB", "RGB")
        except (ImageCms.PyCMSError, OSError) as error:
            raise UnreadableError(
                f"the slide's ICC profile of {len(icc)} bytes cannot be used ({error}). View the slide as "
                "scanned, or ingest it again from a file with a valid profile, or with none."
            ) from error

    def __call__(self, pixels: Pixels) -> Pixels:
        converted = ImageCms.applyTransform(Image.fromarray(pixels), self._transform)
        assert converted is not None  # only None when converting in place
        return np.asarray(converted)


@lru_cache(maxsize=16)
def to_srgb(icc: bytes) -> ToSrgb:
    """`ToSrgb` of a profile, cached; raises the same errors."""
    return ToSrgb(icc)


@dataclass(frozen=True)
class ColourTable:
    """Results of `ToSrgb` for some colours, to interpolate between them."""

    nodes: NDArray[np.uint8]
    """Values of a channel at which colours are known, ascending, from 0 to 255; the same for each channel."""
    colours_rgbc: NDArray[np.uint8]
    """sRGB at each node of red, green and blue: (nodes, nodes, nodes, 3)."""


@lru_cache(maxsize=16)
def colour_table(icc: bytes) -> ColourTable:
    """A slide's profile as a table. Between nodes, tetrahedral interpolation differs from Little CMS only by rounding.

    Raises:
        UnreadableError: as `ToSrgb`.
    """
    convert = to_srgb(icc)
    nodes = _nodes(convert)
    red, green, blue = np.meshgrid(nodes, nodes, nodes, indexing="ij")
    colours = convert(np.stack([red, green, blue], axis=-1).reshape(len(nodes), -1, 3))
    return ColourTable(nodes, colours.reshape(*3 * (len(nodes),), 3))


def _nodes(convert: ToSrgb) -> NDArray[np.uint8]:
    """Nodes, closer together where colours change faster: even steps would lose the dark end of a linear profile.

    They are whole values, so that the table has Little CMS's results for exactly these.
    """
    ramps = np.zeros((4, 256, 3), np.uint8)
    ramps[0] = np.arange(256, dtype=np.uint8)[:, None]
    for channel in range(3):
        ramps[channel + 1, :, channel] = np.arange(256)
    steps = np.abs(np.diff(convert(ramps).astype(int), axis=1)).max(axis=(0, 2))
    distance = np.concatenate([[0], np.cumsum(1 + steps)])
    nodes = np.searchsorted(distance, np.linspace(0, distance[-1], GRID))
    return np.unique(nodes).astype(np.uint8)
