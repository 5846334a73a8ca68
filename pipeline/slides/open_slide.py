"""Choosing a reader: an ordered table, first match wins."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pipeline.errors import UnreadableError
from pipeline.slides.openslide_ import OpenSlideSlide, detect_vendor
from pipeline.slides.slide import Slide
from pipeline.slides.tiff_ import TiffSlide, hides_ycc, is_tiff

TIFF_VENDORS = {None, "aperio", "generic-tiff"}
"""OpenSlide's names of the families whose TIFF structure is plain enough to read tile by tile."""

READERS: list[tuple[str, Callable[[Path, str | None], bool], Callable[[Path], Slide]]] = [
    ("tifffile", lambda path, vendor: vendor in TIFF_VENDORS and is_tiff(path) and not hides_ycc(path), TiffSlide),
    ("openslide", lambda path, vendor: vendor is not None, OpenSlideSlide),
]


def open_slide(path: Path) -> Slide:
    """Open a slide with the first reader that knows it.

    Raises:
        UnreadableError: no such file, no reader knows it, or it is damaged.
        NotBrightfieldRgbError: it holds something else than 8-bit RGB.
        ClaimsTooMuchError: it claims more pixels than its bytes can hold.
    """
    _check_file(path)
    vendor = detect_vendor(path)
    for _, accepts, reader in READERS:
        if accepts(path, vendor):
            return reader(path)
    raise UnreadableError(
        f"{path.name}: neither OpenSlide nor tifffile knows this format (first bytes: {_head(path)[:8]!r}). "
        "Check that the file is a slide and complete; `gemslide doctor` lists the formats."
    )


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            return stream.read(64)
    except OSError as error:
        raise UnreadableError(f"{path}: cannot be read ({error.strerror}). Check its permissions.") from error


def _check_file(path: Path) -> None:
    if not path.exists():
        raise UnreadableError(f"{path}: no such file. Check the path (a manifest's paths are relative to it).")
    if path.is_dir():
        raise UnreadableError(f"{path}: is a folder; name the slide file inside it.")
    if not path.is_file():
        raise UnreadableError(f"{path}: is neither a file nor a folder; name the slide file itself.")
    head = _head(path)
    if not head:
        raise UnreadableError(f"{path.name}: the file is empty. Copy it again.")
    if head.startswith(b"version https://git-lfs"):
        raise UnreadableError(
            f"{path.name}: is a Git LFS pointer of {path.stat().st_size} bytes, not the slide itself. "
            "Run `git lfs pull` where it came from, then copy the real file."
        )
