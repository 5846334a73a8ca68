"""Conversion of a file's own coordinates to level-0 pixels of a slide, and a check that it belongs to that slide."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from shapely.affinity import affine_transform
from shapely.geometry.base import BaseGeometry

from pipeline.annotations.formats.geojson import qupath_origin_xy0
from pipeline.annotations.nanometres import NanometreFrame, nanometre_frame
from pipeline.annotations.shapes.objects import AnnotationFile
from pipeline.box import Box
from pipeline.errors import BadAnnotationError

if TYPE_CHECKING:
    from pipeline.slides.common.slide import SlideInfo
    from pipeline.store.format.metadata import SlideAttributes

MPP_TOLERANCE = 0.02
"""Programs round; scans of one slide at two resolutions differ by more."""


@dataclass(frozen=True)
class SlideFrame:
    """Properties of a slide that determine the position of annotations on it."""

    mpp0: float | None
    bounds_px0: Box | None = None
    """The scanned area, if the level-0 frame is larger."""
    nanometres: NanometreFrame | None = None
    """Hamamatsu's slides only."""
    crops_qupath: bool = True
    """Whether QuPath's coordinates begin at the scanned area, or (opened with --no-crop) at the slide."""
    allows_other_mpp: bool = False
    """Whether a file may state a pixel size other than the slide's; its pixels are then used unchanged."""

    def as_set(self, qupath_counts_from: str, *, allow_other_mpp: bool) -> SlideFrame:
        """The frame for files read with the settings of these names in `[tile]`."""
        return replace(self, crops_qupath=qupath_counts_from == "scanned", allows_other_mpp=allow_other_mpp)

    def origin_xy0(self, file: AnnotationFile) -> tuple[int, int]:
        """Origin of a file's pixels on the slide, in level-0 pixels."""
        return qupath_origin_xy0(self.bounds_px0) if file.format == "qupath" and self.crops_qupath else (0, 0)


def frame_of_store(about: SlideAttributes) -> SlideFrame:
    """Frame of a slide in a store."""
    stored = about.nanometres
    nanometres = NanometreFrame(stored.origin_xy0, stored.nm_per_px0_xy) if stored else None
    return SlideFrame(about.mpp0, about.bounds_px0, nanometres)


def frame_of_file(info: SlideInfo, mpp0: float | None = None) -> SlideFrame:
    """Frame of a slide file.

    Args:
        mpp0: microns per level-0 pixel, if known better than from the file.
    """
    in_file = sum(info.mpp_xy) / 2 if info.mpp_xy else None
    return SlideFrame(mpp0 or in_file, info.bounds_px0, nanometre_frame(info))


def on_slide(file: AnnotationFile, frame: SlideFrame) -> AnnotationFile:
    """The file in level-0 pixels of the slide, from its top left.

    Raises:
        BadAnnotationError: the file states a pixel size other than the slide's, or is in nanometres from the centre of
            a glass slide whose position in the scan is unknown.
    """
    _check_mpp(file, frame)
    if file.unit == "nm":
        return _from_nanometres(file, frame.nanometres)
    x, y = frame.origin_xy0(file)
    return _transformed(file, (1, 1), (x, y)) if x or y else file


def _check_mpp(file: AnnotationFile, frame: SlideFrame) -> None:
    if file.mpp is None or frame.mpp0 is None or frame.allows_other_mpp:
        return
    if abs(file.mpp - frame.mpp0) > MPP_TOLERANCE * frame.mpp0:
        raise BadAnnotationError(
            f"the annotation file says {file.mpp:g} µm/px, the slide has {frame.mpp0:g}: it was drawn on another scan, "
            "or on another level, and would be misplaced. If its pixels are this slide's nevertheless, set "
            "`allow_other_mpp = true` in [tile], or use --allow-other-mpp."
        )


def _from_nanometres(file: AnnotationFile, frame: NanometreFrame | None) -> AnnotationFile:
    if frame is None:
        raise BadAnnotationError(
            "the annotation file (NDPA) is in nanometres from the centre of the glass slide, whose position in this "
            "slide is unknown. It is recorded in the .ndpi file that the annotations were drawn on "
            "(hamamatsu.XOffsetFromSlideCentre): use that file, or ingest it again if its store is older."
        )
    nm_x, nm_y = frame.nm_per_px0_xy
    return replace(_transformed(file, (1 / nm_x, 1 / nm_y), frame.origin_xy0), unit="px0")


def _transformed(
    file: AnnotationFile, scale_xy: tuple[float, float], origin_xy0: tuple[float, float]
) -> AnnotationFile:
    def moved(shape: BaseGeometry) -> BaseGeometry:
        return affine_transform(shape, [scale_xy[0], 0, 0, scale_xy[1], *origin_xy0])

    objects = tuple(
        replace(obj, geometry=moved(obj.geometry), nucleus=moved(obj.nucleus) if obj.nucleus is not None else None)
        for obj in file.objects
    )
    return replace(file, objects=objects)
