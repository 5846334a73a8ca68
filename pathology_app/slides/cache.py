"""Open slides of one project, shared by the pages and the tile routes of this process."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from pathology_app.html.attention import colour_limit
from pathology_app.project.served import served_project
from pathology_app.slides.summary import SlideSummary, summary_of
from pipeline.inference.results.hotspots import Hotspots, check_hotspots, read_hotspots
from pipeline.places.object_path import ObjectPath, StorePath
from pipeline.project import STORE_SUFFIX, Project
from pipeline.settings.config import DEFAULT_THRESHOLD
from pipeline.store.format.layout import ATTENTION, PREDICTIONS, QUALITY, TISSUE
from pipeline.store.layers.attention import Attention, list_attention, read_attention
from pipeline.store.layers.damaged import read_damaged
from pipeline.store.layers.labels import has_tissue, read_tissue
from pipeline.store.layers.overlays import Predictions, list_predictions, read_prediction_grid, read_predictions
from pipeline.store.layers.qc_scores import Quality, read_quality
from pipeline.store.reading.reader import StoreReader
from pipeline.store.view.screen import ScreenLevel, screen_levels
from training.foundation.errors import GemslideError, UnreadableError
from training.foundation.words.names import ALLOWED, is_name

MAX_OPEN_SLIDES = 64
MAX_OPEN_PREDICTIONS = 32
MAX_OPEN_MASKS = 16
_SHOWN_AS = "scanned"
"""Colours in which tiles are sent; part of every version, so that no browser shows a tile cached earlier."""
MAX_SUMMARIES = 20_000
"""Number kept, of a few hundred bytes each; none keeps a file open."""


class BadLinkError(GemslideError):
    """A link is malformed."""

    code = "bad_link"


class UnknownNameError(GemslideError):
    """A name in a link does not exist in the project."""

    code = "unknown_name"


class NoSuchTileError(GemslideError):
    """A link points outside the slide's pyramid, or to a class that the model does not have."""

    code = "no_such_tile"


@dataclass(frozen=True)
class DamagedAreas:
    """Damaged areas of the slide's file: uint8 (rows, columns), 1 = damaged, and level-0 pixels along a cell."""

    mask_yx: NDArray[np.uint8]
    cell_px0: int


@dataclass(frozen=True)
class OpenSlide:
    """A slide open for reading, with a version that changes when the store is rewritten."""

    reader: StoreReader
    version: str
    damaged: DamagedAreas | None = None
    """None if no damage is known."""

    @cached_property
    def screen_levels(self) -> tuple[ScreenLevel, ...]:
        """The pyramid's levels as the viewer requests them."""
        return screen_levels(self.reader)

    def at_plane(self, plane: int) -> OpenSlide:
        """The slide at a focal plane, by its number, lowest first.

        Raises:
            NoSuchTileError: it has no such plane. GemslideError: its store is damaged.
        """
        planes_um = self.reader.attributes.planes_um or (0.0,)
        if plane >= len(planes_um):
            raise NoSuchTileError(
                f"focal plane {plane}: slide {self.reader.slide_id} has planes 0 to {len(planes_um) - 1}"
            )
        if plane == self.reader.plane:
            return self
        if plane not in self._planes:  # two threads may open it at once; one of both is kept
            reader = StoreReader(self.reader.path, planes_um[plane])
            self._planes.setdefault(plane, OpenSlide(reader, self.version, self.damaged))
        return self._planes[plane]

    @cached_property
    def _planes(self) -> dict[int, OpenSlide]:
        return {}


@dataclass(frozen=True)
class OpenPredictions:
    """One model's predictions for one slide, with a version that changes when they are rewritten."""

    predictions: Predictions
    version: str

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of the model's output: judgements refer to these values, wherever they are stored."""
        output = self.predictions
        shape = repr((output.model_id, output.class_names, output.stride_px0, output.probabilities_cyx.shape))
        return hashlib.sha256(shape.encode() + output.probabilities_cyx.tobytes()).hexdigest()


@dataclass(frozen=True)
class ClassNames:
    """Facts to show about a model's predictions, without their values."""

    class_names: tuple[str, ...]
    stride_px0: float
    plane_um: float | None
    """Height of the focal plane that they are of; None of a slide with a single one."""
    version: str


@dataclass(frozen=True)
class OpenAttention:
    """One slide-level model's attention over one slide, with a version that changes when it is rewritten."""

    attention: Attention
    version: str

    @cached_property
    def limit(self) -> float:
        """Value at the end of the colour range."""
        return colour_limit(self.attention.times_average_yx)

    @property
    def slides(self) -> tuple[str, ...]:
        """All slides of the patient that the model saw together with this one."""
        stated = self.attention.attributes.get("slides")
        return tuple(map(str, stated)) if isinstance(stated, list) else ()


