"""Folders to which the sources of a run started by the web app are restricted; the run itself checks on opening.

The app names the folders in the run's environment. From a terminal, sources may be anywhere.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from pipeline.errors import OutsideFoldersError
from pipeline.settings.site import WITHIN_VARIABLE, is_within

_INDEX = b"Virtual Microscope Specimen]"
"""Marker of a slide that is a text file naming its parts (Hamamatsu's VMS and VMU, whatever the suffix)."""
_MAX_INDEX_BYTES = 1 << 20
"""OpenSlide does not read longer ones."""
_ESCAPED = {"s": " ", "n": "\n", "t": "\t", "r": "\r"}
_MAX_PARTS = 1_000_000


class HasFiles(Protocol):
    """Opened slide or other source, with its files."""

    files: tuple[Path, ...]


Opened = TypeVar("Opened", bound=HasFiles)


def check_source(path: Path, folders: Sequence[str] | None = None) -> tuple[str, ...]:
    """Check the real locations of a slide, a manifest or an annotation file and its parts. Returns their real paths.

    Args:
        folders: folders that must contain all parts; None: those of this process's environment; if none, any.

    Raises:
        OutsideFoldersError: a part is elsewhere, or is a link to elsewhere.
    """
    if folders is None:
        named = os.environ.get(WITHIN_VARIABLE)
        if named is None:
            return ()
        folders = json.loads(named)
    roots = [os.path.realpath(folder) for folder in folders]
    real = []
    for part in _parts(path):
        real.append(os.path.realpath(part))
        if not is_within(real[-1], roots):
            raise OutsideFoldersError(
                f"{path.name}: is, or has parts, outside the folders that the web app may ingest from. Ingest it on "
                "the command line, or ask the operator of the app to add its folder to GEMSLIDE_SLIDES or to the site "
                "file (docs/how_to/runs.md)."
            )
    return tuple(real)


def open_checked(path: Path, open_it: Callable[[], Opened], close: Callable[[Opened], None]) -> Opened:
    """Open a slide in an allowed folder; check for links changed meanwhile, and check parts that only its reader knows,
    such as the files of a DICOM concatenation.

    Raises:
        OutsideFoldersError: as `check_source`.
    """
    before = check_source(path)
    opened = open_it()
    try:
        if check_source(path) != before:
            raise OutsideFoldersError(f"{path.name}: a link in its path was changed while it was being opened.")
        for part in opened.files:
            if not part.is_relative_to(path):
                check_source(part)
    except BaseException:
        close(opened)
        raise
    return opened


def _parts(path: Path) -> Iterator[Path]:
    """A file or folder, links below the folder, and the files beside it that belong to it."""
    yield path
    folder = path.with_suffix("") if path.suffix.lower() == ".mrxs" else path
    if folder != path:
        yield folder
        ini = folder / "Slidedat.ini"
        if ini.is_file() and ini.stat().st_size <= _MAX_INDEX_BYTES:
            yield from _named_in(ini, folder)
    if folder.is_dir():
        yield from _links_below(folder)
    if _is_index(path):
        yield from _named_in(path, path.parent)


def _links_below(folder: Path) -> Iterator[Path]:
    for number, entry in enumerate(entries_below([folder])):
        if number == _MAX_PARTS:
            raise OutsideFoldersError(
                f"{folder.name}: has more than {_MAX_PARTS:,} files, too many to check for links."
            )
        if entry.is_symlink():
            yield Path(entry.path)


def entries_below(folders: Sequence[Path], *, skip: Sequence[str] = ()) -> Iterator[os.DirEntry[str]]:
    """Everything below some folders, once, also through links to folders: one link may lead to another.

    A folder that a link leads to is entered after the link was yielded, so that a caller who refuses it ends the walk.

    Args:
        skip: folders that are not entered.
    """
    waiting, entered = [str(folder) for folder in folders], set()
    while waiting:
        folder = os.path.realpath(waiting.pop())
        if folder in entered or is_within(folder, skip):
            continue
        entered.add(folder)
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    yield entry
                    if entry.is_dir():
                        waiting.append(entry.path)
        except OSError:  # opening it reports the error
            continue


def _named_in(index: Path, folder: Path) -> Iterator[Path]:
    """Files that lines such as `ImageFile=a.jpg` name below a folder, in every way that a reader may interpret them."""
    text = index.read_bytes().decode("utf-8", "surrogateescape")
    for line in re.split(r"[\r\n]+", text):
        value = line.partition("=")[2].lstrip()
        plain = re.sub(r"\\(.)", lambda escaped: _ESCAPED.get(escaped[1], escaped[1]), value)
        for name in {value, value.rstrip(), plain, plain.rstrip()}:
            part = f"{folder}/{name}"
            if name and "\0" not in name and len(name) < 4096 and os.path.lexists(part):
                yield Path(part)


def _is_index(path: Path) -> bool:
    is_short = path.is_file() and path.stat().st_size <= _MAX_INDEX_BYTES
    return is_short and _INDEX in path.read_bytes()
