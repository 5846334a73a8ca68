"""Images of saved views, with the annotations in them drawn over the slide."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from urllib.parse import parse_qs

import shapely
from shapely.geometry import LineString, Point, Polygon, box
from shapely.geometry.base import BaseGeometry

from pipeline.codecs import encode_jpeg
from pipeline.review import Annotation
from pipeline.store.reading.reader import StoreReader
from pipeline.store.view.render import for_screen

WIDTH_PX, HEIGHT_PX = 720, 450
MAX_UM_PER_PX = 1e4
MAX_DRAWN = 2_000
"""Annotations drawn in one image; more would hide the tissue."""


@dataclass(frozen=True)
class View:
    """Middle of a view in µm from the slide's corner, and µm along a pixel of the screen."""

    x_um: float
    y_um: float
    um_per_px: float


@dataclass(frozen=True)
class Snapshot:
    """A view as an image.

    Attributes:
        jpeg: as a data URL; `WIDTH_PX` × `HEIGHT_PX`.
        outlines: SVG paths over it, each with its colour.
    """

    note: str
    by: str
    scale: str
    jpeg: str
    outlines: tuple[tuple[str, str], ...]


def view_of(text: str | None) -> View | None:
    """The view in a bookmark's parameters; None for one that cannot be read. Rotation and mirroring are left out."""
    try:
        x_um, y_um, um_per_px, *_ = (float(part) for part in parse_qs(text or "")["at"][0].split(",")[:3])
    except (KeyError, ValueError):
        return None
    is_view = all(math.isfinite(value) for value in (x_um, y_um)) and 0 < um_per_px <= MAX_UM_PER_PX
    return View(x_um, y_um, um_per_px) if is_view and max(abs(x_um), abs(y_um)) < 1e7 else None


def snapshot(
    reader: StoreReader, bookmark: Annotation, annotations: Iterable[Annotation], colours: dict[str, str]
) -> Snapshot | None:
    """A bookmark as an image; None if its view cannot be read.

    Args:
        colours: of classes, as "RRGGBB".
    """
    view = view_of(bookmark.view)
    if view is None:
        return None
    mpp = max(view.um_per_px, reader.mpp0)
    width_px0, height_px0 = WIDTH_PX * mpp / reader.mpp0, HEIGHT_PX * mpp / reader.mpp0
    left, top = view.x_um / reader.mpp0 - width_px0 / 2, view.y_um / reader.mpp0 - height_px0 / 2
    pixels = for_screen(reader, reader.read_at_mpp(left, top, WIDTH_PX, HEIGHT_PX, mpp))
    shown = box(left, top, left + width_px0, top + height_px0)
    scale = reader.mpp0 / mpp
    outlines = tuple(_outlines(annotations, shown, (left, top), scale, colours))
    url = f"data:image/jpeg;base64,{base64.b64encode(encode_jpeg(pixels)).decode()}"
    by = f"{bookmark.author}, {bookmark.made_utc[:16].replace('T', ' ')} UTC"
    return Snapshot(bookmark.note, by, f"{WIDTH_PX * mpp:,.0f} µm wide", url, outlines)


def _outlines(
    annotations: Iterable[Annotation],
    shown: BaseGeometry,
    origin: tuple[float, float],
    scale: float,
    colours: dict[str, str],
) -> Iterator[tuple[str, str]]:
    drawn = 0
    for annotation in annotations:
        if annotation.kind in ("reply", "bookmark") or not annotation.shape.intersects(shown):
            continue
        drawn += 1
        if drawn > MAX_DRAWN:
            return
        inside = shapely.clip_by_rect(annotation.shape, *shown.bounds)
        moved = shapely.transform(inside, lambda xy: (xy - origin) * scale)
        colour = f"#{colours.get(annotation.class_name or '', '00708f')}"
        path = " ".join(_path(part) for part in shapely.get_parts(moved))
        if path:
            yield path, colour


def _path(part: BaseGeometry) -> str:
    if isinstance(part, Point):
        return f"M {part.x - 4:.1f} {part.y:.1f} h 8 M {part.x:.1f} {part.y - 4:.1f} v 8"
    if isinstance(part, Polygon):
        return " ".join(f"{_line(ring)} Z" for ring in [part.exterior, *part.interiors])
    return _line(part) if isinstance(part, LineString) else ""


def _line(line: BaseGeometry) -> str:
    corners = shapely.get_coordinates(line).tolist()
    return " ".join(f"{'L' if index else 'M'} {x:.1f} {y:.1f}" for index, (x, y) in enumerate(corners))
