"""`card.md` of a model package: one page with what a user must know before using the model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from training.data.facts import DataFacts, SplitFacts
from training.foundation.tile_read import TileRead, described_read
from training.foundation.words.counts import counted
from training.foundation.words.research_use import RESEARCH_USE
from training.packages.intervals import DRAWS, FEW_GROUPS, LEVEL, Intervals

INTENDED_USE = (
    "Research on digitised, stained tissue sections like those it was trained on: to find regions for a person to "
    "examine, and to compare methods. Every result must be judged by a person who knows the tissue."
)
NOT_INTENDED = (
    "Not for diagnosis, treatment or triage of patients; it is not a medical device and no regulator has assessed it."
)
NOT_KNOWN = "not known"
FIGURES = {
    "loss": "loss (cross-entropy)",
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced accuracy (mean of the classes' recalls)",
    "f1": "F1 (mean of the classes)",
    "auc": "AUC (each class against the rest, mean)",
    "calibration_error": "calibration error (15 bins)",
    "slide_accuracy": "accuracy of slides (mean of their tiles)",
    "slide_balanced_accuracy": "balanced accuracy of slides",
    "slide_f1": "F1 of slides",
    "slide_calibration_error": "calibration error of slides",
    "slide_auc": "AUC of slides",
}
"""Figures of `training.run.metrics`, as named for people."""


@dataclass(frozen=True)
class CardContent:
    """Content of a card. Texts are plain; lists are lines of Markdown."""

    model_id: str
    network: str
    class_names: Sequence[str]
    tile_px: int
    mpp: float
    stain: str | None
    """Method of stain normalisation."""
    data: DataFacts | None
    split_sha256: str
    metrics: Mapping[str, float]
    intervals: Intervals | None
    trained: Sequence[str]
    """Origin of the model, in sentences."""
    read: TileRead | None = None
    """Slide level that tiles are read from; None if unknown."""
    limits: Sequence[str] = field(default_factory=tuple)
    """Further limits, one sentence each."""


def card(content: CardContent) -> str:
    """The page, as Markdown."""
    return "\n".join(_lines(content)) + "\n"


def _lines(content: CardContent) -> Iterator[str]:
    yield from (f"# {content.model_id}", "", f"**{RESEARCH_USE}**", "")
    yield from ("## What it is", "")
    stain = f", their stain normalised by {content.stain}" if content.stain else ""
    yield f"- Network: {content.network}."
    level = described_read(content.read)
    yield f"- Input: tiles of {content.tile_px} × {content.tile_px} px at {content.mpp:g} µm/px, {level}{stain}."
    yield f"- Output: a probability for each of {len(content.class_names)} classes: {_listed(content.class_names)}."
    yield from ("", "## Intended use", "", INTENDED_USE, "", NOT_INTENDED, "")
    yield from ("## Data", "", *_data(content), "")
    yield from ("## Metrics", "", *_metrics(content), "")
    yield from ("## Limits", "", *(f"- {line}" for line in _limits(content)), "")
    yield from ("## How it was made", "", *(f"- {line}" for line in content.trained))


def _data(content: CardContent) -> Iterator[str]:
    if content.data is None:
        yield f"Training data: {NOT_KNOWN}."
        return
    splits = content.data.by_split
    rows = [("", *splits), ("patients", *map(_patients, splits.values())), ("slides", *map(_slides, splits.values()))]
    rows.append(("labelled tiles", *(str(split.tiles) for split in splits.values())))
    rows += [
        (f"of these {plain(name)}", *(str(split.by_class.get(name, 0)) for split in splits.values()))
        for name in content.class_names
    ]
    yield from table_lines(rows)
    scanners = [f"{plain(name)} ({count})" for name, count in content.data.scanners.items()]
    yield ""
    tile_set = plain(content.data.tile_set)
    yield f"- Tile set: {tile_set}; tiles, labels and split have the SHA-256 `{content.split_sha256}`."
    yield f"- Scanners, with their number of slides: {', '.join(scanners) or NOT_KNOWN}."
    if any(split.patients is None for split in splits.values()):
        yield "- Split: not every slide names its patient, so a patient may be in several splits."
    else:
        yield "- Split: by patient; no patient is in several splits. Training used `train` only."


def _patients(split: SplitFacts) -> str:
    return NOT_KNOWN if split.patients is None else str(split.patients)


def _slides(split: SplitFacts) -> str:
    return NOT_KNOWN if split.slides is None else str(split.slides)


def _metrics(content: CardContent) -> Iterator[str]:
    if not content.metrics:
        yield "The model came with none. Run `gemslide evaluate` on your own slides before relying on it."
        return
    known = content.intervals.bounds if content.intervals else {}
    rows = [("on the validation tiles", "value", f"{100 * LEVEL:g} % interval")]
    for name, value in content.metrics.items():
        bounds = known.get(name)
        rows.append(
            (FIGURES.get(name, plain(name)), f"{value:.4f}", f"{bounds[0]:.4f} to {bounds[1]:.4f}" if bounds else "–")
        )
    yield from table_lines(rows)
    yield ""
    yield _about_intervals(content.intervals)


def _about_intervals(intervals: Intervals | None) -> str:
    if intervals is None:
        return "No intervals: the patients and slides of the tiles were not known."
    things = counted(intervals.groups, intervals.by)
    if not intervals.bounds:
        return f"No intervals: with {things} in the validation there is nothing to draw from."
    few = f" With fewer than {FEW_GROUPS} they are too narrow." if intervals.groups < FEW_GROUPS else ""
    return f"Intervals are percentiles of {DRAWS} bootstrap draws by {intervals.by}, from {things}.{few}"


def _limits(content: CardContent) -> Iterator[str]:
    yield "Scanners, stains, organs and laboratories other than those above were not tested: figures may be lower."
    if content.metrics:
        yield (
            "The epoch was chosen on the validation tiles, so their figures are optimistic: `gemslide evaluate` on "
            "test slides tells more."
        )
    yield "It assigns one of its classes to every tile, even to a tile of none of them."
    yield from content.limits


def table_lines(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A table in Markdown; the first row is its head."""
    yield f"| {' | '.join(rows[0])} |"
    yield f"|{'---|' * len(rows[0])}"
    yield from (f"| {' | '.join(row)} |" for row in rows[1:])


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(plain, names))


def plain(text: str) -> str:
    """Text from elsewhere on one line, escaped so that Markdown and HTML show it as it is."""
    flat = " ".join(text.split())
    return "".join(f"\\{letter}" if letter in "\\`*_[]<>|#" else letter for letter in flat)
