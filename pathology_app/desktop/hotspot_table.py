"""The list of hotspots as a Qt table: any number of rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from qtpy.QtCore import QAbstractTableModel, QModelIndex, Qt
from qtpy.QtWidgets import QAbstractItemView, QHeaderView, QTableView

from pathology_app.html.text import as_text
from pipeline.inference import Hotspot

_HEADINGS = ("#", "Score", "mm²", "Class")


class _Rows(QAbstractTableModel):
    def __init__(self) -> None:
        super().__init__()
        self.spots: list[Hotspot] = []

    def rowCount(self, parent: Any = None) -> int:
        return len(self.spots)

    def columnCount(self, parent: Any = None) -> int:
        return len(_HEADINGS)

    def headerData(self, section: int, orientation: Any, role: int = 0) -> Any:
        is_heading = orientation == Qt.Orientation.Horizontal and role == Qt.ItemDataRole.DisplayRole
        return _HEADINGS[section] if is_heading else None

    def data(self, index: Any, role: int = 0) -> Any:
        if role == Qt.ItemDataRole.TextAlignmentRole and index.column() < len(_HEADINGS) - 1:
            return int(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        if role != Qt.ItemDataRole.DisplayRole:
            return None
        spot = self.spots[index.row()]
        shown = (
            str(index.row() + 1),
            f"{spot['score']:.2f}",
            f"{spot['area_um2'] / 1e6:.3f}",
            as_text(spot["class"]),
        )
        return shown[index.column()]

    def replace(self, spots: list[Hotspot]) -> None:
        self.beginResetModel()
        self.spots = spots
        self.endResetModel()


class HotspotTable(QTableView):
    """A row for each hotspot. The row chosen by mouse or arrow keys is passed to `go_to`."""

    def __init__(self, go_to: Callable[[Hotspot], None]) -> None:
        super().__init__()
        self._rows, self._go_to = _Rows(), go_to
        self.setModel(self._rows)
        self.setAccessibleName("Hotspots")
        self.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.setTabKeyNavigation(False)
        self.verticalHeader().hide()
        header = self.horizontalHeader()
        header.setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
        header.setStretchLastSection(True)
        self.selectionModel().currentRowChanged.connect(self._row_chosen)

    def replace(self, spots: list[Hotspot]) -> None:
        """Show another list; the chosen hotspot stays chosen if still listed, and the camera does not move."""
        chosen = self.chosen
        self._rows.replace(spots)
        if chosen in spots:
            self.selectionModel().blockSignals(True)
            self.selectRow(spots.index(chosen))
            self.selectionModel().blockSignals(False)

    @property
    def chosen(self) -> Hotspot | None:
        row = self.currentIndex().row()
        return self._rows.spots[row] if 0 <= row < len(self._rows.spots) else None

    def step(self, by: int) -> None:
        """Go to the next or previous hotspot, or to the first if none is chosen; stop at the ends."""
        count, row = len(self._rows.spots), self.currentIndex().row()
        if count:
            self.selectRow(min(max(row + by, 0), count - 1) if row >= 0 else 0)

    def _row_chosen(self, current: QModelIndex, previous: QModelIndex) -> None:
        if current.isValid():
            self._go_to(self._rows.spots[current.row()])
