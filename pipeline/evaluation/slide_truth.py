"""Truth of a whole slide: from its label in the manifest, else its annotations, else its labelled tiles."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from shapely.geometry.base import BaseGeometry

from pipeline.annotations.files import read_annotations
from pipeline.annotations.frames import frame_of_store, on_slide
from pipeline.annotations.shapes.region import check_regions
from pipeline.annotations.shapes.repair import labelled_regions
from pipeline.cohort.manifest import Cohort, SlideEntry
from pipeline.errors import BadAnnotationError, BadManifestError
from pipeline.evaluation.camelyon17 import NODE_LABELS
from pipeline.files import sha256_of
from pipeline.store.reading.reader import StoreReader
from pipeline.tiles.table import TileTable
from training.foundation.words.class_order import positive_of_two


@dataclass(frozen=True)
class SlideTruth:
    """The classes that occur on a slide."""

    has: NDArray[np.bool_] | None
    """bool (classes,); None if unknown."""
    areas: Mapping[str, tuple[BaseGeometry, ...]] | None
    """Annotated areas by class, level-0 pixels; None if the slide has no annotation file."""
    says: str
    """Source of the truth: label, annotations or tiles; if unknown, the reason."""

    def lesions_known(self, class_index: int, class_name: str) -> bool:
        """Whether a class's lesions are outlined, or known to be absent."""
        if self.has is None:
            return False
        outlined = bool(self.areas and self.areas.get(class_name))
        return outlined == bool(self.has[class_index])


def truth_of_label(label: str, class_names: Sequence[str]) -> NDArray[np.bool_] | None:
    """Classes that occur on a slide with this label, bool (classes,); None if the label is not one of the classes.

    With two classes, CAMELYON17's labels of lymph nodes tell whether the positive one occurs.
    """
    if label in class_names:
        return np.array([name == label for name in class_names])
    if label in NODE_LABELS and len(class_names) == 2:
        is_positive = label != NODE_LABELS[0]
        has = np.full(2, not is_positive)
        has[positive_of_two(class_names)] = is_positive
        return has
    return None


class Truths:
    """Truths of the slides of one tile table, with or without the manifest it was made from."""

    def __init__(self, table: TileTable, cohort: Cohort | None, class_names: Sequence[str]) -> None:
        self._table, self._cohort, self._class_names = table, cohort, tuple(class_names)
        self._entries = {entry.slide_id: entry for entry in cohort.entries} if cohort else {}

    def check(self, patients: Mapping[str, str | None]) -> None:
        """Compare the manifest with the table's patients, by slide.

        Raises:
            BadManifestError: it lacks a slide of the table, or gives it another patient.
        """
        if self._cohort is None:
            return
        for slide_id, patient in patients.items():
            entry = self._entries.get(slide_id)
            if entry is None:
                raise BadManifestError(
                    f"{self._cohort.path}: has no slide {slide_id}, which is in the tile set. Give the manifest that "
                    "the tile set was made from."
                )
            if entry.patient_id != patient:
                raise BadManifestError(
                    f"{self._cohort.path}: slide {slide_id} is of another patient than in the tile set. Make the tile "
                    "set again with `gemslide tile`, or give the manifest that it was made from."
                )

    def of(self, reader: StoreReader, tile_classes: Collection[int]) -> SlideTruth:
        """A slide's truth.

        Args:
            tile_classes: classes of the slide's labelled tiles.

        Raises:
            BadAnnotationError: the annotation file cannot be used, or is not the one the tile set was made from.
        """
        entry = self._entries.get(reader.slide_id)
        areas = self._areas(entry, reader) if entry else None
        if entry and entry.label:
            has = truth_of_label(entry.label, self._class_names)
            if has is None:
                return SlideTruth(None, areas, f"its label {entry.label!r} is not one of the model's classes")
            return SlideTruth(has, areas, "label")
        if areas is not None:
            return SlideTruth(np.array([bool(areas.get(name)) for name in self._class_names]), areas, "annotations")
        if tile_classes:
            return SlideTruth(np.isin(np.arange(len(self._class_names)), list(tile_classes)), None, "tiles")
        return SlideTruth(None, None, "neither a label nor annotations")

    def label(self, slide_id: str) -> str | None:
        """The slide's label in the manifest."""
        entry = self._entries.get(slide_id)
        return entry.label if entry else None

    def _areas(self, entry: SlideEntry, reader: StoreReader) -> dict[str, tuple[BaseGeometry, ...]] | None:
        assert self._cohort is not None
        path = self._cohort.annotations_path(entry)
        if path is None:
            return None
        file = read_annotations(path)
        recorded: dict[str, Any] = self._table.metadata.get("annotations", {}).get(entry.slide_id, {})
        if recorded and recorded.get("sha256") != sha256_of(path):
            raise BadAnnotationError(
                f"{path}: is not the file that the tile set was made from (another SHA-256). Make the tile set again "
                "with `gemslide tile`."
            )
        settings = self._table.metadata["settings"]
        frame = frame_of_store(reader.attributes).as_set(
            settings.get("qupath_counts_from", "scanned"), allow_other_mpp=settings.get("allow_other_mpp", False)
        )
        regions, _ = labelled_regions(on_slide(file, frame))
        check_regions(regions, reader.size_wh_px0)
        return {
            name: tuple(region.geometry for region in regions if region.class_name == name)
            for name in self._class_names
        }
