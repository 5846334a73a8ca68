"""napari windows that show slides. The only file that imports napari."""

from __future__ import annotations

from typing import Any

import napari
from napari.layers import Layer
from napari.settings import get_settings
from qtpy.QtGui import QGuiApplication

from pathology_app.desktop.display import window_rectangle
from pathology_app.desktop.dock import DOCK_NAME, SlideDock
from pathology_app.desktop.layers import layers_of
from pathology_app.desktop.slide import OpenedSlide
from pipeline.places.object_path import StorePath
from pipeline.project import Project
from pipeline.units import RESEARCH_USE


def show_store(store_path: StorePath, home: Project | None = None, plane_um: float | None = None) -> None:
    """Open a window and wait until it is closed. Args: as of `OpenedSlide`."""
    open_viewer(store_path, home, plane_um)
    napari.run()


def open_viewer(store_path: StorePath, home: Project | None = None, plane_um: float | None = None) -> napari.Viewer:
    """Open a window with the store's layers, in micrometres, and the dock next to them.

    Raises:
        GemslideError: no store at this path, or a damaged one; then no window is opened.
    """
    slide = OpenedSlide(store_path, home, plane_um)
    layers = layers_of(slide)
    viewer = napari.Viewer(title=f"{store_path.name} - {RESEARCH_USE}", show_welcome_screen=False)
    for data, keywords, kind in layers:
        viewer.add_layer(Layer.create(data, keywords, kind))
    viewer.layers.selection.active = viewer.layers[0]
    furnish(viewer)
    _place(viewer)
    viewer.reset_view()
    return viewer


def _place(viewer: napari.Viewer) -> None:
    """Give the window a useful size on its screen; napari's own first one is small. A maximised one stays."""
    remembered = get_settings().application
    screen = QGuiApplication.primaryScreen()
    if screen is None or remembered.window_maximized:
        return
    free = screen.availableGeometry()
    own = (remembered.window_size[0], remembered.window_size[1]) if remembered.window_size else None
    window: Any = viewer.window  # untyped in napari
    window.set_geometry(*window_rectangle((free.x(), free.y(), free.width(), free.height()), own))


def furnish(viewer: Any) -> SlideDock:
    """Add our dock to a viewer, once."""
    for inner in viewer.window.dock_widgets.values():
        if isinstance(inner, SlideDock):
            return inner
    dock = SlideDock(viewer)
    viewer.window.add_dock_widget(dock, name=DOCK_NAME, area="right")
    return dock


def furnish_current() -> None:
    """Add the dock to the viewer in which a slide is being opened, if there is one."""
    viewer = napari.current_viewer()
    if viewer is not None:
        furnish(viewer)