@dataclass(frozen=True)
class OpenMask:
    """A slide's tissue mask: uint8 (rows, columns), 1 = tissue, and µm along a cell."""

    mask_yx: NDArray[np.uint8]
    mpp: float
    version: str


@dataclass(frozen=True)
class OpenQuality:
    """A slide's QC scores, with a version that changes when they are rewritten."""

    quality: Quality
    version: str


class SlideCache:
    """Opens slides and predictions once, and again when they have changed on disk."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self._open_slide = lru_cache(maxsize=MAX_OPEN_SLIDES)(_open_slide)
        self._summary = lru_cache(maxsize=MAX_SUMMARIES)(summary_of)
        self._open_predictions = lru_cache(maxsize=MAX_OPEN_PREDICTIONS)(_open_predictions)
        self._class_names = lru_cache(maxsize=MAX_SUMMARIES)(_class_names)
        self._open_attention = lru_cache(maxsize=MAX_OPEN_PREDICTIONS)(_open_attention)
        self._tissue = lru_cache(maxsize=MAX_OPEN_MASKS)(_tissue)
        self._quality = lru_cache(maxsize=MAX_OPEN_MASKS)(_quality)

    def slide(self, slide_id: str) -> OpenSlide:
        """Open a slide.

        Raises:
            BadLinkError, UnknownNameError: no such slide in the project.
            GemslideError, OSError: its store is damaged or cannot be read.
        """
        return self._open_slide(*_stamped(self._store_path(slide_id), what=f"slide {slide_id!r}"))

    def summary(self, slide_id: str) -> SlideSummary:
        """Facts about a slide for the worklist. Raises: as `slide`."""
        return self._summary(*_stamped(self._store_path(slide_id), what=f"slide {slide_id!r}"))

    def model_ids(self, slide_id: str) -> list[str]:
        """Models with predictions for a slide, in name order; folders not written by a model are left out.

        Raises:
            BadLinkError: not a slide name.
            OSError: the folder cannot be read.
        """
        return list_predictions(self._store_path(slide_id))

    def predictions(self, slide_id: str, model_id: str) -> OpenPredictions:
        """Read a model's predictions for a slide.

        Raises:
            BadLinkError, UnknownNameError: no such slide, or no predictions of such a model.
            GemslideError, OSError: they are damaged or cannot be read.
        """
        return self._open_predictions(*self._stamped_predictions(slide_id, model_id))

    def class_names(self, slide_id: str, model_id: str) -> ClassNames:
        """The classes that a model predicts. Raises: as `predictions`."""
        return self._class_names(*self._stamped_predictions(slide_id, model_id))

    def attention_ids(self, slide_id: str) -> list[str]:
        """Slide-level models with attention over a slide. Raises: as `model_ids`."""
        return list_attention(self._store_path(slide_id))

    def attention(self, slide_id: str, model_id: str) -> OpenAttention:
        """Read a slide-level model's attention over a slide.

        Raises:
            BadLinkError, UnknownNameError: no such slide, or no attention of such a model.
            GemslideError, OSError: it is damaged or cannot be read.
        """
        store_path = self._store_path(slide_id)
        group = store_path / ATTENTION / _checked(model_id, what="model")
        _, version = _stamped(group, what=attention_named(slide_id, model_id))
        return self._open_attention(store_path, model_id, version)

    def tissue(self, slide_id: str) -> OpenMask | None:
        """The tissue mask; None if the slide has none.

        Raises:
            BadLinkError: not a slide name.
            GemslideError, OSError: it is damaged or cannot be read.
        """
        store_path = self._store_path(slide_id)
        if not has_tissue(store_path):
            return None
        _, version = _stamped(store_path / TISSUE, what=f"the tissue mask of slide {slide_id!r}")
        return self._tissue(store_path, version)

    def quality(self, slide_id: str) -> OpenQuality | None:
        """The QC scores; None if the slide was never checked. Raises: as `tissue`."""
        store_path = self._store_path(slide_id)
        if not (store_path / QUALITY / "zarr.json").exists():
            return None
        _, version = _stamped(store_path / QUALITY, what=f"the quality scores of slide {slide_id!r}")
        return self._quality(store_path, version)

    def hotspots(self, slide_id: str, model_id: str) -> Hotspots | None:
        """A model's hotspots on a slide, highest score first; None if no list was made, unlike an empty list.

        Raises:
            BadLinkError: not the name of a slide or model.
            GemslideError, OSError: the list is damaged, cannot be read, or is not of these predictions.
        """
        if hotspots := self._listed(slide_id, model_id):
            check_hotspots(hotspots, self.predictions(slide_id, model_id).predictions, slide_id)
        return hotspots

    def _listed(self, slide_id: str, model_id: str) -> Hotspots | None:
        slide_id, model_id = _checked(slide_id, what="slide"), _checked(model_id, what="model")
        return read_hotspots(self.project.root, slide_id, model_id)

    def threshold(self, slide_id: str, model_id: str) -> float:
        """The threshold of a model's results on a slide; the default if they have none. Raises BadLinkError."""
        try:
            listed = self._listed(slide_id, model_id)
        except (GemslideError, OSError) as error:  # reported wherever the hotspots are listed
            if isinstance(error, BadLinkError):
                raise
            listed = None
        return listed.threshold if listed else DEFAULT_THRESHOLD

    def _stamped_predictions(self, slide_id: str, model_id: str) -> tuple[StorePath, str, str]:
        store_path = self._store_path(slide_id)
        group = store_path / PREDICTIONS / _checked(model_id, what="model")
        _, version = _stamped(group, what=f"predictions of model {model_id!r} for slide {slide_id!r}")
        return store_path, model_id, version

    def _store_path(self, slide_id: str) -> StorePath:
        return self.project.stored_at(_checked(slide_id, what="slide"))


