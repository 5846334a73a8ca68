"""Red, green and blue as separate pages, as OME-TIFF allows; and stains, which must not pass for them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from xml.etree import ElementTree

import tifffile

from pipeline.errors import NotBrightfieldRgbError
from pipeline.slides.common.channels import (
    NotRgbChannelsError,
    Order,
    check_no_fluorescence,
    rgb_order,
    xml_names,
)
from pipeline.slides.tiff.library import TiffStructure
from pipeline.slides.tiff.metadata import ome_images
from pipeline.slides.tiff.segments import LevelSource
from pipeline.slides.tiff.validate import check_planes_alike, is_grey

_NUM_COLOURS = 3


def level_source(tiff: TiffStructure, page: tifffile.TiffPage, name: str) -> LevelSource:
    """Source of a level's colours: its page; or three grey pages that OME-XML names red, green and blue.

    A page that is neither is left to `validate.check_page`.

    Raises:
        NotBrightfieldRgbError: OME-XML names stains.
        UnreadableError: the three pages differ in size or coding.
    """
    channels = _channels(tiff, page)
    try:
        check_no_fluorescence(_named_channels(tiff, page))
        order = _order(channels)
    except NotRgbChannelsError as error:
        raise NotBrightfieldRgbError(
            f"{name}: {error} in its metadata: fluorescence or single stains, not red, green and blue of a brightfield "
            "slide. Export it as 8-bit RGB."
        ) from error
    if order is None or not is_grey(page):
        return LevelSource(page)
    stacked = tiff.stacked_pages(page)
    if len(stacked) != _NUM_COLOURS:
        return LevelSource(page)
    check_planes_alike(stacked, name)
    return LevelSource(page, tuple(stacked[channel] for channel in order))


def _channels(tiff: TiffStructure, page: tifffile.TiffPage) -> list[ElementTree.Element]:
    """The channels of the page's image in OME-XML; [] if there are none."""
    images = ome_images(tiff)
    for image, series in zip(images, tiff.series if images else (), strict=True):
        if any(one.offset == page.offset for one in (series.keyframe, *series.levels)):
            return image.findall("{*}Pixels/{*}Channel")
    return []


def _order(channels: list[ElementTree.Element]) -> Order | None:
    """Positions of red, green and blue. Raises NotRgbChannelsError."""
    names = xml_names([channel.attrib for channel in channels])
    return rgb_order(names, [_colour(channel) for channel in channels]) if len(channels) == _NUM_COLOURS else None


def _colour(channel: ElementTree.Element) -> str | None:
    """Display colour. OME-XML writes R, G, B and alpha as one signed 32-bit number; -1, white, is the default."""
    try:
        number = int(channel.get("Color", "-1"))
    except ValueError:
        return None
    return None if number == -1 else f"{number & 0xFFFFFFFF:08X}"


def _named_channels(tiff: TiffStructure, page: tifffile.TiffPage) -> list[str]:
    """Channel names outside OME-XML: in a JSON description, as tifffile writes it, and ImageJ's labels."""
    description = tiff.description_of(page)
    if description.lstrip().startswith("{"):
        try:
            return list(_texts_below(json.loads(description)))
        except (ValueError, RecursionError):
            return []
    return tiff.imagej_labels if description.startswith("ImageJ=") else []


def _texts_below(entry: object, *, is_channel: bool = False) -> Iterator[str]:
    """Texts of a JSON document that stand below a key about channels."""
    if isinstance(entry, Mapping):
        for key, value in entry.items():
            yield from _texts_below(value, is_channel=is_channel or "channel" in str(key).casefold())
    elif isinstance(entry, list):
        for value in entry:
            yield from _texts_below(value, is_channel=is_channel)
    elif is_channel and isinstance(entry, str):
        yield entry
