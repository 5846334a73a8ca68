"""Check that a study's reports and their references are unchanged: each against its hash in the log."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from pipeline.files import sha256_of
from pipeline.ledger.database import Database
from pipeline.naming.models import check_tile_set
from pipeline.project import Project
from pipeline.study.proof.made import made_reports
from pipeline.study.proof.sign_off import OUTSIDE, SIGNATURES_SUFFIX
from training.foundation.errors import GemslideError
from training.foundation.locks import try_lock

REPORTS_DIR = "reports"


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
    with database.read() as connection:
        entries, root = list(made_reports(connection, study_id)), project.root
    made = {root / each.where: each.hashes for each in entries if not each.where.startswith(OUTSIDE)}
    reports = folder / REPORTS_DIR
    there = {_where(path): path.name for path in _entries(reports, "*")}
    findings = []
    for unknown in sorted(there.keys() - {_where(path) for path in made}):
        name = there[unknown]
        what = _UNFINISHED if _is_temporary(name) else "no log entry records that this report was made"
        findings.append(f"{REPORTS_DIR}/{name}: {what}")
    for path, hashes in made.items():
        findings += _changes(path, hashes, path.relative_to(root).as_posix())
    return [*findings, *(_changed_references(project, entries[-1].tile_sets) if entries else ())]


def _where(path: Path) -> str:
    """Where a report lies, whatever links lead to its folder; a link to a report is another place than the report."""
    return os.path.join(os.path.realpath(path.parent), path.name)


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
            what = _UNFINISHED if _is_temporary(name.rpartition("/")[2]) else "is not a file of this report"
            yield f"{where}/{name}: {what}"
        elif now[name] != made[name]:
            yield f"{where}/{name}: was changed after the report was made"


def _files(folder: Path) -> list[Path]:
    """Everything in a report's folder but folders and signatures, which `find_false_signatures` checks."""
    there = (path for path in _entries(folder, "**/*") if path.is_symlink() or not path.is_dir())
    return sorted(path for path in there if path.name[0] == "." or not path.name.endswith(SIGNATURES_SUFFIX))


def _entries(folder: Path, pattern: str) -> Iterator[Path]:
    """Everything in a folder but what a writer is writing at this moment (`training.foundation.publish`)."""
    return (path for path in folder.glob(pattern) if not (_is_temporary(path.name) and _is_held(path)))


def _is_temporary(name: str) -> bool:
    return name.startswith(".") and name.endswith(".partial")


def _is_held(path: Path) -> bool:
    """Whether a writer that is still alive holds the lock on its temporary."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:  # a link, or it is gone by now
        return not os.path.lexists(path)
    try:
        return not try_lock(descriptor)
    finally:
        os.close(descriptor)


_UNFINISHED = "a run that did not end left this behind; delete it, or restore what should be in its place"
