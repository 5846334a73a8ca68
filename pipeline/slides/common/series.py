"""Choice of the image in a file that is the slide: one rule for every reader.

A file or folder holds images: pages of a TIFF, images of an OME-TIFF or OME-Zarr, series of DICOM files. Reduced copies
of an image belong to it and are not candidates; each reader groups them first. Of the others:

1. An image that its file calls label, macro, overview or thumbnail (`side_images.py`) is not the slide. Names can be
   free text, though, such as "Liver, macro": if the largest image is a macro or thumbnail by name alone, and has many
   times as many pixels as any without such a name, nothing is guessed, and the user may choose it. A label never is.
2. The largest of the rest is the slide.
3. If another is of comparable size (`is_comparable`), it may equally be the slide: nothing is guessed, and `--series`
   or the manifest's column `series` must choose.

Messages and stores name images only by number or UID: a file's own names for them can name a person.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pipeline.errors import AmbiguousSeriesError
from training.foundation.errors import UnreadableError
from training.foundation.words.counts import counted

SideImage = Literal["label", "macro", "thumbnail"]

MAX_SIDE_SHARE = 1 / 16
"""Of the largest image's pixels. Macro and label images of whole slides have less than a thousandth; of small crops and
test slides they reach a twentieth. Two sections on one glass, scanned separately, seldom differ by more than this."""
MAX_SIDE_PX = 20_000_000
"""Pixels. The largest overview images of scanners have about 10 million, 1 mm² of tissue at 0.25 µm/px has 16."""
_MAX_SCAN_MPP = 4.0
"""Microns per pixel. Side images show the whole glass: one of `MAX_SIDE_PX` would have about 10 µm/px."""
_MAX_LISTED = 8


@dataclass(frozen=True)
class Candidate:
    """One image of a file, with the reduced copies that belong to it."""

    series: str
    """Value of `--series` for it: a number from 0, a DICOM UID, a path in an OME-Zarr."""
    width_px: int
    height_px: int
    mpp: float | None = None
    """Microns per pixel, where the file states it for this image."""
    kind: SideImage | None = None
    """Kind of image according to the file, where that is something other than the slide."""
    is_kind_certain: bool = False
    """Whether the kind is stated in the format's own terms, as in DICOM, rather than by a name."""
    is_declared: bool = False
    """Whether the file says that it is an image of the slide, as DICOM's VOLUME does."""
    detail: str = ""
    """Addition for messages, such as the number of its files."""

    @property
    def num_px(self) -> int:
        return self.width_px * self.height_px

    def __str__(self) -> str:
        scale = f", {self.mpp:.4g} µm/px" if self.mpp else ""
        kind = f", {self.kind}" if self.kind else ""
        return f"{self.series} ({self.detail}{self.width_px}×{self.height_px} px{scale}{kind})"


def choose_series(candidates: Sequence[Candidate], series: str | None, name: str, *, by_end: bool = False) -> Candidate:
    """The image that is the slide.

    Args:
        series: the one that the user chose; None if none was chosen.
        name: of the file or folder, for messages.
        by_end: whether a unique ending of a series' name is enough.

    Raises:
        UnreadableError: nothing but side images, or a side image was chosen.
        AmbiguousSeriesError: several may be the slide, or none has that name; it lists the available ones.
    """
    slides = [candidate for candidate in candidates if candidate.kind is None]
    doubtful = _doubtful(candidates, slides)
    if series is not None:
        chosen = _named(candidates, slides, series, name, by_end=by_end)
        if chosen.kind is not None and chosen is not doubtful:
            raise UnreadableError(
                f"{name}: series {chosen.series} is the {chosen.kind} image, which is never read as the slide. "
                f"The others: {_listed(slides) or 'none'}."
            )
        return chosen
    if not slides:
        still = (
            f", or choose `--series {doubtful.series or '.'}` if that is the slide despite its name" if doubtful else ""
        )
        raise UnreadableError(
            f"{name}: has no image of the slide, only {_listed(candidates)}. Export the slide itself, or name its "
            f"file{still}."
        )
    if doubtful:
        raise AmbiguousSeriesError(_several([*slides, doubtful], name))
    largest = max(slides, key=lambda candidate: candidate.num_px)
    rivals = [slide for slide in slides if slide is not largest and is_comparable(slide, largest)]
    if rivals:
        raise AmbiguousSeriesError(_several([slide for slide in slides if slide is largest or slide in rivals], name))
    return largest


