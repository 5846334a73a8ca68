"""A napari window over one slide store. The only file that opens napari."""

from __future__ import annotations

from pathlib import Path

import napari
from napari.layers import Layer

from pathology_app.desktop.layers import slide_layers
from pipeline.units import RESEARCH_USE


def show_store(store_path: Path) -> None:
    """Open a window and wait until it is closed."""
    open_viewer(store_path)
    napari.run()


def open_viewer(store_path: Path) -> napari.Viewer:
    """A window with the store's layers, in micrometres."""
    layers = slide_layers(store_path)
    viewer = napari.Viewer(title=f"{store_path.name} - {RESEARCH_USE}")
    for data, keywords, kind in layers:
        viewer.add_layer(Layer.create(data, keywords, kind))
    viewer.scale_bar.visible = True
    viewer.text_overlay.text = RESEARCH_USE
    viewer.text_overlay.position = "top_left"
    viewer.text_overlay.visible = True
    viewer.reset_view()
    return viewer
