"""Choice of a reader: the first that accepts a file, of ours and those that a site's packages add by entry point."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pipeline.settings.source_folders import check_source, open_checked
from pipeline.slides.common.reading import disk_errors, first_bytes, is_dicom
from pipeline.slides.common.series import Candidate, choose_series
from pipeline.slides.common.slide import Slide
from pipeline.slides.dicom.suffixes import DICOM_SUFFIXES
from pipeline.slides.openslide.library import detect_vendor
from pipeline.slides.openslide.suffixes import openslide_suffixes
from pipeline.slides.plugins import Reader, load_plugins
from pipeline.slides.refused_formats import refuse_by_name
from pipeline.slides.tiff.reader import TiffSlide, has_unmarked_ycc, is_tiff
from training.foundation.errors import UnreadableError

TIFF_VENDORS = {None, "aperio", "generic-tiff", "philips"}
"""OpenSlide's names of the families whose TIFF structure is plain enough to read tile by tile."""


@dataclass(frozen=True)
class BuiltInReader:
    """One of our own readers; see `plugins.Reader`."""

    name: str
    priority: int
    _accepts: Callable[[Path, str | None], bool]
    _open: Callable[[Path, str | None], Slide]
    suffixes: tuple[str, ...]

    def accepts(self, path: Path, vendor: str | None) -> bool:
        return self._accepts(path, vendor)

    def open(self, path: Path, series: str | None) -> Slide:
        return self._open(path, series)


def _open_dicom(path: Path, series: str | None) -> Slide:
    # Its libraries take longer to import than a small slide takes to copy.
    from pipeline.slides.dicom.reader import DicomSlide

    return DicomSlide(path, series)


def _open_ome_zarr(path: Path, series: str | None) -> Slide:
    from pipeline.slides.ome_zarr.reader import OmeZarrSlide  # for the same reason

    return OmeZarrSlide(path, series)


def _open_tiff(path: Path, series: str | None) -> Slide:
    return TiffSlide(path, series)


def _open_openslide(path: Path, series: str | None) -> Slide:
    from pipeline.slides.openslide.reader import VendorSlide  # a linked TIFF appears sooner without it

    slide = VendorSlide(path)
    try:
        finest = slide.info.levels[0]
        choose_series([Candidate("0", finest.width_px, finest.height_px)], series, path.name)
    except BaseException:
        slide.close()
        raise
    return slide


def _is_dicom(path: Path, _: str | None) -> bool:
    if path.is_dir():
        return any(is_dicom(child) for child in path.rglob("*") if child.is_file())
    return is_dicom(path)


def _is_ome_zarr(path: Path, _: str | None) -> bool:
    return path.is_dir() and any((path / name).is_file() for name in ("zarr.json", ".zgroup", ".zattrs"))


def _is_plain_tiff(path: Path, vendor: str | None) -> bool:
    if vendor not in TIFF_VENDORS or not path.is_file() or not is_tiff(path):
        return False
    # OpenSlide reads what it takes for a generic TIFF through libtiff, which does not support JPEG 2000.
    return vendor == "generic-tiff" or not has_unmarked_ycc(path)


def _is_of_vendor(path: Path, vendor: str | None) -> bool:
    return vendor is not None


_OME_TIFF_SUFFIXES = tuple(f".ome.{suffix}" for suffix in ("tif", "tiff", "tf2", "tf8", "btf"))

OME_ZARR = BuiltInReader("ome-zarr", 40, _is_ome_zarr, _open_ome_zarr, (".ome.zarr", ".zarr"))
DICOM = BuiltInReader("wsidicom", 30, _is_dicom, _open_dicom, DICOM_SUFFIXES)
TIFF = BuiltInReader(
    "tifffile", 20, _is_plain_tiff, _open_tiff, (*_OME_TIFF_SUFFIXES, ".tif", ".tiff", ".btf", ".svs", ".qptiff")
)
OPENSLIDE = BuiltInReader("openslide", 10, _is_of_vendor, _open_openslide, openslide_suffixes())
BUILT_IN = (OME_ZARR, DICOM, TIFF, OPENSLIDE)


def readers() -> list[Reader]:
    """All readers in the order in which they are tried: by priority, highest first; of equals, ours first."""
    return sorted([*BUILT_IN, *load_plugins().readers], key=lambda reader: reader.priority, reverse=True)


def open_slide(path: Path, series: str | None = None) -> Slide:
    """Open a slide with the first reader that accepts it.

    Args:
        path: a file; or a folder of DICOM instances or an OME-Zarr.
        series: one of several slides in a file or folder (`series.py`).

    Raises:
        UnreadableError: no such file, no reader accepts it, or it is damaged.
        AmbiguousSeriesError: it holds several slides and none was chosen, or the chosen one does not exist.
        OutsideFoldersError: as `check_source`.
        NotBrightfieldRgbError: it holds something other than 8-bit RGB.
        DecompressionBombError: it claims more pixels than its bytes can hold.
    """
    check_source(path)
    _check_file(path)
    try:
        with disk_errors(path.name):
            vendor = None if path.is_dir() else detect_vendor(path)
            reader = next((reader for reader in readers() if reader.accepts(path, vendor)), None)
    except OSError as error:
        raise UnreadableError(f"{path}: cannot be read ({error.strerror}). Check its permissions.") from error
    if reader is None or isinstance(reader, BuiltInReader):
        refuse_by_name(path, vendor, has_reader=reader is not None)
    if reader is not None:
        return open_checked(path, lambda: reader.open(path, series), lambda slide: slide.__exit__(None, None, None))
    if path.is_dir():
        raise UnreadableError(
            f"{path}: is a folder without DICOM files or an OME-Zarr in it; name the slide file itself.{_not_loaded()}"
        )
    raise UnreadableError(
        f"{path.name}: neither OpenSlide nor tifffile knows this format (first bytes: {first_bytes(path, 8)!r}). "
        f"Check that the file is a slide and complete; `gemslide doctor` lists the formats.{_not_loaded()}"
    )


def _not_loaded() -> str:
    """Sentence on a site's readers that could not be loaded, and so were not tried; "" if none."""
    broken = load_plugins().broken
    names = ", ".join(sorted(broken))
    return f" Not tried, as they could not be loaded: {names} (`gemslide doctor` says why)." if broken else ""


def _check_file(path: Path) -> None:
    if not path.exists():
        raise UnreadableError(f"{path}: no such file. Check the path (a manifest's paths are relative to it).")
    if path.is_dir():
        return
    if not path.is_file():
        raise UnreadableError(f"{path}: is neither a file nor a folder; name the slide file itself.")
    head = first_bytes(path, 64)
    if not head:
        raise UnreadableError(f"{path.name}: the file is empty. Copy it again.")
    if head.startswith(b"version https://git-lfs"):
        raise UnreadableError(
            f"{path.name}: is a Git LFS pointer of {path.stat().st_size} bytes, not the slide itself. "
            "Run `git lfs pull` where it came from, then copy the real file."
        )
