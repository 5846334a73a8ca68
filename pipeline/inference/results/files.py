"""A slide's result files, beside its store: all of them are written from one array of predictions."""

from __future__ import annotations

import hashlib
import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType

from pipeline.annotations.formats.geojson import qupath_origin_xy0
from pipeline.codecs.types import Pixels
from pipeline.export.csv.parquet import write_parquet
from pipeline.export.csv.predictions import write_csv
from pipeline.export.dicom.kinds import DICOM, DICOM_KINDS, DicomKind
from pipeline.export.qupath.contours import write_contours
from pipeline.export.qupath.predictions import write_geojson
from pipeline.export.tiff.heatmap import write_ome_heatmap
from pipeline.inference.results.heatmap import THUMBNAIL_PX, write_heatmap
from pipeline.inference.results.hotspots import (
    HOTSPOTS_FILE,
    Hotspot,
    Hotspots,
    find_hotspots,
    wanted_classes,
    write_hotspots,
)
from pipeline.inference.results.slide_report import About, Shown, write_slide_report
from pipeline.settings.config import InferConfig, ResultFormat
from pipeline.store.layers.overlays import Predictions
from pipeline.store.reading.reader import StoreReader
from pipeline.store.view.render import thumbnail
from training.foundation.errors import DiskFullError, GemslideError, LockedError

FILE_OF: Mapping[ResultFormat, str] = MappingProxyType(
    {
        "csv": "predictions.csv",
        "parquet": "predictions.parquet",
        "geojson": "predictions.geojson",
        "contours": "contours.geojson",
        "ome-tiff": "heatmap.ome.tiff",
        "dicom-seg": "segmentation.dcm",
        "dicom-pm": "parametric_map.dcm",
        "report": "slide_report.html",
    }
)
"""The file of each format; "heatmap" has one per class (`heatmap_name`)."""
OUR_FILES = {HOTSPOTS_FILE, *FILE_OF.values()}
"""Names of result files; in addition there is a heatmap per class."""


def heatmap_name(class_name: str) -> str:
    """File of a class's heatmap. Characters that could name a folder become underscores; no class shares one."""
    safe_name = re.sub(r"[^A-Za-z0-9.-]", "_", class_name)
    suffix = "" if safe_name == class_name else f"-{hashlib.sha256(class_name.encode()).hexdigest()[:8]}"
    return f"heatmap_{safe_name[:100]}{suffix}.png"


def is_own_file(name: str) -> bool:
    """Whether inference writes a file of this name into a slide's results."""
    return name in OUR_FILES or re.fullmatch(r"heatmap_[A-Za-z0-9._-]+\.png", name) is not None


@dataclass(frozen=True)
class Written:
    """Outcome of `write_results`."""

    num_hotspots: int
    warning: str | None
    """Clause about requested files that are missing, or about the position of DICOM results."""


def write_results(
    reader: StoreReader,
    predictions: Predictions,
    result_dir: Path,
    config: InferConfig,
    about: About | None = None,
) -> Written:
    """Write the files that `[infer] formats` names, and hotspots, into a folder that the caller publishes.

    Args:
        about: for the report, whose times include those of the other files. If DICOM results cannot be written for its
            source, the others still are, and `Written.warning` says so.

    Raises:
        DiskFullError: no space, or not writable.
    """
    start, about = time.perf_counter(), about or About()
    results = _Results(reader, predictions, result_dir, config)
    write_hotspots(result_dir / HOTSPOTS_FILE, Hotspots(config.threshold, results.hotspots))
    writers: dict[ResultFormat, Callable[[], None]] = {
        "csv": results.csv,
        "parquet": results.parquet,
        "geojson": results.geojson,
        "contours": results.contours,
        "heatmap": results.heatmaps,
        "ome-tiff": results.ome_tiff,
    }
    for name, write in writers.items():
        if name in config.formats:
            write()
    dicom: dict[DicomKind, Path] = {kind: result_dir / FILE_OF[kind] for kind in DICOM_KINDS if kind in config.formats}
    warning = _dicom(reader, predictions, dicom, about.source) if dicom else None
    if "report" in config.formats:
        seconds = {**about.seconds, "write": time.perf_counter() - start}
        results.report(replace(about, seconds=seconds))
    return Written(len(results.hotspots), warning)


