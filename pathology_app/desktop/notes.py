"""A slide's annotations in a napari viewer: read from the web app's ledger, drawn, edited, and saved back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from pathology_app.desktop.layers import NOTES, OURS, UNITS, about_layer
from pathology_app.desktop.outlines import Outline, drafts_of, outlines_of, with_ids
from pathology_app.desktop.slide import OpenedSlide
from pipeline.ledger import Ledger, actor_here, find_ledger, open_ledger
from pipeline.palettes import CLASS_COLOURS
from pipeline.review import (
    KIND_RULES,
    MAX_DRAFTS,
    Annotation,
    Draft,
    annotations_of,
    class_colours,
    new_id,
    only_own,
    save,
)
from training.foundation.errors import UnreadableError
from training.foundation.words.counts import counted

MAX_DRAWN, MAX_POINTS = 2_000, 20_000
"""Shapes, for a thousand of which napari takes about a second, and points. The rest stays unchanged in the database."""
_NOT_DRAWN = ("reply", "bookmark")
UNCLASSED = "#777777"
_EDGE_UM, _POINT_PX = 3.0, (10, 18)
_FEATURES = ("id", "part", "class", "note", "author")


class SlideNotes:
    """The annotations of one slide as read, and the layers that show them."""

    def __init__(self, viewer: Any, slide: OpenedSlide) -> None:
        self.viewer, self.slide = viewer, slide
        self._present: dict[str, Annotation] = {}
        self.colours: dict[str, str] = {}
        self.left_out = 0

    def read(self) -> None:
        """Draw the annotations in the database. If it has none, nothing is drawn or created.

        Raises:
            GemslideError: the project's ledger is unavailable or damaged.
        """
        with self._ledger(make=False) as ledger:
            annotations = annotations_of(ledger, self.slide.slide_id) if ledger else []
            self.colours = dict(class_colours(ledger)) if ledger else {}
        drawable = [annotation for annotation in annotations if annotation.kind not in _NOT_DRAWN]
        by_people = [annotation for annotation in drawable if annotation.object_type == "annotation"]
        is_point = [KIND_RULES[annotation.kind].dimension == 0 for annotation in by_people]
        points = [annotation for annotation, point in zip(by_people, is_point, strict=True) if point][-MAX_POINTS:]
        shapes = [annotation for annotation, point in zip(by_people, is_point, strict=True) if not point][-MAX_DRAWN:]
        drawn = [*shapes, *points]
        self.left_out = len(drawable) - len(drawn)
        self._present = {annotation.annotation_id: annotation for annotation in drawn}
        outlines = [outline for annotation in drawn for outline in outlines_of(annotation)]
        if outlines or self.layers():
            self.draw(outlines)

    def layers(self) -> list[Any]:
        """The layer of shapes and the layer of points, if they exist."""
        ours = [(layer, layer.metadata.get(OURS)) for layer in self.viewer.layers]
        return [layer for layer, meta in ours if meta and meta["slide"] is self.slide and meta["role"] == NOTES]

    def draw(self, outlines: Sequence[Outline] = ()) -> None:
        """Recreate both layers with these outlines."""
        for layer in self.layers():
            self.viewer.layers.remove(layer)
        active = self.viewer.layers.selection.active
        mpp0 = self.slide.reader.mpp0
        frame = {"scale": (mpp0, mpp0), "translate": (-mpp0 / 2, -mpp0 / 2), "units": UNITS}
        points = [outline for outline in outlines if outline.tool == "point"]
        shapes = [outline for outline in outlines if outline.tool != "point"]
        self.viewer.add_shapes(
            [shape.corners_yx for shape in shapes] or None,
            **({"shape_type": [shape.tool for shape in shapes]} if shapes else {}),
            ndim=2,
            features=_features(shapes),
            edge_width=_EDGE_UM / mpp0,
            edge_color=[self.colour(shape.class_name) for shape in shapes] or UNCLASSED,
            face_color="transparent",
            name=f"annotations {self.slide.slide_id}",
            **frame,
            **about_layer(self.slide, NOTES),
        )
        self.viewer.add_points(
            np.array([point.corners_yx[0] for point in points]).reshape(-1, 2),
            features=_features(points),
            size=_POINT_PX[0],
            canvas_size_limits=_POINT_PX,
            face_color=[self.colour(point.class_name) for point in points] or UNCLASSED,
            name=f"annotation points {self.slide.slide_id}",
            **frame,
            **about_layer(self.slide, NOTES),
        )
        self.draw_next_as("")
        if active is not None:
            self.viewer.layers.selection.active = active

    def colour(self, class_name: str) -> str:
        """Colour of a class; a new class gets the next colour, as the database will assign it."""
        if not class_name:
            return UNCLASSED
        if class_name not in self.colours:
            self.colours[class_name] = CLASS_COLOURS[len(self.colours) % len(CLASS_COLOURS)]
        return f"#{self.colours[class_name]}"

    def draw_next_as(self, class_name: str) -> None:
        """Use this class and its colour for everything drawn from now on."""
        for layer in self.layers():
            layer.feature_defaults = dict.fromkeys(_FEATURES, "") | {"part": "0.0", "class": class_name}
            is_shapes = hasattr(layer, "shape_type")
            if not layer.selected_data:  # napari would also recolour the selection
                setattr(layer, "current_edge_color" if is_shapes else "current_face_color", self.colour(class_name))

    def drawn(self) -> list[Outline]:
        """All outlines currently in the layers."""
        outlines = []
        for layer in self.layers():
            is_points = not hasattr(layer, "shape_type")
            tools = ["point"] * len(layer.data) if is_points else layer.shape_type
            texts = [[str(value) for value in layer.features[name]] for name in _FEATURES]
            for tool, corners, own_id, part, *rest in zip(tools, layer.data, *texts, strict=True):
                corners_yx = np.asarray(corners, float).reshape(-1, 2)
                outlines.append(Outline("path" if tool == "line" else tool, corners_yx, own_id, part, *rest))
        return outlines

    def unsaved(self) -> list[Draft]:
        """Drafts that a `save` would write."""
        return drafts_of(with_ids(self.drawn(), new_id), self._present.values()) if self.layers() else []

    def describe(self, class_name: str | None = None, note: str | None = None) -> int:
        """Set the class or note of the selected annotations; returns how many are selected.

        Only the active layer counts: napari keeps the last addition to the other one selected.
        """
        count, active = 0, self.viewer.layers.selection.active
        layers = [layer for layer in self.layers() if layer is active] or self.layers()
        for layer in layers:
            selected = sorted(layer.selected_data)
            ids = {own for own in layer.features["id"].iloc[selected] if own}
            chosen = layer.features["id"].isin(ids)
            chosen.iloc[selected] = True
            features = layer.features.copy()
            for name, value in (("class", class_name), ("note", note)):
                if value is not None:
                    features.loc[chosen, name] = value
            layer.features = features
            colours = [self.colour(name) for name in features["class"]]
            if colours and class_name is not None:
                setattr(layer, "edge_color" if hasattr(layer, "shape_type") else "face_color", colours)
            count += len(selected)
        return count

    def save(self) -> str:
        """Write all changes without overwriting those of others; returns a message for the user.

        If someone else has changed the same annotation in the meantime, theirs is kept, and the one drawn here becomes
        a new, unsaved annotation next to it.

        Raises:
            GemslideError: an annotation cannot be saved, or the ledger is unavailable. Everything drawn is kept.
        """
        drawn = with_ids(self.drawn(), new_id)
        drafts = drafts_of(drawn, self._present.values())
        self.draw(drawn)  # with their ids: drafts sent again are then the same annotations
        theirs: set[str] = set()
        with self._ledger(make=True) as ledger:
            assert ledger is not None
            assert self.slide.project is not None
            is_own = only_own(self.slide.project, ledger, self.slide.slide_id)
            for start in range(0, len(drafts), MAX_DRAFTS):
                batch, size_wh = drafts[start : start + MAX_DRAFTS], self.slide.reader.size_wh_px0
                saved = save(
                    ledger, self.slide.slide_id, batch, f"{actor_here()} (napari)", size_wh_px0=size_wh, only_own=is_own
                )
                self._present |= {annotation.annotation_id: annotation for annotation in saved.saved}
                theirs |= {annotation.annotation_id for annotation in saved.conflicts}
        self.read()
        return self._told(drafts, [outline for outline in drawn if outline.annotation_id in theirs], theirs)

    def _told(self, drafts: Sequence[Draft], ours: Sequence[Outline], theirs: set[str]) -> str:
        if not theirs:
            return f"Saved: {counted(len(drafts), 'change')}." if drafts else "Nothing has changed since the last save."
        new_ids = {annotation_id: new_id() for annotation_id in theirs}
        kept = [replace(outline, annotation_id=new_ids[outline.annotation_id], author="") for outline in ours]
        self.draw([*self.drawn(), *kept])
        return (
            f"Saved: {counted(len(drafts) - len(theirs), 'change')}. "
            f"{counted(len(theirs), 'annotation was', 'annotations were')} also changed by others: their versions are "
            "kept, and yours are next to them, not saved. Delete yours, or save again to keep both."
        )

    @contextmanager
    def _ledger(self, *, make: bool) -> Iterator[Ledger | None]:
        project = self.slide.project
        if project is None:
            if make:
                raise UnreadableError(
                    f"{self.slide.path}: not in a project, and annotations are kept in a project's ledger. Move the "
                    "store into the folder slides of a project."
                )
            yield None
            return
        ledger = open_ledger(project) if make else find_ledger(project)
        try:
            yield ledger
        finally:
            if ledger is not None:
                ledger.database.close()


def _features(outlines: Sequence[Outline]) -> pd.DataFrame:
    """One row of text per outline. Columns are text even without rows: napari takes empty lists for numbers."""
    rows = [(line.annotation_id, line.part, line.class_name, line.note, line.author) for line in outlines]
    return pd.DataFrame(rows, columns=list(_FEATURES), dtype=object)
