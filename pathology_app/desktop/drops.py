"""Slide stores dropped into a window with our dock: opened at once, without napari asking which reader to use."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from qtpy.QtCore import QEvent, QObject
from qtpy.QtGui import QDropEvent
from qtpy.QtWidgets import QMainWindow, QWidget

from pipeline.store import is_store


class StoreDrops(QObject):
    """Handles drops that contain only slide stores; all other drops are left to napari."""

    def __init__(self, open_store: Callable[[Path], None]) -> None:
        super().__init__()
        self._open = open_store

    def watch(self, window: QWidget) -> None:
        """Watch the widgets that accept drops in the centre of napari's window."""
        middle = window.centralWidget() if isinstance(window, QMainWindow) else None
        if middle is not None:
            for widget in (middle, *middle.findChildren(QWidget)):
                if widget.acceptDrops():
                    widget.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() != QEvent.Type.Drop or not isinstance(event, QDropEvent):
            return False
        paths = [Path(url.toLocalFile()) for url in event.mimeData().urls()]
        if not paths or not all(is_store(path) for path in paths):
            return False
        event.acceptProposedAction()
        for path in paths:
            self._open(path)
        return True