def _dicom(
    reader: StoreReader, predictions: Predictions, files: Mapping[DicomKind, Path], source: Path | None
) -> str | None:
    """Write DICOM results. Returns a remark on them, or on why there are none."""
    requested = " and ".join(files)
    source_format = reader.attributes.source.format
    if source_format != DICOM:
        return f"{requested} not written: DICOM results need a DICOM slide, and this one was {source_format}"
    if source is None:
        return (
            f"{requested} not written: the store does not record its source. Write them with `gemslide export "
            f"{reader.slide_id} OUT.dcm --to dicom-seg --model MODEL --source SLIDE`"
        )
    from pipeline.export.dicom.results import write_dicom_results  # its libraries are slow to import

    try:
        return write_dicom_results(source, predictions, files, source_sha256=reader.source_sha256)
    except (DiskFullError, LockedError):
        raise
    except GemslideError as error:  # in the source, which the other files do not need
        for path in files.values():
            path.unlink(missing_ok=True)
        return f"{requested} not written: {error}"


@dataclass(frozen=True)
class _Results:
    """One slide's results, and their folder."""

    reader: StoreReader
    predictions: Predictions
    folder: Path
    config: InferConfig

    @cached_property
    def wanted(self) -> tuple[str, ...]:
        return wanted_classes(self.predictions.class_names, self.config)

    @cached_property
    def hotspots(self) -> list[Hotspot]:
        return find_hotspots(
            self.predictions,
            self.wanted,
            mpp0=self.reader.mpp0,
            threshold=self.config.threshold,
            most=self.config.max_hotspots,
            min_distance_um=self.config.hotspot_min_distance_um,
        )

    @cached_property
    def image(self) -> Pixels:
        return thumbnail(self.reader, THUMBNAIL_PX)

    @property
    def origin_xy0(self) -> tuple[int, int]:
        return qupath_origin_xy0(self.reader.attributes.bounds_px0)

    def path(self, name: ResultFormat) -> Path:
        return self.folder / FILE_OF[name]

    def csv(self) -> None:
        write_csv(self.path("csv"), self.reader.slide_id, self.predictions)

    def parquet(self) -> None:
        write_parquet(self.path("parquet"), self.reader.slide_id, self.reader.source_sha256, self.predictions)

    def geojson(self) -> None:
        write_geojson(self.path("geojson"), self.predictions, self.reader.source_sha256, origin_xy0=self.origin_xy0)

    def contours(self) -> None:
        write_contours(
            self.path("contours"),
            self.predictions,
            self.reader.source_sha256,
            self.wanted,
            mpp0=self.reader.mpp0,
            threshold=self.config.threshold,
            origin_xy0=self.origin_xy0,
        )

    def heatmaps(self) -> None:
        # With two classes, the one to look for suffices; with more, each has its own image.
        shown = self.predictions.class_names if len(self.predictions.class_names) > 2 else self.wanted
        for class_name in shown:
            write_heatmap(self.folder / heatmap_name(class_name), self.reader, self.image, self.predictions, class_name)

    def ome_tiff(self) -> None:
        write_ome_heatmap(self.path("ome-tiff"), self.reader.slide_id, self.predictions, mpp0=self.reader.mpp0)

    def report(self, about: About) -> None:
        shown = Shown(self.wanted[0], self.config.threshold, self.hotspots)
        write_slide_report(self.path("report"), self.reader, self.image, self.predictions, shown, about)


def preserve_foreign_files(old: Path, new: Path, class_names: Sequence[str]) -> None:
    """Copy files in a slide's results that inference does not write, such as notes, with folders and links."""
    ours = {*OUR_FILES, *(heatmap_name(name) for name in class_names)}
    for path in old.iterdir() if old.is_dir() else ():
        if path.name in ours or path.name[0] == ".":
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.copytree(path, new / path.name, symlinks=True)
        elif path.is_file() or path.is_symlink():
            shutil.copy2(path, new / path.name, follow_symlinks=False)
