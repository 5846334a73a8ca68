"""A TIFF's structure through tifffile: every call that can fail on a damaged file, each guarded separately.

Sizes and offsets of a page are plain attributes, but of whatever type a damaged tag gives them: check them with
`has_plain_sizes` in `validate.py` before use.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import tifffile

from pipeline.slides.common.damage import DamagedFileError, library_errors
from pipeline.slides.common.reading import disk_errors
from pipeline.slides.tiff.prescan import intervals_fit

# tifffile reports oddities of damaged files through logging; our errors say what matters.
logging.getLogger("tifffile").setLevel(logging.CRITICAL)

_TIFFFILE_ERRORS = (
    tifffile.TiffFileError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, AssertionError,
    struct.error, OSError, RuntimeError, MemoryError, ElementTree.ParseError,
)  # fmt: skip
"""Exceptions that tifffile raises on files with false claims."""
_MAX_PAGES, _MAX_SUB_PAGES = 10_000, 100


_MOST_COLOURS = 3


@dataclass(frozen=True)
class Series:
    """Pages that tifffile takes for one image."""

    name: str
    axes: str
    shape: tuple[int, ...]
    keyframe: tifffile.TiffPage
    levels: tuple[tifffile.TiffPage, ...]
    offsets: frozenset[int]
    """Of all its pages, including planes of a stack."""


def size_of(page: tifffile.TiffPage) -> tuple[int, int]:
    """Width and height in pixels."""
    return page.imagewidth, page.imagelength


class TiffStructure:
    """An open TIFF: its pages, series and texts, read on demand. Use as a context manager.

    Raises:
        DamagedFileError: here and from every method below; tifffile cannot read it.
        UnreadableError: the disk or the network fails.
    """

    def __init__(self, path: Path) -> None:
        self._name = path.name
        self._slide_page: tifffile.TiffPage | None = None
        self._names_ignored: set[int] = set()
        self.slide_image = 0
        """Number of the slide among the images of its OME-XML, from 0."""
        if not intervals_fit(path):
            raise DamagedFileError("its list of restart intervals (tag 65426) cannot be true")
        with self._guarded():
            self._tiff = tifffile.TiffFile(path)

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        with library_errors(_TIFFFILE_ERRORS), disk_errors(self._name):
            yield

    @cached_property
    def num_pages(self) -> int:
        with self._guarded():
            return len(self._tiff.pages)

    @cached_property
    def first(self) -> tifffile.TiffPage:
        with self._guarded():
            return self._tiff.pages.first

    def pages(self) -> list[tifffile.TiffPage]:
        """All pages of the chain, each only once if it loops."""
        if self.num_pages > _MAX_PAGES:
            raise DamagedFileError(f"it has {self.num_pages} pages, and no slide has more than {_MAX_PAGES}")
        with self._guarded():
            # Iterating would follow a chain that loops forever.
            return [self._tiff.pages[index].aspage() for index in range(self.num_pages)]

    @cached_property
    def series(self) -> tuple[Series, ...]:
        with self._guarded():
            return tuple(
                Series(
                    str(one.name), str(one.axes), tuple(int(length) for length in one.shape), one.keyframe.aspage(),
                    tuple(level.keyframe.aspage() for level in one.levels),
                    frozenset(int(page.offset) for page in one.pages if page is not None),
                )
                for one in self._tiff.series
            )  # fmt: skip

    def stacked_pages(self, page: tifffile.TiffPage) -> list[tifffile.TiffPage]:
        """The pages that together with a page make up one image at one size, in order; [page] if it is alone.

        Stacks of more than three are not read.
        """
        with self._guarded():
            for series in self._tiff.series:
                for level in series.levels:
                    if level.keyframe.offset == page.offset and 1 < len(level) <= _MOST_COLOURS:
                        return [one.aspage() for one in level.pages if one is not None]
        return [page]

    def is_of(self, *families: str) -> bool:
        """Whether tifffile takes it for a file of one of the families: svs, ome, philips, qpi, imagej, lsm."""
        with self._guarded():
            return any(bool(getattr(self._tiff, f"is_{family}")) for family in families)

    def sub_pages(self, page: tifffile.TiffPage) -> list[tifffile.TiffPage]:
        """Pages below one of the chain (SubIFDs)."""
        with self._guarded():
            num_listed, below = len(page.subifds or ()), page.pages
            if num_listed > _MAX_SUB_PAGES:
                raise DamagedFileError(f"{num_listed} pages are below page {page.index}")
            return [below[index].aspage() for index in range(num_listed)] if below is not None else []

    def use_page(self, page: tifffile.TiffPage, image: int) -> None:
        """Use this page's tags and description, and this image's entry in OME-XML, from now on."""
        self._slide_page, self.slide_image = page, image

    def ignore_name_of(self, page: tifffile.TiffPage) -> None:
        """From now on, what the file calls this page says nothing of the kind of image."""
        self._names_ignored.add(page.offset)

    def ignores_name_of(self, page: tifffile.TiffPage) -> bool:
        return page.offset in self._names_ignored

    @property
    def size_wh(self) -> tuple[int, int]:
        """Width and height of the slide's page, or of the first until one is chosen, in pixels."""
        return size_of(self._slide_page or self.first)

    @property
    def description(self) -> str:
        """Description of the slide's page, or of the first until one is chosen; "" if absent."""
        return self.description_of(self._slide_page or self.first)

    def description_of(self, page: tifffile.TiffPage) -> str:
        with self._guarded():
            return str(page.description)

    @cached_property
    def ome_xml(self) -> str:
        """OME-XML; "" if the file has none."""
        with self._guarded():
            return (self._tiff.ome_metadata or "") if self._tiff.is_ome else ""

    @cached_property
    def imagej_labels(self) -> list[str]:
        """Labels of an ImageJ stack, such as its channels' names."""
        with self._guarded():
            metadata = self._tiff.imagej_metadata or {}
            labels = metadata.get("Labels") or []
            return [str(label) for label in ([labels] if isinstance(labels, str) else labels)]

    @cached_property
    def philips_xml(self) -> str:
        """The XML of a Philips file; "" for others."""
        with self._guarded():
            return (self._tiff.philips_metadata or "") if self._tiff.is_philips else ""

    def tag(self, code: int, page: tifffile.TiffPage | None = None) -> Any:
        """A tag's value, of whatever type the file gives it; None if absent. The slide's page is the default."""
        with self._guarded():
            tag = (self._slide_page or self.first if page is None else page).tags.get(code)
            return None if tag is None else tag.value

    def tag_kinds(self, page: tifffile.TiffPage) -> list[tuple[int, int, int]]:
        """Code, type and number of values of each of a page's tags."""
        with self._guarded():
            return [(int(tag.code), int(tag.dtype), int(tag.count)) for tag in page.tags]

    def num_values(self, code: int, page: tifffile.TiffPage) -> int:
        """Number of values of a page's tag in the file; 0 without the tag."""
        with self._guarded():
            tag = page.tags.get(code)
            return 0 if tag is None else int(tag.count)

    def offset_behind_chain(self) -> int:
        """Offset of a further page, as stated by the last page that tifffile lists; 0 for none."""
        with self._guarded():
            fmt, last, handle = self._tiff.tiff, self._tiff.pages[-1].offset, self._tiff.filehandle
            handle.seek(last)
            num_tags = handle.read(fmt.tagnosize)
        if len(num_tags) < fmt.tagnosize:
            raise DamagedFileError(f"its last page is at byte {last}, past its end")
        (count,) = struct.unpack(fmt.tagnoformat, num_tags)
        with self._guarded():
            handle.seek(last + fmt.tagnosize + count * fmt.tagsize)
            following = handle.read(fmt.offsetsize)
        return int(struct.unpack(fmt.offsetformat, following.ljust(fmt.offsetsize, b"\0"))[0])

    def close(self) -> None:
        self._tiff.close()

    def __enter__(self) -> TiffStructure:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
