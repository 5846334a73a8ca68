"""The export workflow: from one store to one copy that other programs can read without gemslide."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from pipeline.export.common.target import check_free, new_file
from pipeline.export.ngff.zipped import folder_beside, move_into_zip
from pipeline.files import new_folder
from pipeline.places.object_path import StorePath
from pipeline.store.integrity import check_levels
from pipeline.store.reading.reader import StoreReader
from pipeline.units import described
from training.foundation.errors import BadRecipeError
from training.foundation.progress import Advance, no_bar

ExportKind = Literal["ngff-0.5", "ngff-0.4", "ozx", "ome-tiff", "tiff", "dicom"]
_SUFFIXES: tuple[tuple[tuple[str, ...], ExportKind], ...] = (
    ((".ome.tif", ".ome.tiff", ".ome.btf"), "ome-tiff"),
    ((".tif", ".tiff", ".btf"), "tiff"),
    ((".zarr",), "ngff-0.5"),
    ((".ozx",), "ozx"),
)


@dataclass(frozen=True)
class ExportRequest:
    """The source, target and kind of an export."""

    store: StorePath
    out: Path
    kind: ExportKind
    quality: int | None = None
    """TIFF only: JPEG quality of levels that are not stored as JPEG; None keeps them lossless."""
    with_associated: bool = False
    """Include the label, macro and thumbnail, if the store has them."""
    plane_um: float | None = None
    """Height of a stack's focal plane; None: all of them in NGFF 0.5, which alone holds several here, else the
    default one."""


@dataclass(frozen=True)
class ExportReport:
    """Outcome of an export."""

    slide_id: str
    source_sha256: str
    how: dict[str, str]
    """Explanation of how each level and associated image was written."""
    bytes: int
    seconds: float
    planes: str = ""
    """Clause on the focal planes of a stack that were written."""


def kind_of(to: str | None, out: Path) -> ExportKind:
    """The requested format, else the one implied by the target's name.

    Raises:
        BadRecipeError: an unknown format, or neither names one.
    """
    known: tuple[ExportKind, ...] = get_args(ExportKind)
    if to:
        for kind in known:
            if kind == to:
                return kind
        raise BadRecipeError(f"--to {to}: unknown format. Use one of {', '.join(known)}.")
    for suffixes, kind in _SUFFIXES:
        if out.name.lower().endswith(suffixes):
            return kind
    raise BadRecipeError(f"{out}: its name implies no format. Add --to with one of {', '.join(known)}.")


def export_slide(request: ExportRequest, *, advance: Advance = no_bar) -> ExportReport:
    """Write one copy; it gets its name only when complete, and replaces nothing.

    Memory use is bounded for any slide size: a shard, or a few tiles, per thread.

    Raises:
        BadRecipeError: the target exists, options do not match, or the slide has no such focal plane.
        UnreadableError: no such store.
        UnverifiedLinkError: it is linked to a slide's file with which it has not been compared.
        DamagedStoreError: a shard is missing, or the metadata of levels were changed.
        CorruptTileError: a chunk of the store is damaged. LockedError, DiskFullError: from the target.
    """
    start = time.perf_counter()
    reader = StoreReader(request.store, request.plane_um)
    sha256 = reader.source_sha256  # refuses a linked store that was not compared with its slide
    check_free(request.out, request.store)
    check_levels(reader)
    is_tiff = request.kind in ("ome-tiff", "tiff")
    if request.quality is not None and not is_tiff:
        raise BadRecipeError(
            f"--quality {request.quality} with {request.kind}: such copies are lossless. Omit the option."
        )
    write = _export_dicom if request.kind == "dicom" else _export_tiff if is_tiff else _export_ngff
    how = write(request, reader, advance)
    seconds = round(time.perf_counter() - start, 3)
    return ExportReport(reader.slide_id, sha256, how, _bytes(request.out), seconds, _planes(request, reader))


# Each format imports its own writer, whose libraries take longer to import than a small slide to write.


def _export_tiff(request: ExportRequest, reader: StoreReader, advance: Advance) -> dict[str, str]:
    from pipeline.export.tiff.writer import TiffExport

    associated = reader.associated() if request.with_associated else {}
    tiff = TiffExport(reader, request.kind == "ome-tiff", request.quality, associated, advance)
    with new_file(request.out) as stream:
        check_free(request.out, request.store)
        tiff.write(stream)
        check_free(request.out, request.store)
    return tiff.how


def _export_ngff(request: ExportRequest, reader: StoreReader, advance: Advance) -> dict[str, str]:
    from pipeline.export.ngff.writer import NgffExport, about_export

    associated = reader.associated() if request.with_associated else {}
    planes = tuple(reader.planes()) if _has_all_planes(request) else (reader,)
    ngff = NgffExport(planes, associated, about_export(planes), advance)
    if request.kind == "ozx":
        with new_file(request.out) as stream, folder_beside(request.out) as folder:
            check_free(request.out, request.store)
            ngff.write_05(folder)
            move_into_zip(folder, stream)
            check_free(request.out, request.store)
    else:
        with _new_folder(request) as folder:
            check_free(request.out, request.store)
            (ngff.write_05 if request.kind == "ngff-0.5" else ngff.write_04)(folder)
    return dict.fromkeys([*(str(level.level) for level in reader.levels), *associated], "zstd, lossless")


def _export_dicom(request: ExportRequest, reader: StoreReader, advance: Advance) -> dict[str, str]:
    if request.with_associated:
        raise BadRecipeError("--associated with dicom: labels and macros are not written as DICOM. Omit the option.")
    from pipeline.export.dicom.slide import DicomExport

    dicom = DicomExport(reader, advance)
    with _new_folder(request) as folder:
        check_free(request.out, request.store)
        dicom.write(folder)
    return dicom.how


def _has_all_planes(request: ExportRequest) -> bool:
    return request.plane_um is None and request.kind in ("ngff-0.5", "ozx")


def _planes(request: ExportRequest, reader: StoreReader) -> str:
    planes_um = reader.attributes.planes_um
    if planes_um is None:
        return ""
    if _has_all_planes(request):
        return f"; all {len(planes_um)} focal planes"
    return f"; only the focal plane at {reader.plane_um:g} µm (of {described(planes_um)})"


def _new_folder(request: ExportRequest) -> AbstractContextManager[Path]:
    """A new folder that does not replace one that someone makes in the meantime."""
    return new_folder(request.out, before_swap=lambda: check_free(request.out, request.store))


def _bytes(path: Path) -> int:
    files = [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]
    return sum(p.stat().st_size for p in files)
