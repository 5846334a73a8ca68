"""A napari window over one slide store. The only file that opens napari."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import napari
from napari.layers import Layer

from pathology_app.desktop.layers import slide_layers
from pipeline.errors import GemslideError
from pipeline.units import RESEARCH_USE


class NoDisplayError(GemslideError):
    """There is no screen to open a window on."""

    code = "no_display"


def show_store(store_path: Path) -> None:
    """Open a window and wait until it is closed."""
    check_display()
    open_viewer(store_path)
    napari.run()


def check_display() -> None:
    """Raises NoDisplayError where Qt could not open a window: it would end the process without a word."""
    if sys.platform.startswith("linux") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        raise NoDisplayError(
            "no display (neither DISPLAY nor WAYLAND_DISPLAY is set). Run this on a desktop, "
            "or look at the slide in a browser: gemslide app"
        )


def open_viewer(store_path: Path) -> napari.Viewer:
    """A window with the store's layers, in micrometres."""
    layers = slide_layers(store_path)
    viewer = napari.Viewer(title=f"{store_path.name} - {RESEARCH_USE}")
    for data, keywords, kind in layers:
        viewer.add_layer(Layer.create(data, keywords, kind))
    viewer.scale_bar.visible = True
    viewer.text_overlay.text = RESEARCH_USE
    viewer.text_overlay.visible = True
    return viewer
