"""One slide open in the desktop viewer: its store, models and hotspots. No Qt, no napari."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pathology_app.desktop.pixels import SlidePixels
from pipeline.inference import Hotspot, check_hotspots, read_hotspots
from pipeline.places.object_path import ObjectPath, StorePath
from pipeline.project import Project
from pipeline.settings.config import DEFAULT_THRESHOLD
from pipeline.store import (
    Attention,
    PredictionGrid,
    Predictions,
    StoreReader,
    list_attention,
    list_predictions,
    outdated_models,
    outdated_text,
    read_attention,
    read_prediction_grid,
    read_predictions,
)
from pipeline.units import described, height_text
from training.foundation.errors import GemslideError
from training.foundation.words.class_order import lesion_classes


@dataclass(frozen=True)
class HotspotList:
    """A model's hotspots, strongest first; or the reason why they are unknown, which is not the same as none."""

    spots: tuple[Hotspot, ...] = ()
    unknown: str = ""
    threshold: float = DEFAULT_THRESHOLD
    """Threshold of the model's results; the default where they have none."""

    def of(self, class_name: str, threshold: float) -> list[Hotspot]:
        """Hotspots of a class that reach the threshold."""
        return [spot for spot in self.spots if self.reaches(spot, class_name, threshold)]

    @staticmethod
    def reaches(spot: Hotspot, class_name: str, threshold: float) -> bool:
        """Whether a hotspot is of a class and reaches a threshold; scores are stored with four decimals."""
        return bool(spot["class"] == class_name and spot["score"] >= round(threshold, 4))


@dataclass
class OpenedSlide:
    """A slide store and the files next to it. Anything unreadable is reported; the rest is still shown.

    Raises:
        GemslideError: no store at this path, its image is damaged, or it has no such focal plane.
    """

    path: StorePath
    home: Project | None = None
    """The project that a store in a bucket may belong to."""
    plane_um: float | None = None
    """Height of the focal plane to show, of a stack; None: the default one."""
    problems: list[str] = field(default_factory=list)
    listeners: list[Callable[[str], None]] = field(default_factory=list)
    """Called with each new problem."""

    def __post_init__(self) -> None:
        if isinstance(self.path, Path):
            self.path = Path(os.path.abspath(self.path))
        self.reader = StoreReader(self.path, self.plane_um)
        if self.reader.plane_um is not None:
            self.tell(
                f"The slide has {described(self.reader.attributes.planes_um)}. Shown is the focal plane at "
                f"{height_text(self.reader.plane_um)}; start `gemslide view` with --plane to see another."
            )
        self.pixels = SlidePixels(self.reader, self.tell)
        self.grids: dict[str, PredictionGrid] = {}
        self._predictions: dict[str, Predictions | None] = {}
        self.attention: dict[str, Attention] = {}
        for model_id in list_predictions(self.path):
            try:
                self.grids[model_id] = read_prediction_grid(self.path, model_id)
            except GemslideError as error:
                self.tell(str(error))
        for model_id in list_attention(self.path):
            try:
                self.attention[model_id] = read_attention(self.path, model_id)
            except GemslideError as error:
                self.tell(str(error))
        with suppress(GemslideError):  # from the mask: the tissue layer reports it
            if outdated := outdated_text(outdated_models(self.path)):
                self.tell(f"The {outdated}. Run `gemslide infer` again to update them.")

    @property
    def slide_id(self) -> str:
        return self.reader.slide_id

    @property
    def project(self) -> Project | None:
        """The project that the slide belongs to; None for a store outside a project."""
        if isinstance(self.path, ObjectPath):
            return self.home if self.home and self.home.owns(self.path) else None
        project = Project(self.path.parent.parent)
        return project if project.slides_dir == self.path.parent else None

    def tell(self, message: str) -> None:
        """Store a message for the user and pass it to the listeners; each message once."""
        if message in self.problems:
            return
        self.problems.append(message)
        for listener in self.listeners:
            listener(message)

    def predictions(self, model_id: str) -> Predictions | None:
        """A model's predictions, read on first use; None, with a report, where they are damaged."""
        if model_id not in self._predictions:
            try:
                self._predictions[model_id] = read_predictions(self.path, model_id)
            except GemslideError as error:
                self._predictions[model_id] = None
                self.tell(str(error))
        return self._predictions[model_id]

    def hotspots(self, model_id: str) -> HotspotList:
        """A model's hotspots as listed by inference."""
        if self.project is None:
            return HotspotList(unknown="Not known: this store is not in a project, where hotspot lists are kept.")
        try:
            listed = read_hotspots(self.project.root, self.slide_id, model_id)
            if listed is not None and (predictions := self.predictions(model_id)):
                check_hotspots(listed, predictions, self.slide_id)
        except GemslideError as error:
            return HotspotList(unknown=f"Not known: {error}")
        if listed is None:
            return HotspotList(unknown="Not known: no hotspot list. Run `gemslide infer` on the slide.")
        spots = tuple(sorted(listed.spots, key=lambda spot: -spot["score"]))
        return HotspotList(spots, threshold=listed.threshold)

    def shown_first(self) -> tuple[str, str] | None:
        """The model and class to show first: the top hotspot's class, else the last lesion class; None: no model."""
        for model_id, grid in self.grids.items():
            spots = self.hotspots(model_id).spots
            wanted = str(spots[0]["class"]) if spots else ""
            return model_id, wanted if wanted in grid.class_names else lesion_classes(grid.class_names)[-1]
        return None
