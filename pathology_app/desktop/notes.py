"""A slide's annotations in a napari viewer: read from where the web app keeps them, drawn, changed, saved back."""

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
from pipeline.review import MAX_DRAFTS, Annotation, Draft, annotations_of, class_colours, new_id, save
from training.foundation.errors import UnreadableError
from training.foundation.words.counts import counted

MAX_DRAWN = 2_000
"""napari takes a second for about a thousand shapes. The rest stays in the database as it is."""
UNCLASSED = "#777777"
_EDGE_UM, _POINT_PX = 3.0, (10, 18)
_FEATURES = ("id", "part", "class", "note", "author")


class SlideNotes:
    """The annotations of one slide, as they were read, and the layers that show them."""

    def __init__(self, viewer: Any, slide: OpenedSlide) -> None:
        self.viewer, self.slide = viewer, slide
        self._present: dict[str, Annotation] = {}
        self.colours: dict[str, str] = {}
        self.left_out = 0

    def read(self) -> None:
        """Draw what the database has. Nothing is drawn, nor made, where it has nothing.

        Raises:
            GemslideError: the project's ledger is away or damaged.
        """
        with self._ledger(make=False) as ledger:
            found = annotations_of(ledger, self.slide.slide_id) if ledger else []
            self.colours = dict(class_colours(ledger)) if ledger else {}
        drawn = [each for each in found if each.object_type == "annotation"][-MAX_DRAWN:]
        self.left_out = len(found) - len(drawn)
        self._present = {each.annotation_id: each for each in drawn}
        outlines = [outline for each in drawn for outline in outlines_of(each)]
        if outlines or self.layers():
            self.draw(outlines)

    def layers(self) -> list[Any]:
        """The layer of shapes and the layer of points, if they are there."""
        abouts = [(layer, layer.metadata.get(OURS)) for layer in self.viewer.layers]
        return [layer for layer, about in abouts if about and about["slide"] is self.slide and about["role"] == NOTES]

    def draw(self, outlines: Sequence[Outline] = ()) -> None:
        """Both layers anew, with these outlines."""
        for layer in self.layers():
            self.viewer.layers.remove(layer)
        active = self.viewer.layers.selection.active
        mpp0 = self.slide.reader.mpp0
        frame = {"scale": (mpp0, mpp0), "translate": (-mpp0 / 2, -mpp0 / 2), "units": UNITS}
        points = [each for each in outlines if each.tool == "point"]
        shapes = [each for each in outlines if each.tool != "point"]
        self.viewer.add_shapes(
            [each.corners_yx for each in shapes] or None,
            **({"shape_type": [each.tool for each in shapes]} if shapes else {}),
            ndim=2,
            features=_features(shapes),
            edge_width=_EDGE_UM / mpp0,
            edge_color=[self.colour(each.class_name) for each in shapes] or UNCLASSED,
            face_color="transparent",
            name=f"annotations {self.slide.slide_id}",
            **frame,
            **about_layer(self.slide, NOTES),
        )
        self.viewer.add_points(
            np.array([each.corners_yx[0] for each in points]).reshape(-1, 2),
            features=_features(points),
            size=_POINT_PX[0],
            canvas_size_limits=_POINT_PX,
            face_color=[self.colour(each.class_name) for each in points] or UNCLASSED,
            name=f"annotation points {self.slide.slide_id}",
            **frame,
            **about_layer(self.slide, NOTES),
        )
        self.draw_next_as("")
        if active is not None:
            self.viewer.layers.selection.active = active

    def colour(self, class_name: str) -> str:
        """Of a class; a new one gets the next colour, as the database will give it."""
        if not class_name:
            return UNCLASSED
        if class_name not in self.colours:
            self.colours[class_name] = CLASS_COLOURS[len(self.colours) % len(CLASS_COLOURS)]
        return f"#{self.colours[class_name]}"

    def draw_next_as(self, class_name: str) -> None:
        """Give this class and its colour to whatever is drawn from now on."""
        for layer in self.layers():
            layer.feature_defaults = dict.fromkeys(_FEATURES, "") | {"part": "0.0", "class": class_name}
            is_shapes = hasattr(layer, "shape_type")
            if not layer.selected_data:  # napari gives the colour to what is selected, too
                setattr(layer, "current_edge_color" if is_shapes else "current_face_color", self.colour(class_name))

    def drawn(self) -> list[Outline]:
        """All that the layers hold now."""
        found = []
        for layer in self.layers():
            is_points = not hasattr(layer, "shape_type")
            tools = ["point"] * len(layer.data) if is_points else layer.shape_type
            words = [[str(value) for value in layer.features[name]] for name in _FEATURES]
            for tool, corners, own_id, part, *rest in zip(tools, layer.data, *words, strict=True):
                corners_yx = np.asarray(corners, float).reshape(-1, 2)
                found.append(Outline("path" if tool == "line" else tool, corners_yx, own_id, part, *rest))
        return found

    def unsaved(self) -> list[Draft]:
        """Drafts that a `save` would write."""
        return drafts_of(with_ids(self.drawn(), new_id), self._present.values()) if self.layers() else []

    def describe(self, class_name: str | None = None, note: str | None = None) -> int:
        """Give what is selected a class or a note; returns how many there are.

        Of the layer that is active; napari keeps what was last added in the other one selected.
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
        """Write what has changed, and nothing over another's change; returns what became of it, for the person.

        Where another has changed the same annotation meanwhile, theirs stays, and what is drawn here is kept beside it
        as a new one, to be saved or deleted.

        Raises:
            GemslideError: something drawn cannot be saved, or the ledger is away. All that is drawn stays.
        """
        drawn = with_ids(self.drawn(), new_id)
        drafts = drafts_of(drawn, self._present.values())
        self.draw(drawn)  # with their ids: sent again, the same drafts are the same annotations
        theirs: set[str] = set()
        with self._ledger(make=True) as ledger:
            assert ledger is not None
            for start in range(0, len(drafts), MAX_DRAFTS):
                some, size_wh = drafts[start : start + MAX_DRAFTS], self.slide.reader.size_wh_px0
                saved = save(ledger, self.slide.slide_id, some, f"{actor_here()} (napari)", size_wh_px0=size_wh)
                self._present |= {each.annotation_id: each for each in saved.saved}
                theirs |= {each.annotation_id for each in saved.conflicts}
        self.read()
        return self._told(drafts, [each for each in drawn if each.annotation_id in theirs], theirs)

    def _told(self, drafts: Sequence[Draft], ours: Sequence[Outline], theirs: set[str]) -> str:
        if not theirs:
            return f"Saved: {counted(len(drafts), 'change')}." if drafts else "Nothing has changed since it was saved."
        beside = {annotation_id: new_id() for annotation_id in theirs}
        kept = [replace(each, annotation_id=beside[each.annotation_id], author="") for each in ours]
        self.draw([*self.drawn(), *kept])
        return (
            f"Saved: {counted(len(drafts) - len(theirs), 'change')}. "
            f"{counted(len(theirs), 'annotation was', 'annotations were')} changed by others meanwhile: theirs stay; "
            "what you drew is beside them, not saved. Delete it, or save again to keep both."
        )

    @contextmanager
    def _ledger(self, *, make: bool) -> Iterator[Ledger | None]:
        project = self.slide.project
        if project is None:
            if make:
                raise UnreadableError(
                    f"{self.slide.path}: lies in no project, and annotations are kept in a project's ledger. Move the "
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
    """One row of text per outline. Without rows, too, the columns are text: napari takes empty lists for numbers."""
    rows = [(each.annotation_id, each.part, each.class_name, each.note, each.author) for each in outlines]
    return pd.DataFrame(rows, columns=list(_FEATURES), dtype=object)
