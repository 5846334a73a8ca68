"""`card.md` of a slide-level model: one page with what a user must know before using it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from training.foundation.words.counts import counted
from training.foundation.words.research_use import RESEARCH_USE
from training.packages.card import INTENDED_USE, NOT_INTENDED, plain, table_lines


@dataclass(frozen=True)
class SlideCard:
    """Content of the page. Texts are plain."""

    model_id: str
    network: str
    unit: str
    """"patient" or "slide"."""
    targets: Sequence[tuple[str, str]]
    """Name of each target, and what is predicted of it."""
    encoder: str
    encoder_licence: str
    encoder_citation: str
    tile: str
    units_by_split: Mapping[str, int]
    metrics: Mapping[str, float]
    trained: Sequence[str]
    """Origin of the model, in sentences."""


def slide_card(content: SlideCard) -> str:
    """The page, as Markdown."""
    return "\n".join(_lines(content)) + "\n"


def _lines(content: SlideCard) -> Iterator[str]:
    yield from (f"# {plain(content.model_id)}", "", f"**{RESEARCH_USE}**", "", "## What it is", "")
    yield f"- Network: {plain(content.network)}."
    yield f"- Input: all tiles of a {content.unit} as features of {plain(content.encoder)}, from {plain(content.tile)}."
    yield f"- Licence of the encoder: {plain(content.encoder_licence)}. Citation: {plain(content.encoder_citation)}"
    yield from (f"- Output: {plain(name)}: {plain(what)}." for name, what in content.targets)
    yield "- Attention: the share that each tile has in a result. It is no outline of disease."
    yield from ("", "## Intended use", "", INTENDED_USE, "", NOT_INTENDED, "", "## Data", "")
    yield from table_lines([("", content.unit + "s"), *((name, str(n)) for name, n in content.units_by_split.items())])
    yield from ("", "## Metrics", "")
    rows = [(plain(name), f"{value:.4f}") for name, value in content.metrics.items()]
    yield from table_lines([(f"on the validation {content.unit}s", "value"), *rows])
    yield from ("", "## Limits", "")
    yield "- Scanners, stains, organs and laboratories other than those it was trained on were not tested."
    yield (
        "- The epoch was chosen on the validation, so its figures are optimistic: `gemslide evaluate` on the test fold "
        "tells more."
    )
    yield f"- It answers for every {content.unit}, even one whose tissue it was never trained on."
    if (few := content.units_by_split.get("train", 0)) < 100:
        yield f"- It was trained on {counted(few, content.unit)}: expect much to depend on which ones."
    yield from ("", "## How it was made", "", *(f"- {line}" for line in content.trained))
