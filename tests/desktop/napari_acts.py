"""Use napari as a pathologist does, and print the results. Run under xvfb by test_napari_acts.py."""

from __future__ import annotations

import faulthandler
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import napari
import numpy as np
from napari.settings import get_settings
from qtpy.QtCore import QEventLoop, QMimeData, QPoint, QPointF, Qt, QTimer, QUrl
from qtpy.QtGui import QDragEnterEvent, QDropEvent
from qtpy.QtTest import QTest
from qtpy.QtWidgets import QApplication, QMessageBox
from shapely.geometry import MultiPolygon, Point, Polygon, box

from pathology_app.desktop.window import furnish, open_viewer
from pipeline.box import Box
from pipeline.ledger import find_ledger, open_ledger
from pipeline.project import Project
from pipeline.review import Draft, annotations_of, save
from pipeline.store import StoreReader, for_screen
from tests.pathology_app.small_project import MODEL_ID, MPP0, SLIDE_ID

HOLED = Polygon([(300, 300), (700, 320), (650, 700), (280, 640)], [[(400, 400), (500, 400), (500, 500), (400, 500)]])
DRAWN = [
    Draft(HOLED, "freehand", "tumour", "edge"),
    Draft(box(1100, 200, 1300, 300), "rectangle", "tumour"),
    Draft(MultiPolygon([box(800, 900, 850, 950), box(900, 900, 950, 990)]), "polygon", "stroma"),
    Draft(Point(640, 800), "point", "mitosis"),
]


