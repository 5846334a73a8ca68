"""Use every control of napari's dock on a slide, draw with each tool by mouse, and save. Run under xvfb by
test_napari_walk.py.

The slide has the annotations named on the command line: none, an area, a point, or both.
"""

from __future__ import annotations

import faulthandler
import json
import sys
import traceback
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any

from qtpy.QtCore import QEventLoop, QPoint, Qt, QTimer
from qtpy.QtTest import QTest
from qtpy.QtWidgets import QAbstractButton, QApplication, QComboBox, QLineEdit, QSlider, QTableView, QWidget
from shapely.geometry import Point, box

from pathology_app.desktop.window import furnish, open_viewer
from pipeline.ledger import find_ledger, open_ledger
from pipeline.project import Project
from pipeline.review import Draft, annotations_of, save
from tests.pathology_app.small_project import MPP0, SLIDE_ID

STORED = {
    "none": [],
    "area": [Draft(box(1100, 200, 1300, 300), "rectangle", "tumour")],
    "point": [Draft(Point(640, 800), "point", "mitosis")],
    "both": [Draft(box(1100, 200, 1300, 300), "rectangle", "tumour"), Draft(Point(640, 800), "point", "mitosis")],
}
"""Annotations that the web app stored for the slide beforehand."""

TOOLS = {
    "add_rectangle": ("drag", [(300, 300), (420, 380)]),
    "add_ellipse": ("drag", [(600, 300), (720, 400)]),
    "add_line": ("drag", [(300, 500), (420, 560)]),
    "add_path": ("drag", [(500, 500), (560, 520), (600, 600)]),
    "add_polyline": ("clicks", [(700, 500), (760, 520), (800, 600)]),
    "add_polygon": ("clicks", [(300, 700), (420, 720), (360, 820)]),
    "add_polygon_lasso": ("drag", [(600, 700), (700, 700), (700, 800), (600, 800), (600, 720)]),
}
"""napari's drawing tools: how the mouse is used, and where, in level-0 pixels."""

CONTROLS = (QComboBox, QLineEdit, QSlider, QAbstractButton, QTableView)


