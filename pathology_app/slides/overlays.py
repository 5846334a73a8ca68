"""Overlays on a slide, one class for each kind.

A kind declares its links, whether its content is hidden from blinded readers, and its initial look. It is used by the
routes (tiles/routes.py), the browser's layers (frontend/src/types.ts, LayerInfo) and napari (desktop/layers.py). To add
a kind, add a class here, a line in `KINDS`, and its layer in napari.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple
from urllib.parse import quote

import numpy as np

from pathology_app.html import attention as read
from pathology_app.html.text import READ_ERRORS, as_text, message_of
from pathology_app.slides.cache import NoSuchTileError, SlideCache, UnknownNameError
from pathology_app.slides.overlay_png import mask_png, overlay_png
from pipeline.palettes import DEFAULT_PALETTE
from pipeline.settings.config import DEFAULT_THRESHOLD
from pipeline.units import height_text

LayerInfo = dict[str, Any]
"""A layer in the browser's format."""


@dataclass(frozen=True)
class Style:
    """The initial look of a layer.

    Attributes:
        threshold: the value from which cells are drawn.
        palette: one of `pipeline.palettes`.
        outline: draw the edge of the area that reaches the threshold, instead of filling it.
    """

    visible: bool = False
    opacity: float = 0.5
    threshold: float = DEFAULT_THRESHOLD
    palette: str = DEFAULT_PALETTE
    outline: bool = False


class Shown(NamedTuple):
    """Models whose predictions may be shown over a slide, and the model and class shown first.

    Attributes:
        attended: slide-level models whose attention may be shown.
    """

    slide_id: str
    model_ids: Sequence[str] = ()
    first: tuple[str, int] | None = None
    attended: Sequence[str] = ()


class Place(NamedTuple):
    """The parts of a link that names an overlay.

    Attributes:
        rest: groups of the kind's pattern.
    """

    slide_id: str
    model_id: str
    rest: tuple[str, ...]


class Found(NamedTuple):
    """An overlay's cells: a version that changes with them, and a function that makes the PNG."""

    version: str
    png: Callable[[], bytes]


class OverlayKind(ABC):
    """One kind of overlay.

    Attributes:
        name: used in links of layers, and as napari's role.
        path: path of the route; of kinds that share one, all are blinded or none is.
        pattern: pattern of the link's last part; `form` is its readable form.
        is_mask: cells are 0 or 1.
        blinded: a result, hidden from readers who still have unassisted readings to do.
        style: initial style of a layer.
    """

    name: ClassVar[str]
    group: ClassVar[str] = ""
    path: ClassVar[str]
    pattern: ClassVar[str]
    form: ClassVar[str]
    is_mask: ClassVar[bool] = False
    blinded: ClassVar[bool] = False
    style: ClassVar[Style] = Style()

    @abstractmethod
    def layers(self, cache: SlideCache, shown: Shown) -> Iterator[LayerInfo]:
        """A slide's layers of this kind. Raises: as `SlideCache`."""

    @abstractmethod
    def find(self, cache: SlideCache, place: Place) -> Found:
        """One overlay.

        Raises:
            BadLinkError, UnknownNameError, NoSuchTileError: there is no such overlay.
            GemslideError, OSError: it is damaged or cannot be read.
        """

    def rests_on(self, cache: SlideCache, place: Place) -> Sequence[str]:
        """All slides from which an overlay was made. Raises: as `find`."""
        return (place.slide_id,)

    def layer(self, id_: str, label: str, url: str, cell_px0: float, **own: Any) -> LayerInfo:
        """A layer of this kind; `own` overrides the defaults."""
        defaults = {
            **{"group": self.group, "is_mask": self.is_mask, "is_first": False, "style": asdict(self.style)},
            **{"limit": 1.0, "unit": "", "note": ""},
        }
        return {"id": id_, "kind": self.name, "label": label, "url": url, "cell_px0": cell_px0, **defaults, **own}


class Prediction(OverlayKind):
    """The probability of one class, by one model. It is shown from the threshold used for the results."""

    name, blinded = "prediction", True
    path = "/overlays/{slide_id}/{model_id}/{rest:path}"
    pattern, form = r"(\d{1,9})\.png", "{class_index}.png"

    def layers(self, cache: SlideCache, shown: Shown) -> Iterator[LayerInfo]:
        for model_id in shown.model_ids:
            known = cache.class_names(shown.slide_id, model_id)
            style = replace(self.style, threshold=cache.threshold(shown.slide_id, model_id))
            note = "" if known.plane_um is None else f"Predicted from the focal plane at {height_text(known.plane_um)}."
            for index, name in enumerate(known.class_names):
                is_first = shown.first == (model_id, index)
                yield self.layer(
                    f"{model_id}/{quote(name, safe='')}",
                    f"P({as_text(name)})",
                    f"/overlays/{shown.slide_id}/{model_id}/{index}.png?v={known.version}",
                    known.stride_px0,
                    group=as_text(model_id),
                    is_first=is_first,
                    note=note,
                    style=asdict(replace(style, visible=is_first)),
                )

    def find(self, cache: SlideCache, place: Place) -> Found:
        opened, index = cache.predictions(place.slide_id, place.model_id), int(place.rest[0])
        class_names = opened.predictions.class_names
        if index >= len(class_names):
            raise NoSuchTileError(f"class {index}: the model has classes 0 to {len(class_names) - 1}")
        return Found(opened.version, partial(overlay_png, opened.predictions.probabilities_cyx[index]))


