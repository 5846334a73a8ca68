"""Levels at several focal planes: in one instance, or an instance for each plane."""

from __future__ import annotations

from collections import defaultdict

from pipeline.slides.common.slide import LEVEL_OF_SOME_PLANES
from pipeline.slides.common.slide_warnings import SlideWarnings
from pipeline.slides.dicom.pixels import DicomLevel
from pipeline.units import MAX_PLANES
from training.foundation.errors import UnreadableError

StackedLevel = dict[float, DicomLevel]
"""A level at each of its focal planes, by their heights in micrometres, lowest first."""


def stacked(instances: list[DicomLevel], name: str, warnings: SlideWarnings) -> list[StackedLevel]:
    """The instances as levels, finest first. Those with other focal planes than the finest are left out.

    Raises:
        UnreadableError: two of one size are at the same height, are cut into tiles differently, or are too many.
    """
    by_size: dict[tuple[int, int], StackedLevel] = defaultdict(dict)
    for instance in instances:
        level = by_size[instance.matrix.width_px, instance.matrix.height_px]
        _check_fits(instance, level, name)
        level.update({height: instance.at_height(height) for height in instance.heights_um})
    finest, *others = (dict(sorted(by_size[size].items())) for size in sorted(by_size, reverse=True))
    levels = [finest]
    for level in others:
        if len(finest) == len(level) == 1 or list(finest) == list(level):
            levels.append(level)
        else:
            matrix = next(iter(level.values())).matrix
            warnings.add(LEVEL_OF_SOME_PLANES, (matrix.width_px, matrix.height_px))
    return levels


def _check_fits(instance: DicomLevel, level: StackedLevel, name: str) -> None:
    if not level:
        return
    matrix, other = instance.matrix, next(iter(level.values())).matrix
    size = f"{matrix.width_px}×{matrix.height_px} px"
    if both := sorted(set(level) & set(instance.heights_um)):
        raise UnreadableError(
            f"{name}: several images of {size} at one height above the glass ({both[0]:g} µm). Optical paths or "
            "regions are not read together; name a single file."
        )
    if matrix != other:
        raise UnreadableError(
            f"{name}: its focal planes of {size} are stored in different ways (tiles of {matrix.tile_w_px}×"
            f"{matrix.tile_h_px} and {other.tile_w_px}×{other.tile_h_px} px, transfer syntaxes "
            f"{matrix.transfer_syntax} and {other.transfer_syntax}). Name a single file."
        )
    if len(level) + len(instance.heights_um) > MAX_PLANES:
        raise UnreadableError(f"{name}: holds more than {MAX_PLANES} focal planes of {size}; name a single file.")
