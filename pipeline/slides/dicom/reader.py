"""DICOM whole-slide images: a file, or a folder of the levels, label and overview of one series."""

from __future__ import annotations

from contextlib import ExitStack
from copy import copy
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from pipeline.box import Box, check_region
from pipeline.codecs.types import Pixels
from pipeline.slides.common.absent import AbsentTiles
from pipeline.slides.common.limits import MAX_WHOLE_PAGE_BYTES
from pipeline.slides.common.pyramid import LevelSize, level_size
from pipeline.slides.common.slide import EncodedLevel, NotCopied, SlideInfo
from pipeline.slides.common.slide_warnings import SlideWarnings
from pipeline.slides.dicom.headers.header import Header, read_header, refusing_damage
from pipeline.slides.dicom.headers.matrix import image_kind
from pipeline.slides.dicom.metadata import icc_of, label_in_image, mpp_of, objective_power_of, scanner_model_of
from pipeline.slides.dicom.pixels import DicomLevel
from pipeline.slides.dicom.plane import check_same_plane
from pipeline.slides.dicom.series import chosen_files, in_levels
from pipeline.slides.dicom.stacks import shown, stacked, with_all_planes
from pipeline.slides.dicom.validate import check_one_slide, check_pyramid
from pipeline.units import default_plane
from training.foundation.errors import DecompressionBombError, UnreadableError