def is_comparable(candidate: Candidate, largest: Candidate) -> bool:
    """Whether an image may be the slide as well as the largest one.

    It may if it is too large for a side image, by its share of the largest or on its own; if it has the scale of a
    scan or of the largest, unlike an image of the whole glass; or if its file says so.
    """
    if candidate.is_declared or candidate.num_px > min(MAX_SIDE_SHARE * largest.num_px, MAX_SIDE_PX):
        return True
    return candidate.mpp is not None and candidate.mpp <= max(_MAX_SCAN_MPP, largest.mpp or 0.0)


def _doubtful(candidates: Sequence[Candidate], slides: Sequence[Candidate]) -> Candidate | None:
    """The image that may be the slide although its name says otherwise; see the module's first rule."""
    largest = max(candidates, key=lambda candidate: candidate.num_px)
    if largest.kind in (None, "label") or largest.is_kind_certain or any(slide.is_declared for slide in slides):
        return None
    if any(slide.mpp and slide.mpp <= _MAX_SCAN_MPP for slide in slides):
        return None  # a crop of a slide, beside the macro image of the whole glass
    most_px = max((slide.num_px for slide in slides), default=0)
    return largest if most_px < MAX_SIDE_SHARE * largest.num_px else None


def recorded_series(candidates: Sequence[Candidate], chosen: Candidate) -> str | None:
    """Chosen series as a store records it; None if there was no choice to make.

    A number or a path of numbers is kept; anything else, which could name a person, is replaced by its position.
    """
    if [candidate for candidate in candidates if candidate.kind is None] == [chosen] and candidates[0] is chosen:
        return None
    is_plain = all(part.isascii() and part.isdigit() for part in chosen.series.split("/"))
    return chosen.series if is_plain else f"#{list(candidates).index(chosen)}"


def left_out(candidates: Sequence[Candidate], chosen: Candidate) -> str | None:
    """Clause for the slide's warnings on images of the chosen one's size that are left out: a microscope's focal planes
    are stored in this way. None if there are none."""
    same = [
        candidate
        for candidate in candidates
        if candidate.series == chosen.series
        or (candidate.kind is None and (candidate.width_px, candidate.height_px) == (chosen.width_px, chosen.height_px))
    ]
    if len(same) < 2:
        return None
    at = next(index for index, candidate in enumerate(same, 1) if candidate.series == chosen.series)
    others = counted(len(same) - 1, "other was", "others were")
    return (
        f"image {at} of {len(same)} of {chosen.width_px}×{chosen.height_px} px in its file or folder was taken, and "
        f"{others} left out (images of one size may be focal planes)"
    )


def _named(
    candidates: Sequence[Candidate], slides: Sequence[Candidate], series: str, name: str, *, by_end: bool
) -> Candidate:
    matches = [candidate for candidate in candidates if candidate.series == series]
    if by_end and series and not matches:
        matches = [candidate for candidate in candidates if candidate.series.endswith(series)]
    if len(matches) != 1:
        ends = f"; {len(matches)} of them end in {series}" if matches else ""
        what = f"has no series {series!r:.100}. It has" if not matches else f"holds {len(candidates)} series:"
        raise AmbiguousSeriesError(f"{name}: {what} {_listed(slides)}{ends}. Choose one of them with --series.")
    (chosen,) = matches
    return chosen


def _several(rivals: Sequence[Candidate], name: str) -> str:
    same = len({(rival.width_px, rival.height_px) for rival in rivals}) < len(rivals)
    planes = " Images of the same size may be focal planes." if same else ""
    return (
        f"{name}: holds {len(rivals)} series that may each be the slide: {_listed(rivals)}.{planes} Choose one with "
        f"`--series {rivals[0].series}`, or in a manifest by the column `series`."
    )


def _listed(candidates: Sequence[Candidate]) -> str:
    more = f" and {len(candidates) - _MAX_LISTED} more" if len(candidates) > _MAX_LISTED else ""
    return "; ".join(map(str, candidates[:_MAX_LISTED])) + more
