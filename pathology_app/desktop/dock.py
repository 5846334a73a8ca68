"""Dock next to the slide: display settings, and hotspots to visit first. napari also opens it through napari.yaml."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from qtpy.QtCore import Qt, QTimer
from qtpy.QtGui import QShowEvent
from qtpy.QtWidgets import (
    QCheckBox,
    QComboBox,
    QFormLayout,
    QHBoxLayout,
    QLabel,
    QPushButton,
    QSlider,
    QVBoxLayout,
    QWidget,
)

from pathology_app.desktop.colouring import share_text
from pathology_app.desktop.controls import SlideControls, furnish_canvas, probe_in_status, role_of, slide_of
from pathology_app.desktop.drops import StoreDrops
from pathology_app.desktop.hotspot_table import HotspotTable
from pathology_app.desktop.layers import PREDICTION
from pathology_app.desktop.legend import Legend
from pathology_app.desktop.notes_box import NotesBox
from pathology_app.desktop.slide import OpenedSlide
from pathology_app.html.attention import NOTE as ATTENTION_NOTE
from pathology_app.html.text import as_text
from pipeline.palettes import PALETTES
from pipeline.units import RESEARCH_USE
from training.foundation.errors import GemslideError

DOCK_NAME = "gemslide"
_LATER_MS = 50
"""Delay that lets the slide be drawn first: libraries for rings and shapes take half a second to load."""
KEYS = {"n": 1, "PageDown": 1, "p": -1, "PageUp": -1}


class SlideDock(QWidget):
    """Dock that follows the slides of one viewer; each has its own settings, and one is shown at a time."""

    def __init__(self, napari_viewer: Any) -> None:
        super().__init__()
        # napari passes plug-ins a wrapper that hides private names; it slows down access to all others.
        self.viewer = getattr(napari_viewer, "__wrapped__", napari_viewer)
        self._all: dict[int, SlideControls] = {}
        """Keyed by the identity of the opened slide: one store may be opened twice."""
        self._build()
        furnish_canvas(self.viewer)
        self.drops = StoreDrops(self.open_store)
        for key, by in KEYS.items():
            self.viewer.bind_key(key, lambda _, by=by: self.hotspots.step(by), overwrite=True)
        self.viewer.layers.events.inserted.connect(self._layers_changed)
        self.viewer.layers.events.removed.connect(self._layers_changed)
        self.viewer.events.status.connect(self._status_changed)
        self._layers_changed()

    @property
    def controls(self) -> SlideControls | None:
        """Controls of the chosen slide; None while the viewer has no slide of ours."""
        return self._all.get(self.slide_box.currentData())

    def _build(self) -> None:
        layout = QVBoxLayout(self)
        label = _text(RESEARCH_USE)
        label.setStyleSheet("font-weight: bold")
        layout.addWidget(label)
        form = QFormLayout()
        form.setFieldGrowthPolicy(QFormLayout.FieldGrowthPolicy.AllNonFixedFieldsGrow)
        self.slide_box, self.model_box, self.class_box = QComboBox(), QComboBox(), QComboBox()
        self.palette_box = QComboBox()
        self.palette_box.addItems(list(PALETTES))
        self.threshold, self.threshold_text = _slider()
        self.opacity, self.opacity_text = _slider()
        self.legend = Legend()
        self.as_scanned = QCheckBox("Colours as scanned")
        for name, widget in (("Slide", self.slide_box), ("Model", self.model_box), ("Class", self.class_box)):
            _add(form, name, widget)
        _add(form, "Threshold", self.threshold, self.threshold_text)
        _add(form, "Opacity", self.opacity, self.opacity_text)
        _add(form, "Palette", self.palette_box)
        layout.addLayout(form)
        layout.addWidget(self.legend)
        self.attention_text = _text(ATTENTION_NOTE)
        layout.addWidget(self.attention_text)
        layout.addWidget(self.as_scanned)
        self.hotspot_text = _text("")
        self.hotspots = HotspotTable(lambda spot: self.controls.go_to(spot) if self.controls else None)
        layout.addWidget(self.hotspot_text)
        layout.addWidget(self.hotspots, stretch=1)
        layout.addLayout(self._steps())
        self.notes_box = NotesBox(
            lambda: self.controls.notes if self.controls else None,
            lambda: [controls.notes for controls in self._all.values()],
        )
        layout.addWidget(_text("Annotations"))
        layout.addWidget(self.notes_box)
        self.problems = _text("")
        layout.addWidget(self.problems)
        self._connect()

    def _steps(self) -> QHBoxLayout:
        row = QHBoxLayout()
        for name, tip, by in (("Previous", "p or Page Up", -1), ("Next", "n or Page Down", 1)):
            button = QPushButton(name)
            button.setToolTip(tip)
            button.setMinimumHeight(32)
            button.clicked.connect(lambda _=False, by=by: self.hotspots.step(by))
            row.addWidget(button)
        return row

    def _connect(self) -> None:
        self.slide_box.activated.connect(lambda _: self._show_slide(is_new=True))
        self.model_box.activated.connect(lambda _: self._model_chosen())
        self.class_box.activated.connect(lambda _: self._class_chosen())
        self.palette_box.activated.connect(lambda _: self._change("set_palette", self.palette_box.currentText()))
        self.threshold.valueChanged.connect(lambda value: self._change("set_threshold", value / 100))
        self.opacity.valueChanged.connect(lambda value: self._change("set_opacity", value / 100))
        self.as_scanned.toggled.connect(lambda checked: self._change("set_as_scanned", checked))

    def _layers_changed(self, event: Any = None) -> None:
        """Offer slides that were dropped or opened in addition, choose the newest, and remove closed ones."""
        slides = {id(slide): slide for slide in map(slide_of, self.viewer.layers) if slide is not None}
        before = list(self._all)
        for closed in set(self._all) - set(slides):
            del self._all[closed]
        for number, slide in slides.items():
            if number not in self._all:
                self._all[number] = SlideControls(self.viewer, slide)
                slide.listeners.append(lambda _: self._show_problems())
                QTimer.singleShot(_LATER_MS, lambda number=number: self._draw_the_rest(number))
        self._follow(event)
        if list(self._all) != before:
            self._offer_slides(newest=list(self._all)[-1] if self._all else None)

    def open_store(self, path: Path) -> None:
        """Add a dropped slide; for a damaged one, show a message and add nothing."""
        try:
            OpenedSlide(path)
        except GemslideError as error:
            self._show_problems(str(error))
        else:
            self.viewer.open(str(path), plugin=DOCK_NAME)

    def showEvent(self, event: QShowEvent) -> None:
        """Watch drops once shown: napari puts a dock into its window only after creating it."""
        super().showEvent(event)
        self.drops.watch(self.window())

    def _draw_the_rest(self, number: int) -> None:
        controls = self._all.get(number)
        if controls is not None and controls.is_open:  # it may have been closed in the meantime
            controls.draw_rings()
            self.notes_box.show_notes()

    def _follow(self, event: Any) -> None:
        """Apply the slide's settings to a layer that napari adds after the slide's first one."""
        layer = getattr(event, "value", None)
        if layer is None or event.type != "inserted":
            return
        slide = slide_of(layer)
        if slide is not None and role_of(layer) == PREDICTION:
            self._all[id(slide)].follow(layer)

    def _offer_slides(self, newest: int | None) -> None:
        self.slide_box.clear()
        for number, controls in self._all.items():
            self.slide_box.addItem(as_text(controls.slide.slide_id), number)
        self.slide_box.setCurrentIndex(self.slide_box.findData(newest))
        self._show_slide(is_new=True)

    def _show_slide(self, *, is_new: bool = False) -> None:
        controls = self.controls
        self.setEnabled(controls is not None)
        if controls is None:
            self.hotspot_text.setText("Open or drop a slide store (a folder NAME.ome.zarr).")
            self.hotspots.replace([])
            return
        if is_new:
            controls.show_only()
        _fill(self.model_box, list(controls.slide.grids), controls.model_id)
        self._fill_classes(controls)
        self._show_sliders(controls)
        self.attention_text.setVisible(bool(controls.slide.attention))
        self.palette_box.setCurrentText(controls.palette)
        has_profile = controls.slide.reader.icc is not None
        self.as_scanned.setEnabled(has_profile)
        self.as_scanned.setToolTip("" if has_profile else "The slide has no colour profile: it is shown as scanned.")
        self.as_scanned.setChecked(controls.as_scanned or not has_profile)
        for widget in (self.model_box, self.class_box, self.threshold, self.opacity, self.palette_box):
            widget.setEnabled(bool(controls.model_id))
        self._show_values()
        self._show_problems()

    def _show_sliders(self, controls: SlideControls) -> None:
        """Set the sliders without emitting signals: a threshold between two steps is kept."""
        for slider, value in ((self.threshold, controls.threshold), (self.opacity, controls.opacity)):
            slider.blockSignals(True)
            slider.setValue(round(100 * value))
            slider.blockSignals(False)

    def _fill_classes(self, controls: SlideControls) -> None:
        grid = controls.slide.grids.get(controls.model_id)
        _fill(self.class_box, list(grid.class_names) if grid else [], controls.class_name)

    def _model_chosen(self) -> None:
        controls = self.controls
        if controls is not None:
            model_id = self.model_box.currentData()
            names = controls.slide.grids[model_id].class_names
            controls.choose(model_id, controls.class_name if controls.class_name in names else names[-1])
            self._fill_classes(controls)
            self._show_sliders(controls)
            self._show_values()

    def _class_chosen(self) -> None:
        if self.controls is not None:
            self.controls.choose(self.controls.model_id, self.class_box.currentData())
            self._show_values()

    def _change(self, what: str, value: Any) -> None:
        if self.controls is not None:
            getattr(self.controls, what)(value)
            self._show_values()

    def _show_values(self) -> None:
        controls = self.controls
        assert controls is not None
        self.threshold_text.setText(share_text(controls.threshold))
        self.opacity_text.setText(f"{controls.opacity:.2f}")
        self.legend.setVisible(bool(controls.model_id))
        self.legend.show_colours(controls.palette, controls.threshold)
        spots, listed = controls.hotspots(), controls.hotspot_list()
        num_in_class = len(controls.hotspot_list().of(controls.class_name, 0))
        if not controls.model_id:
            text = "Hotspots: no model has predicted this slide."
        elif listed.unknown:
            text = f"Hotspots: {listed.unknown}"
        else:
            text = f"Hotspots: {len(spots)} of {num_in_class} reach the threshold"
        self.hotspot_text.setText(as_text(text))
        self.hotspots.replace(spots)

    def _show_problems(self, *more: str) -> None:
        problems = [*(self.controls.slide.problems if self.controls else []), *more]
        self.problems.setText("\n".join(as_text(problem) for problem in problems))
        self.problems.setVisible(bool(problems))

    def _status_changed(self, event: Any) -> None:
        if self.controls is not None:
            probe_in_status(self.controls, event.value)


def _text(text: str) -> QLabel:
    """Make a label in plain text: Qt would take some texts for HTML."""
    label = QLabel(text)
    label.setTextFormat(Qt.TextFormat.PlainText)
    label.setWordWrap(True)
    return label


def _slider() -> tuple[QSlider, QLabel]:
    slider = QSlider(Qt.Orientation.Horizontal)
    slider.setRange(0, 100)
    slider.setMinimumHeight(32)
    number = _text("")
    number.setWordWrap(False)
    return slider, number


def _add(form: QFormLayout, name: str, widget: QWidget, beside: QWidget | None = None) -> None:
    widget.setAccessibleName(name)
    if beside is None:
        form.addRow(name, widget)
        return
    row = QHBoxLayout()
    row.addWidget(widget, stretch=1)
    row.addWidget(beside)
    form.addRow(name, row)


def _fill(box: QComboBox, names: list[str], chosen: str) -> None:
    box.clear()
    for name in names:
        box.addItem(as_text(name), name)
    box.setCurrentIndex(box.findData(chosen))
