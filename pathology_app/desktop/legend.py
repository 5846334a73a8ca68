"""Colour bar as a Qt widget: the colours of probabilities, from the threshold up."""

from __future__ import annotations

from qtpy.QtCore import QRectF, QSize, Qt
from qtpy.QtGui import QColor, QLinearGradient, QPainter, QPaintEvent, QPen
from qtpy.QtWidgets import QSizePolicy, QWidget

from pathology_app.desktop.colouring import share_text
from pipeline.palettes import colours

_STOPS = 16
_BAR_PX, _TEXT_PX = 14, 18


class Legend(QWidget):
    """Colour bar from 0 (left) to 1 (right); empty below the threshold, like the overlay."""

    def __init__(self) -> None:
        super().__init__()
        self._palette, self._threshold = "", 0.0
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def sizeHint(self) -> QSize:
        return QSize(200, _BAR_PX + _TEXT_PX)

    def show_colours(self, palette: str, threshold: float) -> None:
        self._palette, self._threshold = palette, threshold
        self.setAccessibleName(f"Colours {palette}: transparent below {share_text(threshold)}")
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        if not self._palette:
            return
        painter = QPainter(self)
        bar = QRectF(0.5, 0.5, self.width() - 1.0, _BAR_PX)
        gradient = QLinearGradient(bar.topLeft(), bar.topRight())
        for step, rgb in enumerate(colours(self._palette, _STOPS).tolist()):
            gradient.setColorAt(step / (_STOPS - 1), QColor.fromRgbF(*rgb))
        shown = QRectF(bar)
        shown.setLeft(bar.left() + self._threshold * bar.width())
        painter.fillRect(shown, gradient)
        painter.setPen(QPen(self.palette().windowText(), 1))
        painter.drawRect(bar)
        painter.drawLine(shown.topLeft(), shown.bottomLeft())
        below = QRectF(0, _BAR_PX + 1, self.width(), _TEXT_PX)
        painter.drawText(below, Qt.AlignmentFlag.AlignLeft, "0")
        painter.drawText(below, Qt.AlignmentFlag.AlignRight, "1")
        painter.drawText(below, Qt.AlignmentFlag.AlignHCenter, f"transparent below {share_text(self._threshold)}")
        painter.end()
