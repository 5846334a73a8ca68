"""Settings of one slide in a napari viewer, and the layers that follow them. No Qt; napari only through its viewer."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pathology_app.desktop.colouring import prediction_colours
from pathology_app.desktop.layers import (
    ATTENTION,
    DAMAGED,
    IMAGE,
    NOTES,
    OURS,
    PREDICTION,
    PREDICTION_OPACITY,
    RINGS,
    UNITS,
    about_layer,
)
from pathology_app.desktop.notes import SlideNotes
from pathology_app.desktop.slide import HotspotList, OpenedSlide
from pathology_app.html.attention import attention_at, attention_text
from pathology_app.html.text import as_text
from pipeline.inference import Hotspot
from pipeline.palettes import CLASS_COLOURS, DEFAULT_PALETTE
from pipeline.units import RESEARCH_USE

TEN_TIMES = 1.0
"""Screen pixels per µm at a 10× objective."""
MAX_RINGS, MAX_LABELS = 5_000, 500
_SMALLEST_RING_PX = 18
_THRESHOLD_STEPS = 100
"""napari keeps every colormap it has seen, by name: this bounds their number."""


def slide_of(layer: Any) -> OpenedSlide | None:
    """The slide that a layer of any viewer belongs to; None if the layer is not ours."""
    metadata = layer.metadata.get(OURS)
    return metadata["slide"] if metadata else None


def role_of(layer: Any) -> str:
    """Role of one of our layers: see `layers.about_layer`."""
    return str(layer.metadata[OURS]["role"])


class SlideControls:
    """Model, class, threshold, opacity and colours of one slide's layers; its rings; and the camera."""

    def __init__(self, viewer: Any, slide: OpenedSlide) -> None:
        self.viewer, self.slide = viewer, slide
        shown = slide.shown_first()
        self.model_id, self.class_name = shown or ("", "")
        self.opacity, self.palette = PREDICTION_OPACITY, DEFAULT_PALETTE
        self.as_scanned = False
        self.notes = SlideNotes(viewer, slide)
        self._lists: dict[str, HotspotList] = {}
        self.threshold = self.hotspot_list().threshold
        self._is_threshold_chosen = False
        for layer in self.layers(PREDICTION):
            self.follow(layer)

    def layers(self, role: str) -> list[Any]:
        """Layers of the slide that have a role, bottom to top."""
        return [layer for layer in self.viewer.layers if slide_of(layer) is self.slide and role_of(layer) == role]

    @property
    def is_open(self) -> bool:
        """Whether the slide's image is still in the viewer."""
        return bool(self.layers(IMAGE))

    def follow(self, layer: Any) -> None:
        """Colour a prediction layer whenever it is shown: hidden ones cost nothing while a slider moves."""
        layer.events.visible.connect(lambda: self._colour(layer))
        self._colour(layer)

    def choose(self, model_id: str, class_name: str) -> None:
        """Show one class of a model, and its rings."""
        has_new_model = model_id != self.model_id
        self.model_id, self.class_name = model_id, class_name
        if has_new_model and not self._is_threshold_chosen:
            self.threshold = self.hotspot_list().threshold
        for layer in self.layers(PREDICTION):
            layer.visible = self._is_chosen(layer)
        if has_new_model:
            self.draw_rings()
        else:
            self._show_rings()

    def set_threshold(self, threshold: float) -> None:
        self._is_threshold_chosen = True
        self.threshold = round(min(max(threshold, 0.0), 1.0) * _THRESHOLD_STEPS) / _THRESHOLD_STEPS
        self._recolour()
        self._show_rings()

    def set_palette(self, palette: str) -> None:
        self.palette = palette
        self._recolour()

    def set_opacity(self, opacity: float) -> None:
        self.opacity = opacity
        self._recolour()

    def set_as_scanned(self, as_scanned: bool) -> None:
        """Show the image without or with the scanner's colour profile."""
        self.as_scanned = as_scanned
        for layer in self.layers(IMAGE):
            layer.data = self.slide.pixels.arrays(as_scanned=as_scanned)

    def show_only(self) -> None:
        """Hide the viewer's other slides, which are at the same position, and show this one as chosen."""
        for layer in self.viewer.layers:
            other = slide_of(layer)
            if other is not None and other is not self.slide:
                layer.visible = False
        for role in (IMAGE, RINGS, NOTES, DAMAGED):
            for layer in self.layers(role):
                layer.visible = True
        for layer in self.layers(PREDICTION):
            layer.visible = self._is_chosen(layer)

    def _is_chosen(self, layer: Any) -> bool:
        metadata = layer.metadata[OURS]
        return bool((metadata["model_id"], metadata["class_name"]) == (self.model_id, self.class_name))

    def hotspot_list(self) -> HotspotList:
        """Hotspot list of the chosen model."""
        if self.model_id not in self._lists:
            self._lists[self.model_id] = self.slide.hotspots(self.model_id) if self.model_id else HotspotList()
        return self._lists[self.model_id]

    def hotspots(self) -> list[Hotspot]:
        """Hotspots listed and circled: of the class shown, at or above the threshold, strongest first."""
        return self.hotspot_list().of(self.class_name, self.threshold)

    def go_to(self, spot: Hotspot) -> None:
        """Move the camera to a hotspot, at 10×."""
        self.viewer.scene.camera.center = self._world_um(spot["x_px0"], spot["y_px0"])
        self.viewer.scene.camera.zoom = TEN_TIMES

    def probe(self, position_um: tuple[float, ...]) -> str:
        """Describe a world position: "P(tumour) = 0.93 · 812 µm right, 400 µm down"."""
        mpp0 = self.slide.reader.mpp0
        x_px0, y_px0 = position_um[-1] / mpp0 + 0.5, position_um[-2] / mpp0 + 0.5
        width_px0, height_px0 = self.slide.reader.size_wh_px0
        if not (0 <= x_px0 < width_px0 and 0 <= y_px0 < height_px0):
            return f"{self.slide.slide_id}: outside the slide"
        values = f"{self._probability(x_px0, y_px0)}{self._attention(x_px0, y_px0)}"
        return f"{values}{x_px0 * mpp0:.0f} µm right, {y_px0 * mpp0:.0f} µm down"

    def _probability(self, x_px0: float, y_px0: float) -> str:
        predictions = self.slide.predictions(self.model_id) if self.model_id else None
        if predictions is None:
            return ""
        values = predictions.at(x_px0, y_px0)
        name = as_text(self.class_name)
        return f"P({name}): not predicted · " if values is None else f"P({name}) = {values[self.class_name]:.2f} · "

    def _attention(self, x_px0: float, y_px0: float) -> str:
        """The values of the attention layers that are shown."""
        shown = [layer.metadata[OURS]["model_id"] for layer in self.layers(ATTENTION) if layer.visible]
        values = {model_id: attention_at(self.slide.attention[model_id], x_px0, y_px0) for model_id in shown}
        return "".join(f"{model_id}: attention {attention_text(value)} · " for model_id, value in values.items())

    def draw_rings(self) -> None:
        """Draw rings around the chosen model's hotspots, in a separate layer; none if the list is unknown."""
        for layer in self.layers(RINGS):
            self.viewer.layers.remove(layer)
        spots = self.hotspot_list().spots[:MAX_RINGS]
        if not spots:
            return
        grid = self.slide.grids[self.model_id]
        # A ring around the strongest cell, always large enough to see on the screen.
        diameter_um = grid.stride_px0 * self.slide.reader.mpp0 * math.sqrt(2)
        active = self.viewer.layers.selection.active
        layer = self.viewer.add_points(
            np.array([self._world_um(spot["x_px0"], spot["y_px0"]) for spot in spots]),
            name=f"hotspots {self.model_id}",
            symbol="disc",
            size=diameter_um,
            face_color="transparent",
            border_color=[f"#{self._ring_colour(spot)}" for spot in spots],
            border_width=0.12,
            canvas_size_limits=(_SMALLEST_RING_PX, 10_000),
            text=_labels(spots, diameter_um) if len(spots) <= MAX_LABELS else None,
            units=UNITS,
            **about_layer(self.slide, RINGS),
        )
        layer.editable = False
        self._show_rings()
        if active is not None:  # keys go to the active layer
            self.viewer.layers.selection.active = active

    def _show_rings(self) -> None:
        for layer in self.layers(RINGS):
            spots = self.hotspot_list().spots[:MAX_RINGS]
            shown = [self.hotspot_list().reaches(spot, self.class_name, self.threshold) for spot in spots]
            if list(layer.shown) != shown:
                layer.shown = shown

    def _ring_colour(self, spot: Hotspot) -> str:
        names = self.slide.grids[self.model_id].class_names
        return CLASS_COLOURS[names.index(spot["class"]) % len(CLASS_COLOURS) if spot["class"] in names else -1]

    def _world_um(self, x_px0: float, y_px0: float) -> tuple[float, float]:
        mpp0 = self.slide.reader.mpp0
        return (y_px0 - 0.5) * mpp0, (x_px0 - 0.5) * mpp0

    def _recolour(self) -> None:
        for layer in self.layers(PREDICTION):
            self._colour(layer)

    def _colour(self, layer: Any) -> None:
        if not layer.visible:
            return
        look = prediction_colours(self.palette, self.threshold)
        named = {"name": f"{self.palette} from {self.threshold:g}", **look["colormap"]}
        if layer.colormap.name != named["name"]:
            layer.colormap = named
            layer.contrast_limits = look["contrast_limits"]
        if layer.opacity != self.opacity:
            layer.opacity = self.opacity


def probe_in_status(controls: SlideControls, status: Any) -> None:
    """Show the values under the cursor in the status bar, instead of napari's bare indices."""
    if isinstance(status, dict) and "coordinates" in status:
        text = controls.probe(tuple(controls.viewer.cursor.position))
        if status["coordinates"] != text:
            controls.viewer.status = {**status, "coordinates": text}


def furnish_canvas(viewer: Any) -> None:
    """Show the scale bar and the notice that must stay visible."""
    overlays = viewer.canvas.overlays
    overlays.scale_bar.visible = True
    overlays.text.text = RESEARCH_USE
    overlays.text.position = "top_left"
    overlays.text.visible = True
    for overlay in (overlays.scale_bar, overlays.text):
        overlay.box = True


def _labels(spots: tuple[Hotspot, ...], diameter_um: float) -> dict[str, Any]:
    return {
        "string": [f"{as_text(spot['class'])} {spot['score']:.2f}" for spot in spots],
        "color": "black",
        "size": 10,
        "anchor": "upper_left",
        "translation": (-diameter_um / 2, diameter_um / 2),
    }
