"""Tiles for training, read from the stores on demand; nothing is exported.

Training finds this class by the entry-point group `gemslide.datasets`, so that neither package imports the other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import BadManifestError, ChangedSourceError
from pipeline.project import Project
from pipeline.stain import METHODS, Normaliser, describe
from pipeline.store.layers.qc_scores import slide_normaliser
from pipeline.store.reading.reader import StoreReader
from pipeline.tiles.outdated import outdated_warning
from pipeline.tiles.table import read_table
from training.foundation.errors import BadRecipeError, GemslideError
from training.foundation.tile_read import UNSTATED
from training.foundation.words.counts import counted
from training.foundation.words.names import comparable

NO_PATIENT = "\n"
"""Before the group of a slide without a patient: no name in a manifest can contain it."""


class TileDataset:
    """A tile set of a project, in the form that `training.data.tile_dataset.TileSource` requires.

    Attributes:
        classes: class names in order.
        tile_px, mpp: side of a finished tile and its microns per pixel.
        labels: int64 of shape (tiles,), index into classes, -1 for unlabelled.
        splits: str of shape (tiles,), "" for none.
        slides, groups: str of shape (tiles,), the slide and the patient of each tile; a slide without a patient counts
            as one.
        grouped_by: "patient", or "slide" if not every slide has a patient.
        scanners: {slide: scanner as the table names it, or None}.
        tile_read: the setting of the level that tiles are read from, for the model package to record.
        stain: the stain normalisation of tiles, for the model package to record; None: none.
        fingerprint: SHA-256 over rows, splits and source hashes; identifies what a model was trained on.
    """

    Error = GemslideError
    """Base of all errors raised here that a person should read; each has a `code`."""

    def __init__(
        self,
        project_dir: Path,
        tile_set: str,
        classes: Sequence[str] = (),
        *,
        stain: str | Mapping[str, Any] = "none",
    ) -> None:
        """Open a tile set.

        Args:
            stain: "none", a method, or a model package's record; slides are then normalised to the target's stain.

        Raises:
            EmptyTableError, BadManifestError: unusable tile set. BadRecipeError: other classes, or an unknown method.
            UnreadableError: a slide whose stain was not fitted.
        """
        self._project = Project(Path(project_dir))
        table = read_table(self._project.tile_table_path(tile_set))
        self._table, frame = table, table.frame
        self.classes = tuple(map(comparable, classes)) or table.classes
        self.tile_px = int(frame["tile_px"].iloc[0])
        self.mpp = float(frame["mpp"].iloc[0])
        self.tile_read = table.read
        self._check_classes(table.classes, tile_set)
        index_of = {name: i for i, name in enumerate(self.classes)}
        self.labels = np.array([index_of.get(name, -1) for name in frame["label"]], dtype=np.int64)
        self.splits = frame["split"].fillna("").to_numpy(dtype=str)
        self.slides = frame["slide_id"].to_numpy(dtype=str)
        of_patient = frame["patient_id"].notna().to_numpy()
        self.groups = np.where(of_patient, frame["patient_id"].fillna(""), NO_PATIENT + frame["slide_id"]).astype(str)
        self.grouped_by = "patient" if of_patient.all() else "slide"
        self.scanners: dict[str, str | None] = dict(table.metadata.get("scanners") or {})
        self._boxes = frame[["level", "x_px0", "y_px0", "side_px0"]].to_numpy(dtype=np.int64)
        self._sources: dict[str, str] = table.metadata["sources"]
        self._readers: dict[str, StoreReader] = {}
        self._normalisers: dict[str, Normaliser] = {}
        self.stain = _description(stain)
        for slide_id in self._sources if self.stain else ():  # fail now, not in mid-run
            self._normaliser(slide_id)
        self.fingerprint = self._fingerprint()

    def _check_classes(self, in_table: Sequence[str], tile_set: str) -> None:
        missing = [name for name in self.classes if name not in in_table]
        unknown = [name for name in in_table if name not in self.classes]
        if missing or unknown:
            raise BadRecipeError(
                f"[data] classes = {list(self.classes)}, but tile set {tile_set!r} has {list(in_table)}"
                f"{f'; not in the recipe: {unknown}' if unknown else ''}"
                f"{f'; not in the tile set: {missing}' if missing else ''}. "
                "Name the same classes in the recipe and in the [tile] section."
            )

    def warnings(self) -> tuple[str, ...]:
        """Warnings that a person should read before training on it; clauses."""
        outdated = outdated_warning(self._table, self._project)
        return (outdated,) if outdated else ()

    def __len__(self) -> int:
        return len(self.labels)

    def read(self, index: int) -> NDArray[np.uint8]:
        """One finished tile, uint8 (tile_px, tile_px, 3), RGB."""
        level, x_px0, y_px0, side_px0 = (int(v) for v in self._boxes[index])
        slide_id = str(self.slides[index])
        tile = self._reader(slide_id).read_square(level, x_px0, y_px0, side_px0, self.tile_px)
        return self._normaliser(slide_id)(tile) if self.stain else tile

    def _normaliser(self, slide_id: str) -> Normaliser:
        if slide_id not in self._normalisers:
            assert self.stain is not None
            self._normalisers[slide_id] = slide_normaliser(self._reader(slide_id), self.stain)
        return self._normalisers[slide_id]

    def _reader(self, slide_id: str) -> StoreReader:
        if slide_id not in self._readers:
            reader = StoreReader(self._project.stored_at(slide_id), self._table.plane_um(slide_id))
            self._check_inside(reader)
            if reader.source_sha256 != self._sources[slide_id]:
                raise ChangedSourceError(
                    f"slide {slide_id}: its store and the tile table were made from different files. "
                    "Run `gemslide tile` again."
                )
            self._readers[slide_id] = reader
        return self._readers[slide_id]

    def _check_inside(self, reader: StoreReader) -> None:
        boxes = self._boxes[self.slides == reader.slide_id]
        level, (right_px0, bottom_px0) = boxes[:, 0].max(), (boxes[:, 1:3] + boxes[:, 3:]).max(0)
        width_px0, height_px0 = reader.size_wh_px0
        if level >= len(reader.levels) or right_px0 > width_px0 or bottom_px0 > height_px0:
            raise BadManifestError(
                f"slide {reader.slide_id}: the table has tiles up to x {right_px0}, y {bottom_px0}, level {level}; the "
                f"slide has {width_px0} × {height_px0} px, {counted(len(reader.levels), 'level')}. Run `gemslide tile` "
                "again."
            )

    def _fingerprint(self) -> str:
        digest = hashlib.sha256()
        for array in (self.slides, self._boxes, self.labels, self.splits):
            digest.update(np.ascontiguousarray(array).tobytes())
        digest.update(repr(sorted(self._sources.items())).encode())
        if self.tile_read != UNSTATED:
            digest.update(self.tile_read.encode())
        if planes_um := self._table.metadata.get("planes_um"):
            digest.update(repr(sorted(planes_um.items())).encode())
        return digest.hexdigest()


def _description(stain: str | Mapping[str, Any]) -> dict[str, Any] | None:
    if not isinstance(stain, str):
        return dict(stain)
    if stain == "none":
        return None
    for method in METHODS:
        if method == stain:
            return describe(method)
    raise BadRecipeError(f"[data] stain = {stain!r}: expected one of none, {', '.join(METHODS)}.")
