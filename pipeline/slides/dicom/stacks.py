"""Levels at several focal planes: in one instance, or an instance for each plane."""

from __future__ import annotations

import hashlib
from collections import defaultdict

from pipeline.slides.common.slide import LEVEL_OF_SOME_PLANES
from pipeline.slides.common.slide_warnings import SlideWarnings
from pipeline.slides.dicom.metadata import icc_of, mpp_of, objective_power_of
from pipeline.slides.dicom.pixels import DicomLevel
from pipeline.units import default_plane, why_no_stack
from training.foundation.errors import UnreadableError

StackedLevel = dict[float, DicomLevel]
"""A level at each of its focal planes, by their heights in micrometres, lowest first."""


def stacked(instances: list[DicomLevel], name: str) -> list[StackedLevel]:
    """The instances as levels, finest first.

    Raises:
        UnreadableError: two of one size are at the same height, differ in more than their height, or are too many.
    """
    by_size: dict[tuple[int, int], StackedLevel] = defaultdict(dict)
    for instance in instances:
        level = by_size[instance.matrix.width_px, instance.matrix.height_px]
        _check_fits(instance, level, name)
        level.update({height: instance.at_height(height) for height in instance.heights_um})
    return [dict(sorted(by_size[size].items())) for size in sorted(by_size, reverse=True)]


def with_all_planes(levels: list[StackedLevel], warnings: SlideWarnings) -> list[StackedLevel]:
    """The levels that have the focal planes of the finest."""
    finest, kept = levels[0], []
    for level in levels:
        if len(finest) == len(level) == 1 or list(finest) == list(level):
            kept.append(level)
        else:
            matrix = shown(level).matrix
            warnings.add(LEVEL_OF_SOME_PLANES, (matrix.width_px, matrix.height_px))
    return kept


def shown(level: StackedLevel) -> DicomLevel:
    """The level at its default plane."""
    return list(level.values())[default_plane(list(level))]


def _check_fits(instance: DicomLevel, level: StackedLevel, name: str) -> None:
    if not level:
        return
    first = next(iter(level.values()))
    matrix, other = instance.matrix, first.matrix
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
    if (states := _scanned_as(instance)) != (expected := _scanned_as(first)):
        raise UnreadableError(
            f"{name}: its focal planes of {size} differ in more than their height ({', '.join(states)}; "
            f"{', '.join(expected)}). Name a single file."
        )
    if why := why_no_stack(sorted([*level, *instance.heights_um])):
        raise UnreadableError(f"{name}: holds {why}, of {size}. Name a single file.")


def _scanned_as(instance: DicomLevel) -> tuple[str, ...]:
    """What has to be the same for all planes of a level, besides matrix and place."""
    mpp_xy, icc, power = mpp_of(instance.header).mpp_xy, icc_of(instance.header), objective_power_of(instance.header)
    scale = "no scale" if mpp_xy is None else f"{mpp_xy[0]:.6g} × {mpp_xy[1]:.6g} µm/px"
    colours = "no colour profile" if icc is None else f"colour profile {hashlib.sha256(icc).hexdigest()[:8]}"
    return scale, colours, f"objective {power}"