class AttentionMap(OverlayKind):
    """Shares of tiles in what a slide-level model says. Hidden at first: it is no finding, and outlines no disease."""

    name, group, blinded = "attention", "Attention", True
    path = Prediction.path
    pattern, form = r"attention\.png", "attention.png"
    style = Style(threshold=0.0, palette=read.PALETTE)

    def layers(self, cache: SlideCache, shown: Shown) -> Iterator[LayerInfo]:
        for model_id in shown.attended:
            opened = cache.attention(shown.slide_id, model_id)
            yield self.layer(
                f"attention/{model_id}",
                f"{as_text(model_id)}: attention",
                f"/overlays/{shown.slide_id}/{model_id}/attention.png?v={opened.version}",
                opened.attention.stride_px0,
                limit=opened.limit,
                unit=read.UNIT,
                note=read.NOTE,
            )

    def find(self, cache: SlideCache, place: Place) -> Found:
        opened = cache.attention(place.slide_id, place.model_id)
        shares_yx = opened.attention.times_average_yx.astype(np.float32) / opened.limit
        return Found(opened.version, lambda: overlay_png(np.minimum(shares_yx, 1)))

    def rests_on(self, cache: SlideCache, place: Place) -> Sequence[str]:
        return cache.attention(place.slide_id, place.model_id).slides


class Tissue(OverlayKind):
    """The tissue mask. It is certain, not a score, so its outline is drawn."""

    name, group, is_mask = "tissue", "Tissue", True
    path = "/layers/{slide_id}/{rest:path}"
    pattern, form = r"tissue\.png", "tissue.png"
    style = Style(opacity=0.8, palette="Green", outline=True)

    def layers(self, cache: SlideCache, shown: Shown) -> Iterator[LayerInfo]:
        tissue = cache.tissue(shown.slide_id)
        if tissue is not None:
            url = f"/layers/{shown.slide_id}/tissue.png?v={tissue.version}"
            yield self.layer("tissue", "Tissue", url, tissue.mpp / cache.slide(shown.slide_id).reader.mpp0)

    def find(self, cache: SlideCache, place: Place) -> Found:
        tissue = cache.tissue(place.slide_id)
        if tissue is None:
            raise UnknownNameError(f"slide {place.slide_id!r}: has no tissue mask")
        return Found(tissue.version, lambda: overlay_png(tissue.mask_yx.astype(np.float32)))


class Quality(OverlayKind):
    """One score of quality control."""

    name, group = "quality", "Quality: 1 is poor"
    path = "/layers/{slide_id}/{rest:path}"
    pattern, form = r"quality/(\d{1,4})\.png", "quality/{score_index}.png"
    labels: ClassVar[Mapping[str, str]] = {
        "blur": "Out of focus", "pen": "Ink", "fold": "Folds", "bubble": "Bubbles and edges",
    }  # fmt: skip

    def layers(self, cache: SlideCache, shown: Shown) -> Iterator[LayerInfo]:
        opened = cache.quality(shown.slide_id)
        for index, name in enumerate(opened.quality.names if opened else ()):
            assert opened
            yield self.layer(
                f"quality/{quote(name, safe='')}",
                self.labels.get(name, as_text(name)),
                f"/layers/{shown.slide_id}/quality/{index}.png?v={opened.version}",
                opened.quality.cell_px0,
            )

    def find(self, cache: SlideCache, place: Place) -> Found:
        opened, index = cache.quality(place.slide_id), int(place.rest[0])
        if opened is None or index >= len(opened.quality.names):
            raise UnknownNameError(f"slide {place.slide_id!r}: has no quality score {index}")
        return Found(opened.version, partial(overlay_png, opened.quality.scores_cyx[index]))


class Damage(OverlayKind):
    """Damaged areas of the slide's file. They are always hatched: not a layer that could be hidden."""

    name, is_mask = "damaged", True
    path = "/damaged/{rest:path}"
    pattern, form = r"(.+)\.png", "{slide_id}.png"

    def layers(self, cache: SlideCache, shown: Shown) -> Iterator[LayerInfo]:
        return iter(())

    def find(self, cache: SlideCache, place: Place) -> Found:
        slide = cache.slide(place.rest[0])
        damaged = slide.damaged
        if damaged is None:
            raise UnknownNameError(f"slide {slide.reader.slide_id}: no known damage in its file")
        return Found(slide.version, partial(mask_png, damaged.mask_yx))


PREDICTION, ATTENTION, TISSUE, QUALITY, DAMAGE = Prediction(), AttentionMap(), Tissue(), Quality(), Damage()
KINDS: tuple[OverlayKind, ...] = (PREDICTION, ATTENTION, TISSUE, QUALITY, DAMAGE)
"""All kinds, in the order of the browser's list."""


def layers_of(
    cache: SlideCache,
    slide_id: str,
    model_ids: Sequence[str],
    first: tuple[str, int] | None,
    attended: Sequence[str] = (),
) -> tuple[list[LayerInfo], list[str]]:
    """Layers of a slide, and messages about those that cannot be read.

    Args:
        first: model and class chosen on the page.
        attended: slide-level models whose attention may be shown.
    """
    layers: list[LayerInfo] = []
    notes: list[str] = []
    predictions = [(PREDICTION, Shown(slide_id, [model_id], first)) for model_id in model_ids]
    attention = [(ATTENTION, Shown(slide_id, attended=[model_id])) for model_id in attended]
    others = [(kind, Shown(slide_id)) for kind in KINDS if kind not in (PREDICTION, ATTENTION)]
    for kind, shown in [*predictions, *attention, *others]:
        try:
            layers += kind.layers(cache, shown)
        except READ_ERRORS as error:
            notes.append(as_text(message_of(error, cache.project.root)))
    return layers, list(dict.fromkeys(notes))  # two kinds may come from the same array