class Walk:
    """One window in which every exception is recorded: Qt only prints those of its slots and goes on."""

    def __init__(self, root: Path, stored: str) -> None:
        self.errors: list[str] = []
        sys.excepthook = self._note_error
        self.project = Project(root)
        if STORED[stored]:
            ledger = open_ledger(self.project)
            save(ledger, SLIDE_ID, STORED[stored], "ada (web app)")
            ledger.database.close()
        self.viewer = open_viewer(self.project.store_path(SLIDE_ID))
        self.viewer.window._qt_window.resize(1400, 900)
        self.dock = furnish(self.viewer)
        self.used: set[QWidget] = set()
        self.until(lambda: self.dock.hotspots.model() is not None and self.is_furnished(bool(STORED[stored])))

    def is_furnished(self, has_notes: bool) -> bool:
        rings = any(layer.name.startswith("hotspots") for layer in self.viewer.layers)
        return rings and (bool(self.notes.layers()) or not has_notes)

    @property
    def notes(self) -> Any:
        return self.dock.controls.notes

    def _note_error(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        self.errors.append("".join(traceback.format_exception(kind, error, trace))[-600:])

    def until(self, is_so: Callable[[], bool]) -> None:
        """Process the window's events until a condition holds; the test's time limit ends a wait that never does."""
        wake = QTimer()
        wake.start(20)
        while not is_so():
            QApplication.processEvents(QEventLoop.ProcessEventsFlag.WaitForMoreEvents)

    def controls(self) -> Iterator[QWidget]:
        """Controls that a person can press, choose from or type into, except those inside another control."""
        for widget in self.dock.findChildren(QWidget):
            if isinstance(widget, CONTROLS) and widget.parent() not in self.used and widget.isEnabled():
                yield widget

    def use_all(self) -> list[str]:
        """Use each control as a person does; return the kinds that were used."""
        kinds = []
        for widget in list(self.controls()):
            if isinstance(widget, QComboBox):
                for row in range(widget.count()):
                    widget.setCurrentIndex(row)
                    widget.activated.emit(row)
            elif isinstance(widget, QSlider):
                for value in (0, 37, 100, 50):
                    widget.setValue(value)
            elif isinstance(widget, QTableView):
                for row in range(widget.model().rowCount() if widget.model() else 0):
                    widget.selectRow(row)
            elif isinstance(widget, QLineEdit):
                self._type(widget, "necrosis")
            else:
                QTest.mouseClick(widget, Qt.MouseButton.LeftButton)
            self.used.add(widget)
            kinds.append(type(widget).__name__)
            QApplication.processEvents()
        return kinds

    def draw_with_every_tool(self) -> list[str]:
        """Draw by mouse with the Draw button, then with each of napari's tools; return the number each added."""
        QTest.mouseClick(self.dock.notes_box.draw_button, Qt.MouseButton.LeftButton)
        self._type(self.dock.notes_box.class_edit, "stroma")
        self.viewer.scene.camera.center = (600 * MPP0, 600 * MPP0)
        self.viewer.scene.camera.zoom = 1.0
        QApplication.processEvents()
        shapes, points = self.notes.layers()
        added = [f"Draw {shapes.mode}"]
        for tool, (way, corners) in TOOLS.items():
            self.viewer.layers.selection.active = shapes
            shapes.mode = tool
            before = len(shapes.data)
            self._drag(corners) if way == "drag" else self._click_corners(corners)
            added.append(f"{tool} {len(shapes.data) - before}")
        self.viewer.layers.selection.active = points
        points.mode = "add"
        before = len(points.data)
        self._press(self._at((900, 600)))
        added.append(f"add {len(points.data) - before}")
        return added

    def select_change_and_delete(self) -> dict[str, int]:
        """Select a drawn shape by mouse, give it a note, and delete another."""
        shapes, _ = self.notes.layers()
        self.viewer.layers.selection.active = shapes
        shapes.mode = "select"
        self._press(self._at((300, 340)))  # the rectangle's left edge
        self._type(self.dock.notes_box.note, "by mouse")
        noted = int((shapes.features["note"] == "by mouse").sum())
        before = len(shapes.data)
        shapes.selected_data = {len(shapes.data) - 1}
        shapes.remove_selected()
        QApplication.processEvents()
        return {"noted": noted, "deleted": before - len(shapes.data)}

    @staticmethod
    def _type(field: QLineEdit, text: str) -> None:
        field.clear()
        QTest.keyClicks(field, text)
        QTest.keyClick(field, Qt.Key.Key_Return)

    def _at(self, xy_px0: tuple[float, float]) -> QPoint:
        """Canvas point over a position on the slide."""
        native = self._native
        _, y_um, x_um = self.viewer.scene.camera.center
        zoom = self.viewer.scene.camera.zoom
        x = (xy_px0[0] * MPP0 - MPP0 / 2 - x_um) * zoom + native.width() / 2
        y = (xy_px0[1] * MPP0 - MPP0 / 2 - y_um) * zoom + native.height() / 2
        return QPoint(round(x), round(y))

    @property
    def _native(self) -> Any:
        return self.viewer.window._qt_viewer.canvas.native

    def _press(self, at: QPoint) -> None:
        QTest.mouseMove(self._native, at)
        QTest.mouseClick(self._native, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier, at)
        QApplication.processEvents()

    def _drag(self, corners: list[tuple[int, int]]) -> None:
        places = [self._at(corner) for corner in corners]
        left = Qt.MouseButton.LeftButton
        QTest.mouseMove(self._native, places[0])
        QTest.mousePress(self._native, left, Qt.KeyboardModifier.NoModifier, places[0])
        for before, after in pairwise(places):
            for step in range(1, 6):
                QTest.mouseMove(self._native, before + (after - before) * (step / 5))
                QApplication.processEvents()
        QTest.mouseRelease(self._native, left, Qt.KeyboardModifier.NoModifier, places[-1])
        QApplication.processEvents()

    def _click_corners(self, corners: list[tuple[int, int]]) -> None:
        for corner in corners:
            self._press(self._at(corner))
        left = Qt.MouseButton.LeftButton
        QTest.mouseDClick(self._native, left, Qt.KeyboardModifier.NoModifier, self._at(corners[-1]))
        QApplication.processEvents()

    def kept(self) -> list[list[Any]]:
        ledger = find_ledger(self.project)
        if ledger is None:
            return []
        rows = [
            [annotation.kind, annotation.class_name, annotation.note] for annotation in annotations_of(ledger, SLIDE_ID)
        ]
        ledger.database.close()
        return sorted(rows, key=str)


def main(root: Path, image: Path, stored: str) -> None:
    faulthandler.dump_traceback_later(240, exit=True)  # prints where a window waits for an event that never comes
    walk = Walk(root, stored)
    results: dict[str, Any] = {"used": walk.use_all(), "kept_first": walk.kept()}
    results["added"] = walk.draw_with_every_tool()
    results["changed"] = walk.select_change_and_delete()
    walk.viewer.screenshot(str(image), canvas_only=False, flash=False)
    results["unsaved"] = len(walk.notes.unsaved())
    QTest.mouseClick(walk.dock.notes_box.save_button, Qt.MouseButton.LeftButton)
    results["message"] = walk.dock.notes_box.message.text()
    results["kept"] = walk.kept()
    results["unused"] = [type(widget).__name__ for widget in walk.controls() if widget not in walk.used]
    walk.viewer.close()
    print(json.dumps({**results, "errors": walk.errors}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
