"""Check that the result files of a store still agree with the array in it."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import shapely
from numpy.typing import NDArray

from pipeline.annotations.formats.geojson import qupath_origin_xy0
from pipeline.export.common.cells import fingerprint
from pipeline.export.csv.parquet import METADATA_KEY
from pipeline.export.csv.predictions import CORNER_COLUMNS
from pipeline.export.dicom.kinds import MAX_FRACTION, NOT_PREDICTED
from pipeline.export.qupath.collection import read_collection
from pipeline.export.qupath.contours import cells_above
from pipeline.export.tiff.heatmap import read_ome_heatmap
from pipeline.inference.results.files import FILE_OF, heatmap_name
from pipeline.inference.results.heatmap import shown_fingerprint
from pipeline.inference.results.hotspots import FOUR_DECIMALS, HOTSPOTS_FILE, false_hotspot
from pipeline.inference.results.slide_report import reported_fingerprint
from pipeline.slides.common.damage import DamagedFileError
from pipeline.store.layers.overlays import Predictions
from pipeline.store.reading.reader import StoreReader
from training.foundation.reading import open_regular, read_json_file
from training.foundation.words.counts import counted

_READ_ERRORS = (
    OSError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    DamagedFileError,
    csv.Error,
    pa.ArrowException,
    shapely.errors.ShapelyError,
)
"""Errors on reading a file that is damaged, or was replaced by something else."""


def check_results(folder: Path, predictions: Predictions, *, reader: StoreReader) -> list[str]:
    """Read every existing result file of a slide, and compare its values and positions with the array.

    Args:
        folder: `results/<model_id>/<slide_id>`; files that gemslide does not write are ignored.

    Returns:
        one sentence per file that disagrees, with the first difference; empty if all agree.
    """
    checks = _checks(predictions, reader)
    return [f"{name}: {fault}" for name, test in checks.items() for fault in _first_difference(test, folder / name)]


def check_result(path: Path, predictions: Predictions, *, reader: StoreReader) -> str | None:
    """How one result file disagrees, as a clause; None if it agrees, is missing, or is not one of ours."""
    test = _checks(predictions, reader).get(path.name)
    return next(iter(_first_difference(test, path)), None) if test else None


def _checks(predictions: Predictions, reader: StoreReader) -> dict[str, Callable[[Path], Iterator[str]]]:
    check = _Check(predictions, reader)
    return {
        HOTSPOTS_FILE: check.hotspots,
        FILE_OF["csv"]: check.csv,
        FILE_OF["parquet"]: check.parquet,
        FILE_OF["geojson"]: check.geojson,
        FILE_OF["contours"]: check.contours,
        FILE_OF["ome-tiff"]: check.ome_tiff,
        FILE_OF["dicom-seg"]: check.dicom_seg,
        FILE_OF["dicom-pm"]: check.dicom_pm,
        FILE_OF["report"]: check.report,
        **{heatmap_name(name): check.heatmap for name in predictions.class_names},
    }


def _first_difference(check: Callable[[Path], Iterator[str]], path: Path) -> list[str]:
    """The first difference of a file, if it exists."""
    if not path.exists():
        return []
    try:
        first = next(check(path), None)
    except _READ_ERRORS as error:
        return [f"cannot be read as it was written ({type(error).__name__}: {' '.join(str(error).split()):.200})"]
    return [] if first is None else [first]


@dataclass(frozen=True)
class _Check:
    """Checks, one per format, that yield differences in order."""

    predictions: Predictions
    reader: StoreReader

    @cached_property
    def cells(self) -> NDArray[np.int64]:
        """(row, column) of the predicted cells, int64 (cells, 2), in the order of the files."""
        return np.argwhere(np.isfinite(self.predictions.probabilities_cyx[0]))

    @cached_property
    def values_nk(self) -> NDArray[np.float32]:
        """Probabilities, (cells, classes)."""
        rows, columns = self.cells.T
        return self.predictions.probabilities_cyx[:, rows, columns].T.astype(np.float32)

    @cached_property
    def corners_xy0(self) -> NDArray[np.int64]:
        return np.round(self.cells[:, ::-1] * self.predictions.stride_px0).astype(np.int64)

    @property
    def origin_xy0(self) -> tuple[int, int]:
        """Origin of QuPath's coordinates."""
        return qupath_origin_xy0(self.reader.attributes.bounds_px0)

    def _other_origin(self, model_id: Any, slide_sha256: Any) -> str | None:
        """Clause on a file that names another model or slide; None if it names these."""
        if (model_id, slide_sha256) == (self.predictions.model_id, self.reader.source_sha256):
            return None
        return f"is of model {model_id!r:.80}, slide with SHA-256 {slide_sha256!s:.12}…"

    def _rows(self, boxes_n4: NDArray[Any], values_nk: NDArray[Any], tolerance: float) -> Iterator[str]:
        """Differences in a table's rows: boxes (minx, miny, width, height), and probabilities."""
        if len(boxes_n4) != len(self.cells):
            yield f"has {counted(len(boxes_n4), 'tile')}, {counted(len(self.cells), 'was', 'were')} predicted"
            return
        side = round(self.predictions.side_px0)
        expected = np.column_stack([self.corners_xy0, np.full((len(self.cells), 2), side)])
        for row in np.flatnonzero((boxes_n4 != expected).any(1))[:1]:
            actual_box, expected_box = boxes_n4[row].tolist(), expected[row].tolist()
            yield f"tile {row + 1} is at {actual_box}, not at {expected_box} (x, y, width, height)"
        yield from self._values(values_nk, tolerance)

    def _values(self, values_nk: NDArray[Any], tolerance: float) -> Iterator[str]:
        wrong = ~(np.abs(values_nk.astype(np.float64) - self.values_nk) <= tolerance)
        for row, k in np.argwhere(wrong)[:1]:
            differ = counted(int(wrong.any(1).sum()), "tile differs", "tiles differ")
            yield (
                f"tile {row + 1} has {values_nk[row, k]:.6g} for {self.predictions.class_names[k]!r} where "
                f"{self.values_nk[row, k]:.6g} was predicted ({differ})"
            )

    def hotspots(self, path: Path) -> Iterator[str]:
        if fault := false_hotspot(read_json_file(path)["hotspots"], self.predictions):
            yield fault

    def csv(self, path: Path) -> Iterator[str]:
        header, *rows = _csv_rows(path)
        if header != ["slide_id", *CORNER_COLUMNS, *(f"prob_{name}" for name in self.predictions.class_names)]:
            yield f"has the columns {', '.join(header):.200}"
        elif any(row[0] != self.reader.slide_id for row in rows):
            yield "has rows of another slide"
        else:
            table = np.array([row[1:] for row in rows], np.float64).reshape(len(rows), len(header) - 1)
            yield from self._rows(table[:, :4], table[:, 4:], FOUR_DECIMALS)

    def parquet(self, path: Path) -> Iterator[str]:
        with open(open_regular(path), "rb") as stream:
            table = pq.read_table(stream)
        metadata = json.loads((table.schema.metadata or {})[METADATA_KEY])
        if other := self._other_origin(metadata["model"], metadata["source_sha256"]):
            yield other
        elif set(table.column("slide_id").to_pylist()) - {self.reader.slide_id}:
            yield "has rows of another slide"
        else:
            boxes = np.column_stack([table.column(name).to_numpy() for name in CORNER_COLUMNS])
            values = [table.column(f"prob_{name}").to_numpy() for name in self.predictions.class_names]
            yield from self._rows(boxes, np.column_stack(values), 0.0)

    def geojson(self, path: Path) -> Iterator[str]:
        names = [f"prob_{name}" for name in self.predictions.class_names]
        corners = (self.cells[:, ::-1] * self.predictions.stride_px0 - self.origin_xy0).tolist()
        side, values = self.predictions.side_px0, []
        for number, feature in enumerate(read_collection(path)):
            values.append([feature["properties"]["measurements"][name] for name in names])
            x, y = corners[number] if number < len(corners) else (0, 0)
            expected = [[x, y], [x + side, y], [x + side, y + side], [x, y + side], [x, y]]
            actual = feature["geometry"]["coordinates"]
            if number < len(corners) and actual != [expected]:
                yield f"tile {number + 1} has the corners {actual!s:.200}, not {[expected]}"
        if len(values) != len(corners):
            yield f"has {counted(len(values), 'tile')}, {counted(len(corners), 'was', 'were')} predicted"
            return
        yield from self._values(np.array(values, np.float64).reshape(self.values_nk.shape), FOUR_DECIMALS)

    def contours(self, path: Path) -> Iterator[str]:
        polygons: dict[tuple[str, float], list[Any]] = {}
        for feature in read_collection(path):
            properties = feature["properties"]
            metadata = properties["metadata"]
            if other := self._other_origin(metadata["model"], metadata["slide_sha256"]):
                yield other
                return
            name = ": ".join(properties["classification"].get("names", [properties["classification"].get("name")]))
            key = name, float(metadata["threshold"])
            polygons.setdefault(key, []).append(shapely.from_geojson(json.dumps(feature["geometry"])))
        for (name, threshold), of_class in polygons.items():
            yield from self._outlined(name, threshold, of_class)

    def _outlined(self, name: str, threshold: float, polygons: list[Any]) -> Iterator[str]:
        """Differences between polygons and the cells they outline: corners on the grid of cells, the same area, and the
        centre of each cell inside."""
        rows, columns = np.nonzero(cells_above(self.predictions, name, threshold))
        stride_px0, cells = self.predictions.stride_px0, len(rows)
        covered = float(shapely.area(polygons).sum()) / stride_px0**2
        if not abs(covered - cells) <= 1e-6 * cells:
            yield f"its areas of {name!r} cover {covered:.6g} cells, not {cells}"
            return
        corners_xy0 = shapely.get_coordinates(polygons)
        in_cells = (corners_xy0 + self.origin_xy0) / stride_px0
        for corner in np.flatnonzero((np.abs(in_cells - np.round(in_cells)) > 1e-6).any(1))[:1]:
            yield f"its areas of {name!r} have a corner at {corners_xy0[corner].tolist()}, where no cell has one"
        all_of_them = shapely.multipolygons(polygons)
        shapely.prepare(all_of_them)
        centres_xy0 = (np.column_stack([columns, rows]) + 0.5) * stride_px0 - self.origin_xy0
        is_inside = shapely.contains_xy(all_of_them, centres_xy0)
        for cell in np.flatnonzero(~is_inside)[:1]:
            missed = counted(int((~is_inside).sum()), "cell is", "cells are")
            yield f"its areas of {name!r} leave out row {rows[cell]}, column {columns[cell]} ({missed} outside them)"

    def ome_tiff(self, path: Path) -> Iterator[str]:
        values_cyx, cell_um = read_ome_heatmap(path)
        expected_um = self.predictions.stride_px0 * self.reader.mpp0
        if not abs(cell_um - expected_um) <= 1e-6 * expected_um:
            yield f"its pixels are {cell_um:g} µm wide, cells are {expected_um:g} µm"
        yield from self._image(values_cyx, self.predictions.probabilities_cyx.astype(np.float32), 0.0)

    def dicom_seg(self, path: Path) -> Iterator[str]:
        from pipeline.export.dicom.library import read_segmentation  # its libraries are slow to import

        expected = np.nan_to_num(self.predictions.probabilities_cyx.astype(np.float32), nan=0.0)
        yield from self._image(read_segmentation(path), expected, 0.5 / MAX_FRACTION + 1e-6)

    def dicom_pm(self, path: Path) -> Iterator[str]:
        from pipeline.export.dicom.library import read_parametric_map  # the same

        expected = np.nan_to_num(self.predictions.probabilities_cyx.astype(np.float32), nan=NOT_PREDICTED)
        yield from self._image(read_parametric_map(path), expected, 0.0)

    def _image(self, found_cyx: NDArray[Any], expected_cyx: NDArray[Any], tolerance: float) -> Iterator[str]:
        if found_cyx.shape != expected_cyx.shape:
            yield f"has the shape {found_cyx.shape} (classes, rows, columns), the array {expected_cyx.shape}"
            return
        same = np.abs(found_cyx - expected_cyx) <= tolerance
        same |= np.isnan(found_cyx) & np.isnan(expected_cyx)
        for k, row, column in np.argwhere(~same)[:1]:
            differ = counted(int((~same).any(0).sum()), "cell differs", "cells differ")
            yield (
                f"has {found_cyx[k, row, column]:.6g} for {self.predictions.class_names[k]!r} in row {row}, column "
                f"{column} where {expected_cyx[k, row, column]:.6g} was predicted ({differ})"
            )

    def heatmap(self, path: Path) -> Iterator[str]:
        yield from self._shown(shown_fingerprint(path))

    def report(self, path: Path) -> Iterator[str]:
        yield from self._shown(reported_fingerprint(path))

    def _shown(self, stated: str | None) -> Iterator[str]:
        """Compare the fingerprint in a file that cannot be read back as values; files before version 0.2 have none."""
        if stated is not None and stated != fingerprint(self.predictions):
            yield f"shows other predictions (SHA-256 {stated:.12}…) than those in the store"


def _csv_rows(path: Path) -> list[list[str]]:
    with open(open_regular(path), encoding="utf-8", newline="") as stream:
        return list(csv.reader(stream))
