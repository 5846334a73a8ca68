"""The report as files: one HTML page, the same as a PDF, every table as CSV; and an entry in the log."""

from __future__ import annotations

import base64
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from markupsafe import Markup, escape

from pipeline.errors import BadManifestError
from pipeline.files import new_folder
from pipeline.html_templates import templates_in
from pipeline.ledger.chain import Change, append
from pipeline.ledger.rows import REPORT_MADE
from pipeline.pdf import as_pdf
from pipeline.study.proof.reports import REPORTS_DIR, hashes_in
from pipeline.study.proof.sign_off import place_of
from pipeline.study.proof.verify import verify_ledger
from pipeline.study.report.compose import Section, sections_of
from pipeline.study.report.facts import Facts, gather
from pipeline.study.report.table import shown
from pipeline.study.work.study import Study
from pipeline.units import RESEARCH_USE
from training.foundation.words.counts import counted

HTML_FILE, PDF_FILE, TABLES_DIR = "report.html", "report.pdf", "tables"
SHOWN = 5
"""Findings shown in the report if the log does not verify; `gemslide study verify` lists all."""
KINDS_OF_TEXT = {"hash": r"[0-9a-f]{64}", "interval": r"\S{1,8} to \S{1,8}", "long": r"\S{24,}|.{60,}"}
"""Kinds of cells whose lines break differently."""


@dataclass(frozen=True)
class Report:
    """A written report."""

    folder: Path
    html: Path
    pdf: Path
    findings: tuple[str, ...]
    """Problems with the log; the report also states them."""


def write_report(study: Study, *, actor: str, out: Path | None = None) -> Report:
    """Write a study's report as of now. An earlier report is never overwritten.

    Args:
        out: folder to create; by default one in the study, named by the log's last entry.

    Raises:
        BadManifestError: `out` already exists. ProcessFailedError: the libraries that make a PDF are not installed.
        UnreadableError, BadRecipeError: an endpoint cannot be computed. DiskFullError: cannot be written.
    """
    verified = verify_ledger(study.ledger.database, study.study_id)
    facts = gather(study)
    folder = out or study.folder / REPORTS_DIR / f"{facts.head[0]:09d}"
    if folder.exists():
        raise BadManifestError(f"{folder}: already exists; a report is never overwritten. Choose another --out.")
    verdict = f"The log was verified: {counted(verified.entries, 'entry', 'entries')}, nothing is wrong."
    if verified.findings:
        verdict = f"THE LOG DOES NOT VERIFY: {'; '.join(verified.findings[:SHOWN])}."
    sections = _sections(facts, verdict, is_verified=not verified.findings)
    page = render(facts, sections, unverified=verified.findings[:SHOWN])
    with new_folder(folder) as unfinished:
        (unfinished / HTML_FILE).write_text(page, encoding="utf-8")
        (unfinished / PDF_FILE).write_bytes(as_pdf(page))
        (unfinished / TABLES_DIR).mkdir()
        for table in (table for section in sections for table in section.tables):
            (unfinished / TABLES_DIR / f"{table.name}.csv").write_text(table.as_csv(), encoding="utf-8")
    place = place_of(folder, study.project.root)
    details = {"folder": place, "sha256": hashes_in(folder), "tile_sets": dict(facts.tile_sets)}
    with study.ledger.database.write() as connection:
        append(connection, study.study_id, [Change(actor, REPORT_MADE, "report", details=details)])
    return Report(folder, folder / HTML_FILE, folder / PDF_FILE, verified.findings)


def _sections(facts: Facts, verdict: str, *, is_verified: bool) -> list[Section]:
    """The whole report; of changed rows from which none can be computed, only what is wrong with them."""
    try:
        return sections_of(facts, verified=verdict)
    except (LookupError, TypeError, ValueError):
        if is_verified:
            raise
        return [Section("No results", (verdict, "The report cannot be computed from rows that were changed."))]


def render(facts: Facts, sections: list[Section], *, unverified: Sequence[str] = ()) -> str:
    """Render the page.

    Args:
        unverified: problems with the log.
    """
    environment = templates_in(Path(__file__).parent)
    environment.filters["counted"] = counted
    environment.filters["shown"] = shown
    environment.filters["image"] = _image
    environment.filters["coded"] = _coded
    environment.tests |= {name: _like(pattern) for name, pattern in KINDS_OF_TEXT.items()}
    study, reading = facts.protocol.study, facts.protocol.reading
    return environment.get_template("report.html.j2").render(
        title=study.title or f"Study {facts.row.study_id}",
        question=study.question,
        study_id=facts.row.study_id,
        version=facts.row.version,
        protocol_sha256=facts.row.protocol_sha256,
        slides=len(facts.slides),
        pending=int((facts.slides["state"] == "pending").sum()),
        simulated=reading.note if reading else "",
        unverified=unverified,
        sections=sections,
        research_use=RESEARCH_USE,
        gemslide=version("gemslide"),
        utc=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
    )


def _like(pattern: str) -> Callable[[object], bool]:
    return lambda cell: isinstance(cell, str) and re.fullmatch(pattern, cell, re.DOTALL) is not None


def _image(svg: str) -> str:
    """A drawing as a separate image, so that identifiers in one do not clash with those in another."""
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"


def _coded(text: str) -> Markup:
    """Mark up the parts between backticks as code."""
    parts = (escape(part) for part in text.split("`"))
    return Markup("").join(Markup("<code>{}</code>").format(p) if n % 2 else p for n, p in enumerate(parts))