class DicomSlide:
    """One series of whole-slide instances: volumes are levels, the rest associated images.

    Coordinates are those of the total pixel matrix, from its top left, whatever its orientation on the glass. Of
    several focal planes, in one instance or in several, it shows the default one.

    Args:
        path: a folder, for the whole slide; or one instance's file, for that level alone (with the other parts
            beside it, if it is one of a concatenation).
        series: the series of the folder to read, see `chosen_files`.
    """

    def __init__(self, path: Path, series: str | None = None) -> None:
        self._name = path.name
        files, clause = chosen_files(path, series)
        self.files = tuple(files)
        warnings = SlideWarnings()
        if clause:
            warnings.add(clause)
        with refusing_damage(path), ExitStack() as on_error:
            levels, self._associated = self._sorted_by_kind()
            instances = [self._open_level(parts, on_error, warnings) for parts in levels]
            stack = stacked(instances, self._name)
            check_pyramid([(level.matrix, mpp_of(level.header).mpp_xy) for level in map(shown, stack)], self._name)
            others = [header for parts in self._associated.values() for header in parts]
            check_one_slide([header for parts in levels for header in parts], others, self._name)
            check_same_plane([level.header for by_height in stack for level in by_height.values()], self._name)
            self._stack = with_all_planes(stack, warnings)
            self._heights_um = tuple(self._stack[0])
            self._levels = self._at_plane(default_plane(self._heights_um))
            self._check_content()
            label_statement = label_in_image(header for parts in levels for header in parts)
            finest = self._levels[0].header
            for instance in instances:
                instance.colours_as_said()  # warns if they are not
            self.info = replace(self._read_info(finest, label_statement), warnings=warnings)
            self._finest_file = finest.path
            self._opened = on_error.pop_all()

    @property
    def openslide_file(self) -> Path | None:
        """The file through which OpenSlide can serve as the reference decoder; None if it would be misled.

        OpenSlide trusts the attribute Photometric Interpretation, which is often wrong; frames state it themselves.
        It also trusts a damaged offset table, and crashes. It reads no stacks.
        """
        is_honest = all(level.colours_as_said() and not level.has_false_offsets for level in self._levels)
        return self._finest_file if is_honest and len(self._heights_um) == 1 else None

    def at_plane(self, plane: int) -> DicomSlide:
        slide = copy(self)
        slide._levels = self._at_plane(plane)
        return slide

    def _at_plane(self, plane: int) -> list[DicomLevel]:
        """Levels at a focal plane; those of a slide with a single one may state other heights than the finest."""
        return [list(level.values())[plane] for level in self._stack]

    @property
    def finest_header(self) -> Header:
        """Attributes of the finest level, those of its first file if it has several."""
        return self._levels[0].header

    def _sorted_by_kind(self) -> tuple[list[list[Header]], dict[str, list[Header]]]:
        """Instances of the tissue, and the first of each other kind."""
        levels: list[list[Header]] = []
        associated: dict[str, list[Header]] = {}
        for parts in in_levels([read_header(path) for path in self.files]):
            kind = image_kind(parts[0])
            if kind == "volume":
                levels.append(parts)
            else:
                associated.setdefault(kind, parts)
        if not levels:
            kinds = ", ".join(associated)
            raise UnreadableError(f"{self._name}: has no image of the tissue, only: {kinds}. Name the slide's folder.")
        return levels, associated

    def _open_level(self, parts: list[Header], opened: ExitStack, warnings: SlideWarnings) -> DicomLevel:
        level = DicomLevel(parts, self.files, warnings)
        opened.callback(level.close)
        return level

    def _check_content(self) -> None:
        """Refuse levels that show something else than the next finer one, at any plane. Raises UnreadableError."""
        planes = map(self._at_plane, range(len(self._heights_um)))
        for finer, level in (pair for levels in planes for pair in pairwise(levels)):
            if level.is_another_image(finer):
                raise UnreadableError(
                    f"{self._name}: its images of {finer.matrix.width_px}×{finer.matrix.height_px} and "
                    f"{level.matrix.width_px}×{level.matrix.height_px} px are of one series but show different things: "
                    "one is of another slide, or turned or shifted. Put each slide's files into a folder of its own, "
                    "or name a single file."
                )

    def _read_info(self, finest: Header, label_statement: str | None) -> SlideInfo:
        mpp = mpp_of(finest)
        return SlideInfo(
            format="dicom",
            levels=tuple(self._size(level) for level in self._levels),
            mpp_xy=mpp.mpp_xy,
            mpp_looked_in=mpp.looked_in,
            mpp_contradiction=mpp.contradiction,
            objective_power=objective_power_of(finest),
            scanner_model=scanner_model_of(finest),
            icc=icc_of(finest),
            associated=tuple(name for name in ("thumbnail", "label", "macro") if name in self._associated),
            label_in_image=label_statement,
            planes_um=self._heights_um if len(self._heights_um) > 1 else (),
        )

    def _size(self, level: DicomLevel) -> LevelSize:
        first, matrix = self._levels[0].matrix, level.matrix
        tile_px = matrix.tile_w_px if matrix.tile_w_px == matrix.tile_h_px else None
        return level_size(matrix.width_px, matrix.height_px, first.width_px, first.height_px, tile_px=tile_px)

    def read_region(self, level: int, box: Box) -> Pixels:
        check_region(level, len(self._levels), box, self._name)
        return self._levels[level].read_region(box)

    def encoded_level(self, level: int) -> EncodedLevel | NotCopied:
        check_region(level, len(self._levels), Box(0, 0, 0, 0), self._name)
        source = self._levels[level]
        return source.why_not_encoded() or source

    def absent_tiles(self, level: int) -> AbsentTiles:
        check_region(level, len(self._levels), Box(0, 0, 0, 0), self._name)
        return self._levels[level].absent_tiles()

    def associated_image(self, name: str) -> Pixels:
        parts = self._associated[name]
        with refusing_damage(parts[0].path), ExitStack() as opened:
            image = self._open_level(parts, opened, SlideWarnings())
            width_px, height_px = image.matrix.width_px, image.matrix.height_px
            if width_px * height_px * 3 > MAX_WHOLE_PAGE_BYTES:
                raise DecompressionBombError(
                    f"{self._name}: its {name} image claims {width_px}×{height_px} px; at most "
                    f"{MAX_WHOLE_PAGE_BYTES >> 20} MiB are read."
                )
            return image.read_region(Box(0, 0, width_px, height_px))

    def __enter__(self) -> DicomSlide:
        return self

    def __exit__(self, *exc: object) -> None:
        self._opened.close()
