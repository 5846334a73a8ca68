"""Counted objects by class: number, share with its interval, and density in the part that was scanned."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import shapely

from pipeline.ledger import Ledger
from pipeline.review.annotations.annotation import Annotation
from pipeline.review.annotations.reading import annotations_of
from pipeline.review.counting.areas import AreasOf, RegionAreas

CONFIDENCE = 0.95


@dataclass(frozen=True)
class ClassTally:
    """Objects of one class.

    Attributes:
        share: of all objects of the count; with Wilson's interval (J Am Stat Assoc 22, 1927) at 95 %.
        per_mm2: in the scanned part; None if nothing was scanned.
        per_mm2_tissue: in the tissue of that part; None if there is none, or no tissue mask.
    """

    class_name: str
    number: int
    share: float
    share_low: float
    share_high: float
    per_mm2: float | None
    per_mm2_tissue: float | None

    @property
    def share_text(self) -> str:
        """The share with its interval: "75.0 % (59.8 to 85.8)"."""
        return f"{100 * self.share:.1f} % ({100 * self.share_low:.1f} to {100 * self.share_high:.1f})"


@dataclass(frozen=True)
class CountTally:
    """One count of a slide, or all of them together.

    Attributes:
        name: "Count 1", in the order in which they were made; "All counts".
        annotation_id: None for all counts together.
        outside: marks that its area no longer contains; they are not counted.
    """

    name: str
    annotation_id: str | None
    areas: RegionAreas
    classes: tuple[ClassTally, ...]
    outside: int
    author: str
    changed_utc: str

    @property
    def number(self) -> int:
        return sum(tally.number for tally in self.classes)


def wilson_interval(number: int, among: int) -> tuple[float, float]:
    """Interval of a share of at least one object."""
    from scipy.stats import binomtest  # slow to import, and the app need not wait for it to start

    interval = binomtest(number, among).proportion_ci(CONFIDENCE, method="wilson")
    return float(interval.low), float(interval.high)


def tally_slide(ledger: Ledger, slide_id: str, areas_of: AreasOf) -> list[CountTally]:
    """The slide's counts, oldest first, and, if there are several, all together.

    Raises:
        GemslideError: the ledger is unavailable.
    """
    return tally_annotations(annotations_of(ledger, slide_id, kinds=("count", "mark")), areas_of)


def tally_annotations(annotations: Iterable[Annotation], areas_of: AreasOf) -> list[CountTally]:
    """`tally_slide` of live annotations; kinds other than counts and marks are ignored."""
    counts, marks_of = [], defaultdict(list)
    for annotation in annotations:
        if annotation.kind == "count":
            counts.append(annotation)
        elif annotation.kind == "mark" and annotation.parent_id is not None:
            marks_of[annotation.parent_id].append(annotation)
    counts.sort(key=lambda count: (count.made_utc, count.annotation_id))
    tallies = [
        _tally(f"Count {index}", count, marks_of[count.annotation_id], areas_of(count.shape))
        for index, count in enumerate(counts, 1)
    ]
    return [*tallies, _together(tallies)] if len(tallies) > 1 else tallies


def _tally(name: str, count: Annotation, marks: Sequence[Annotation], areas: RegionAreas) -> CountTally:
    shape = count.shape
    shapely.prepare(shape)
    is_in = shapely.intersects(shape, np.array([mark.shape for mark in marks], object)).tolist()
    numbers = Counter(str(mark.class_name) for mark, inside in zip(marks, is_in, strict=True) if inside)
    changed = max([count, *marks], key=lambda annotation: annotation.changed_utc)
    outside = len(marks) - numbers.total()
    classes = _classes(numbers, areas)
    return CountTally(name, count.annotation_id, areas, classes, outside, count.author, changed.changed_utc)


def _together(tallies: Sequence[CountTally]) -> CountTally:
    """Sums over several counts. Where their areas overlap, the overlap and its objects are in the sum twice."""
    numbers: Counter[str] = Counter()
    for tally in tallies:
        numbers.update({row.class_name: row.number for row in tally.classes})
    tissue = [tally.areas.tissue_mm2 for tally in tallies]
    known = [value for value in tissue if value is not None]
    areas = RegionAreas(
        sum(tally.areas.area_mm2 for tally in tallies),
        sum(tally.areas.scanned_mm2 for tally in tallies),
        sum(known) if len(known) == len(tissue) else None,
    )
    authors = ", ".join(sorted({tally.author for tally in tallies}))
    changed_utc = max(tally.changed_utc for tally in tallies)
    outside = sum(tally.outside for tally in tallies)
    return CountTally("All counts", None, areas, _classes(numbers, areas), outside, authors, changed_utc)


def _classes(numbers: Counter[str], areas: RegionAreas) -> tuple[ClassTally, ...]:
    total = numbers.total()
    return tuple(
        ClassTally(
            class_name,
            number,
            number / total,
            *wilson_interval(number, total),
            _density(number, areas.scanned_mm2),
            _density(number, areas.tissue_mm2),
        )
        for class_name, number in sorted(numbers.items())
    )


def _density(number: int, area_mm2: float | None) -> float | None:
    return number / area_mm2 if area_mm2 else None