@lru_cache(maxsize=4)
def slide_cache(project: Project) -> SlideCache:
    """The one cache of a project in this process."""
    return SlideCache(project)


def current_cache() -> SlideCache:
    """The cache of the project that this process serves."""
    return slide_cache(served_project())


def attention_named(slide_id: str, model_id: str) -> str:
    """Words for a slide-level model's attention over a slide, in messages."""
    return f"attention of model {model_id!r} for slide {slide_id!r}"


def not_in_project(what: str) -> str:
    """The message about something that is not there, or hidden from the person, which must read the same."""
    return f"{what}: not in this project. The worklist lists its slides."


def _checked(name: str, *, what: str) -> str:
    if is_name(name):
        return name
    raise BadLinkError(f"{what} {name!r}: not a name. Allowed are {ALLOWED}.")


def _stamped(group: StorePath, *, what: str) -> tuple[StorePath, str]:
    """The path, and a version that another file in place of its `zarr.json` cannot have.

    The file's time alone would not do: it can be kept or chosen when a store is copied or unpacked.
    """
    try:
        identity = (_SHOWN_AS, *_identity(group / "zarr.json"))
    except (FileNotFoundError, NotADirectoryError) as error:
        if group.is_dir():
            raise UnreadableError(f"{group}: has no zarr.json. It is damaged; delete and recreate it.") from error
        raise UnknownNameError(not_in_project(what)) from error
    return group, hashlib.sha256(repr(identity).encode()).hexdigest()[:20]


def _identity(path: StorePath) -> tuple[str | int, ...]:
    """What another file or object of this name does not have in common with it. Raises OSError."""
    if isinstance(path, ObjectPath):
        # An ETag is the content's, and the metadata of two slides' masks can be the same.
        root = next(folder for folder in path.parents if folder.name.endswith(STORE_SUFFIX))
        return (*path.identity(), *(root / "zarr.json").identity())
    status = path.stat()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _open_slide(store_path: StorePath, version: str) -> OpenSlide:
    reader = StoreReader(store_path)
    damaged = read_damaged(store_path, stated_tiles=reader.attributes.damaged_tiles)
    return OpenSlide(reader, version, DamagedAreas(*damaged) if damaged else None)


def _open_predictions(store_path: StorePath, model_id: str, version: str) -> OpenPredictions:
    return OpenPredictions(read_predictions(store_path, model_id), version)


def _class_names(store_path: StorePath, model_id: str, version: str) -> ClassNames:
    grid = read_prediction_grid(store_path, model_id)
    return ClassNames(grid.class_names, grid.stride_px0, grid.plane_um, version)


def _open_attention(store_path: StorePath, model_id: str, version: str) -> OpenAttention:
    return OpenAttention(read_attention(store_path, model_id), version)


def _tissue(store_path: StorePath, version: str) -> OpenMask:
    return OpenMask(*read_tissue(store_path), version)


def _quality(store_path: StorePath, version: str) -> OpenQuality | None:
    quality = read_quality(store_path)
    return OpenQuality(quality, version) if quality else None
