"""One slide as the desktop viewer has it open: its store, its models, its hotspots. No Qt, no napari."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from pathology_app.desktop.pixels import SlidePixels
from pipeline.errors import GemslideError
from pipeline.inference import Hotspot, read_hotspots
from pipeline.project import Project
from pipeline.store import (
    PredictionGrid,
    Predictions,
    StoreReader,
    list_predictions,
    read_prediction_grid,
    read_predictions,
)


@dataclass(frozen=True)
class HotspotList:
    """A model's hotspots, strongest first; or why they are not known, which is not the same as none."""

    spots: tuple[Hotspot, ...] = ()
    unknown: str = ""

    def of(self, class_name: str, threshold: float) -> list[Hotspot]:
        """Those of a class that reach the threshold."""
        return [spot for spot in self.spots if spot["class"] == class_name and spot["score"] >= threshold]


@dataclass
class OpenedSlide:
    """A slide store and what lies beside it. What cannot be read is told, and leaves the rest to be seen.

    Raises:
        GemslideError: no store there, or its image is damaged.
    """

    path: Path
    problems: list[str] = field(default_factory=list)
    listeners: list[Callable[[str], None]] = field(default_factory=list)
    """Told of each problem when it is met."""

    def __post_init__(self) -> None:
        self.path = Path(os.path.abspath(self.path))
        self.reader = StoreReader(self.path)
        self.pixels = SlidePixels(self.reader, self.tell)
        self.grids: dict[str, PredictionGrid] = {}
        self._predictions: dict[str, Predictions | None] = {}
        for model_id in list_predictions(self.path):
            try:
                self.grids[model_id] = read_prediction_grid(self.path, model_id)
            except GemslideError as error:
                self.tell(str(error))

    @property
    def slide_id(self) -> str:
        return self.reader.slide_id

    @property
    def project(self) -> Project | None:
        """The project whose slide it is; None for a store that lies elsewhere."""
        project = Project(self.path.parent.parent)
        return project if project.slides_dir == self.path.parent else None

    def tell(self, message: str) -> None:
        """Keep a message for the person who looks, and pass it on; each is said once."""
        if message in self.problems:
            return
        self.problems.append(message)
        for listener in self.listeners:
            listener(message)

    def predictions(self, model_id: str) -> Predictions | None:
        """A model's predictions, read when first asked for; None where they are damaged, which is told."""
        if model_id not in self._predictions:
            try:
                self._predictions[model_id] = read_predictions(self.path, model_id)
            except GemslideError as error:
                self._predictions[model_id] = None
                self.tell(str(error))
        return self._predictions[model_id]

    def hotspots(self, model_id: str) -> HotspotList:
        """A model's hotspots as inference has listed them."""
        if self.project is None:
            return HotspotList(unknown="Not known: this store lies in no project, where hotspot lists are.")
        path = self.project.result_dir(self.slide_id, model_id) / "hotspots.json"
        if not os.path.lexists(path):
            return HotspotList(unknown="Not known: no list was made. Run `gemslide infer` on the slide.")
        try:
            spots = read_hotspots(self.project.root, self.slide_id, model_id)
        except GemslideError as error:
            return HotspotList(unknown=f"Not known: {error}")
        return HotspotList(tuple(sorted(spots, key=lambda spot: -spot["score"])))

    def shown_first(self) -> tuple[str, str] | None:
        """The model and class to show first: the class that hotspots were looked for, else the last; None: no model."""
        for model_id, grid in self.grids.items():
            spots = self.hotspots(model_id).spots
            wanted = str(spots[0]["class"]) if spots else ""
            return model_id, wanted if wanted in grid.class_names else grid.class_names[-1]
        return None
