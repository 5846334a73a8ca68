"""`gemslide doctor --report`: a file about an installation and a slide that a user can send to others."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from pipeline.doctor import Finding
from pipeline.files import write_new_text
from pipeline.naming.sources import SourceNames
from pipeline.slides.structure.report import describe_structure
from pipeline.slides.structure.words import hide_words_of
from pipeline.units import RESEARCH_USE
from pipeline.verbs.cli_output import Reporter, report_errors
from pipeline.verbs.info import slide_facts
from training.foundation.errors import BadRecipeError, GemslideError, UnreadableError

ABOUT = (
    "Written by `gemslide doctor --report`. It holds no names, no text from the slide and no pixels: sizes, tags, "
    "markers and gemslide's own messages. Read it before you send it."
)
_WITH_A_PLACE = ("disk", "GPU")
"""Findings that name folders of this computer."""


def write_slide_report(findings: Sequence[Finding], report: Path | None, slide: Path | None) -> None:
    """Write the report; an error ends the command."""
    reporter = Reporter(as_json=False, sources=SourceNames(*([slide] if slide else [])))
    with report_errors(as_json=False, name="doctor", reporter=reporter):
        if report is None:
            raise BadRecipeError(f"--slide {slide}: needs --report FILE, which is to be written.")
        if report.exists() or report.is_symlink():
            raise BadRecipeError(f"{report}: already exists. A report never overwrites: choose another name.")
        facts = {"about": ABOUT, "use": RESEARCH_USE, "installation": _installation(findings)}
        if slide is not None:
            facts["slide"] = _of_slide(slide, reporter.sources)
        write_new_text(report, json.dumps(facts, indent=1, ensure_ascii=False) + "\n")
    typer.echo(f"written: {report}, without names, texts or pixels of a slide. Read it before you send it.", err=True)


def _installation(findings: Sequence[Finding]) -> dict[str, str]:
    shown = (finding for finding in findings if finding.name not in _WITH_A_PLACE)
    return {finding.name: finding.value if finding.is_good else f"missing: {finding.value}" for finding in shown}


def _of_slide(slide: Path, sources: SourceNames) -> dict[str, Any]:
    """Structure of the slide, and what gemslide reads in it, or why it does not."""
    if not slide.exists():
        raise UnreadableError(f"{slide}: there is no such file or folder.")
    facts = {"structure": describe_structure(slide)}
    try:
        facts["opened"] = slide_facts(slide, None)
    except GemslideError as error:
        facts["refused"] = {"code": error.code, "message": hide_words_of(slide, str(error))}
    cleaned = sources.removed_from(facts)
    assert isinstance(cleaned, dict)
    return cleaned