class Acts:
    """One window, and the actions performed in it."""

    def __init__(self, root: Path, images: Path) -> None:
        self.project, self.images = Project(root), images
        self.store = self.project.store_path(SLIDE_ID)
        ledger = open_ledger(self.project)
        save(ledger, SLIDE_ID, DRAWN, "ada (web app)")
        self.viewer = open_viewer(self.store)
        self.viewer.window._qt_window.resize(1400, 900)
        self.dock = furnish(self.viewer)
        self.until(lambda: len(self.controls.notes.layers()) == 2)

    @property
    def controls(self) -> Any:
        return self.dock.controls

    def until(self, is_so: Callable[[], bool]) -> None:
        """Process the window's events until a condition holds; the test's time limit ends a wait that never does."""
        wake = QTimer()
        wake.start(20)
        while not is_so():
            QApplication.processEvents(QEventLoop.ProcessEventsFlag.WaitForMoreEvents)

    def shot(self, name: str) -> np.ndarray:
        self.viewer.screenshot(str(self.images / f"napari_{name}.png"), canvas_only=False, flash=False)
        return self.viewer.screenshot(canvas_only=True, flash=False)

    def press(self, key: Qt.Key) -> list[float]:
        QTest.keyClick(self.viewer.window._qt_viewer.canvas.native, key)
        return self.place()

    def place(self) -> list[float]:
        _, y_um, x_um = self.viewer.scene.camera.center
        return [round(x_um / MPP0 + 0.5, 2), round(y_um / MPP0 + 0.5, 2), self.viewer.scene.camera.zoom]

    def hotspots(self) -> dict[str, Any]:
        table = self.dock.hotspots
        text = self.dock.hotspot_text.text()
        table.selectRow(1)
        second = self.place()
        first = self.press(Qt.Key.Key_P)
        stays = self.press(Qt.Key.Key_P)
        again = self.press(Qt.Key.Key_N)
        return {"said": text, "second": second, "first": first, "stays": stays, "again": again}

    def threshold(self) -> dict[str, Any]:
        results: dict[str, Any] = {}
        layer = self.viewer.layers[f"P(positive) {MODEL_ID}"]
        self.dock.hotspots.selectRow(1)  # its score is 0.81
        self.viewer.layers[f"hotspots {MODEL_ID}"].opacity = 0
        for percent in (30, 50, 90):
            self.dock.threshold.setValue(percent)
            low, high = layer.contrast_limits
            at = (np.array([0.29, percent / 100, 0.95], np.float32) - low) / (high - low)
            pixels = self.viewer.screenshot(canvas_only=True, flash=False)
            middle = pixels[pixels.shape[0] // 2 + 12, pixels.shape[1] // 2 + 12, :3]
            rings = self.viewer.layers[f"hotspots {MODEL_ID}"].shown
            results[str(percent)] = {
                "alphas": layer.colormap.map(np.clip(at, 0, 1))[:, 3].tolist(),
                "pixel": middle.tolist(),
                "rings": int(np.sum(rings)),
                "rows": self.dock.hotspots.model().rowCount(),
            }
        self.dock.threshold.setValue(50)
        self.viewer.layers[f"hotspots {MODEL_ID}"].opacity = 1
        return results

    def colours(self) -> dict[str, bool]:
        reader = StoreReader(self.store)
        stored = reader.read_region(0, Box(200, 300, 900, 700))
        part = slice(300, 1000), slice(200, 1100)

        def shown() -> np.ndarray:
            return self.viewer.layers[SLIDE_ID].data[0][part]

        with_profile = bool(np.array_equal(shown(), for_screen(reader, stored)))
        before = self.place()
        self.dock.as_scanned.setChecked(True)
        as_scanned = bool(np.array_equal(shown(), stored))
        self.dock.as_scanned.setChecked(False)
        again = bool(np.array_equal(shown(), for_screen(reader, stored)))
        differ = not np.array_equal(stored, for_screen(reader, stored))
        stays = before == self.place()
        return {"profile": with_profile, "scanned": as_scanned, "again": again, "differ": differ, "stays": stays}

    def probe(self) -> str:
        self.viewer.mouse_over_canvas = True
        self.viewer.cursor.position = (864 * MPP0, 480 * MPP0)
        self.until(lambda: isinstance(self.viewer.status, dict) and "P(" in self.viewer.status["coordinates"])
        return self.viewer.status["coordinates"]

    def drop(self) -> dict[str, Any]:
        """Drop two more slides one after another, a foreign folder, and a damaged store."""
        other, damaged = self.project.store_path("other"), self.project.store_path("damaged")
        names = {}
        self._drop(other)
        self.until(lambda: self.controls.slide.slide_id == "other")
        names["other"] = [layer.name for layer in self.viewer.layers if layer.visible]
        self.dock.slide_box.setCurrentIndex(0)
        self.dock.slide_box.activated.emit(0)
        names["back"] = [layer.name for layer in self.viewer.layers if layer.visible]
        docks = len(self.viewer.window.dock_widgets)
        count = len(self.viewer.layers)
        return {
            **names,
            "docks": docks,
            "stranger_taken": self.dock.drops.eventFilter(self.dock, _drop_of(self.project.root / "strange")),
            "damaged": self._refusal(damaged),
            "none_added": count == len(self.viewer.layers),
        }

    def _drop(self, path: Path) -> None:
        canvas, event = self.viewer.window._qt_viewer, _drop_of(path)
        modifiers, buttons = event.modifiers(), event.buttons()
        enter = QDragEnterEvent(QPoint(9, 9), event.possibleActions(), event.mimeData(), buttons, modifiers)
        QApplication.sendEvent(canvas, enter)
        QApplication.sendEvent(canvas, event)

    def _refusal(self, path: Path) -> str:
        self._drop(path)
        return self.dock.problems.text()

    def notes(self) -> dict[str, Any]:
        notes = self.controls.notes
        shapes, points = notes.layers()
        untouched = len(notes.unsaved())
        shapes.add_polygons(np.array([[900, 1300], [900, 1500], [1000, 1400.0]]))
        points.add(np.array([[500.0, 600.0]]))
        self.viewer.layers.selection.active = shapes
        shapes.selected_data = {shapes.shape_type.index("rectangle")}
        self.dock.notes_box.class_edit.setText("necrosis")
        self.dock.notes_box._class_given()
        unsaved = len(notes.unsaved())
        ledger = find_ledger(self.project)
        assert ledger is not None
        by_other = next(annotation for annotation in annotations_of(ledger, SLIDE_ID) if annotation.kind == "rectangle")
        save(ledger, SLIDE_ID, [by_other.draft(note="mine")], "bob (web app)")
        self.dock.notes_box.save()
        message = self.dock.notes_box.message.text()
        kept = [
            [annotation.kind, annotation.class_name, annotation.note, annotation.revision]
            for annotation in annotations_of(ledger, SLIDE_ID)
        ]
        holed = next(annotation for annotation in annotations_of(ledger, SLIDE_ID) if annotation.kind == "freehand")
        questions: list[str] = []
        box_ = self.dock.notes_box

        def answer(question: str, buttons: Any) -> Any:
            questions.append(question)
            return QMessageBox.StandardButton.Cancel if len(questions) == 1 else QMessageBox.StandardButton.Save

        box_.ask = answer
        self.viewer.window._qt_window.close()
        stays = self.viewer.window._qt_window.isVisible()
        box_.save()
        both = [
            annotation.class_name for annotation in annotations_of(ledger, SLIDE_ID) if annotation.kind == "rectangle"
        ]
        ledger.database.close()
        return {
            "untouched": untouched, "unsaved": unsaved, "said": message, "kept": kept, "asked": questions,
            "stays": stays, "both": both, "left": len(notes.unsaved()), "hole_is_kept": bool(holed.shape.equals(HOLED)),
        }  # fmt: skip


_KEPT: list[QMimeData] = []
"""References to dropped data, which Qt's events do not hold."""


def _drop_of(path: Path) -> QDropEvent:
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(path))])
    _KEPT.append(data)
    actions, none = Qt.DropAction.CopyAction, Qt.KeyboardModifier.NoModifier
    return QDropEvent(QPointF(9, 9), actions, data, Qt.MouseButton.LeftButton, none)


def main(root: Path, images: Path) -> None:
    faulthandler.dump_traceback_later(240, exit=True)  # prints where a window waits for an event that never comes
    acts = Acts(root, images)
    results = {"layers": [[layer.name, bool(layer.visible)] for layer in acts.viewer.layers]}
    for act in (acts.hotspots, acts.threshold, acts.colours, acts.probe):
        results[act.__name__] = act()
    for theme in ("dark", "light"):
        get_settings().appearance.theme = theme
        acts.shot(theme)
    results["research_use"] = acts.viewer.canvas.overlays.text.text
    results["notes"] = acts.notes()
    results["drop"] = acts.drop()
    print(json.dumps(results))
    acts.dock.notes_box.ask = lambda *_: QMessageBox.StandardButton.Discard
    acts.viewer.close()
    assert napari.current_viewer() is None


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
