"""Check that a study's reports and their references are unchanged: each against its hash in the log."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import select

from pipeline.files import sha256_of
from pipeline.ledger.database import Database
from pipeline.ledger.rows import REPORT_MADE
from pipeline.ledger.tables import audit
from pipeline.naming.models import check_tile_set
from pipeline.project import Project
from pipeline.study.proof.sign_off import OUTSIDE, SIGNATURES_SUFFIX
from training.foundation.errors import GemslideError
from training.foundation.reading import parse_json

REPORTS_DIR = "reports"


class _Made(NamedTuple):
    """Details of a log entry on a report."""

    where: str
    hashes: dict[str, str]
    tile_sets: dict[str, str]


def hashes_in(folder: Path) -> dict[str, str]:
    """SHA-256 of every file of a report, by its path in the folder; signatures are added later and left out.

    It is "" for a pipe, a link that leads nowhere or to a folder, and whatever else is no file.
    """
    return {path.relative_to(folder).as_posix(): sha256_of(path) if path.is_file() else "" for path in _files(folder)}


def tile_set_sha256(project: Project, name: str) -> str:
    """SHA-256 of a tile set's table. Raises EmptyTableError: there is no such tile set."""
    check_tile_set(project.tile_table_path(name))
    return sha256_of(project.tile_table_path(name))


def find_changed_reports(database: Database, study_id: str, project: Project, folder: Path) -> list[str]:
    """Files of reports that were changed, deleted or added since, and tile sets that no longer match the last report.

    Reports outside the project are not checked.

    Args:
        folder: the study's.
    """
    entries, root = list(_made(database, study_id)), project.root
    made = {root / each.where: each.hashes for each in entries if not each.where.startswith(OUTSIDE)}
    reports = folder / REPORTS_DIR
    there = {os.path.realpath(path): path.name for path in _entries(reports, "*")}
    findings = []
    for unknown in sorted(there.keys() - {os.path.realpath(path) for path in made}):
        findings.append(f"{REPORTS_DIR}/{there[unknown]}: no log entry records that this report was made")
    for path, hashes in made.items():
        findings += _changes(path, hashes, path.relative_to(root).as_posix())
    return [*findings, *(_changed_references(project, entries[-1].tile_sets) if entries else ())]


def _changed_references(project: Project, tile_sets: dict[str, str]) -> Iterator[str]:
    for name, then in tile_sets.items():
        try:
            now = tile_set_sha256(project, name)
        except GemslideError as error:
            yield f"tile set {name}, whose labels are the last report's reference: {error}"
        else:
            if now != then:
                yield f"tile set {name}: its labels are the last report's reference, and it has since been replaced"


def _changes(folder: Path, made: dict[str, str], where: str) -> Iterator[str]:
    if not folder.is_dir():
        yield f"{where}: this report is gone"
        return
    now = hashes_in(folder)
    for name in sorted(made.keys() | now.keys()):
        if name not in now:
            yield f"{where}/{name}: is gone"
        elif name not in made:
            yield f"{where}/{name}: is not a file of this report"
        elif now[name] != made[name]:
            yield f"{where}/{name}: was changed after the report was made"


def _files(folder: Path) -> list[Path]:
    """Everything in a report's folder but folders and signatures, which `find_false_signatures` checks."""
    there = (path for path in _entries(folder, "**/*") if path.is_symlink() or not path.is_dir())
    return sorted(path for path in there if path.name[0] == "." or not path.name.endswith(SIGNATURES_SUFFIX))


def _entries(folder: Path, pattern: str) -> Iterator[Path]:
    """Everything in a folder but what a writer has not finished (`training.foundation.publish`)."""
    return (path for path in folder.glob(pattern) if not (path.name[0] == "." and path.name.endswith(".partial")))


def _made(database: Database, study_id: str) -> Iterator[_Made]:
    chosen = select(audit.c.details).where(audit.c.study_id == study_id, audit.c.action == REPORT_MADE)
    with database.read() as connection:
        texts = connection.scalars(chosen.order_by(audit.c.seq)).all()
    for text in texts:
        try:
            raw: dict[str, Any] = parse_json(text or "")
            yield _Made(str(raw["folder"]), _texts(raw["sha256"]), _texts(raw["tile_sets"]))
        except (ValueError, LookupError, TypeError, AttributeError):
            continue  # a changed entry, which its hash shows


def _texts(raw: dict[object, object]) -> dict[str, str]:
    return {str(name): str(value) for name, value in raw.items()}
