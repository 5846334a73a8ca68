"""Suffixes of slides: what the readers declare, including those of a site's packages. There is no other list."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from pipeline.slides.refused_formats import is_refused_by_name


@cache
def slide_suffixes() -> frozenset[str]:
    """All suffixes, in lower case; some are double, such as ".ome.tiff"."""
    from pipeline.slides.registry import readers  # with its libraries: not needed just to name stores

    return frozenset(suffix.lower() for reader in readers() for suffix in getattr(reader, "suffixes", ()))


def slide_suffix(name: str) -> str:
    """The longest declared suffix that a file's name ends in, as written there; "" if none."""
    lower = name.lower()
    matches = (suffix for suffix in slide_suffixes() if lower.endswith(suffix) and len(name) > len(suffix))
    length = max(map(len, matches), default=0)
    return name[len(name) - length :]


def has_slide_suffix(name: str) -> bool:
    """Whether a file is a slide by its name."""
    return bool(slide_suffix(name))


def is_slide_or_refused(name: str) -> bool:
    """Whether a file's name is that of a slide or image, whether or not its format is supported."""
    return has_slide_suffix(name) or is_refused_by_name(name)


def slide_id_from(path: Path) -> str:
    """The slide id from a file or folder: its name without a suffix that a reader declares, else without the last one.

    "x.ome.tiff" and "x.svs" are both "x".
    """
    suffix = slide_suffix(path.name)
    return path.name.removesuffix(suffix) if suffix else path.stem


def slides_below(folder: Path) -> Iterator[Path]:
    """Files and folders that are slides by their names, sorted. A folder that is a slide is not entered."""
    for path in sorted(folder.iterdir()):
        is_folder = path.is_dir()
        if has_slide_suffix(path.name) and (path.is_file() or (is_folder and path.suffix.lower() == ".zarr")):
            yield path
        elif is_folder and not path.is_symlink():
            yield from slides_below(path)
