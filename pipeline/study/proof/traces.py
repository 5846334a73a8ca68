"""The project's log verified even where all of it was deleted: what else the project has shows that there was one."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import func, select

from pipeline.errors import BadManifestError
from pipeline.ledger.chain import FIRST
from pipeline.ledger.guards import missing_guards
from pipeline.ledger.ledger import Ledger
from pipeline.ledger.rows import NOT_COVERED, PROJECT_LOG
from pipeline.ledger.tables import metadata
from pipeline.project import Project
from pipeline.study.proof.anchors import ANCHORS_DIR
from pipeline.study.proof.reports import REPORTS_DIR
from pipeline.study.proof.verify import Verified, verify_ledger
from training.foundation.errors import UnreadableError
from training.foundation.words.counts import counted


def verify_project_log(project: Project, ledger: Ledger) -> Verified:
    """Verify the project's log as `verify_ledger` does, and the database's guards of it.

    Raises:
        UnreadableError: nothing was ever logged.
    """
    try:
        verified = verify_ledger(ledger.database, PROJECT_LOG)
    except BadManifestError:
        traces = [*_in_tables(ledger), *_in_folders(project)]
        if not traces:
            raise UnreadableError("the log has no entries: no sign-ins and no slides viewed yet.") from None
        verified = Verified(0, 0, FIRST, tuple(f"the project's log was deleted: {trace}" for trace in traces))
    return verified.with_findings(*missing_guards(ledger.database))


def _in_tables(ledger: Ledger) -> Iterator[str]:
    """Rows that were never written without an entry in the project's log, or in that of a study."""
    with ledger.database.read() as connection:
        for table in metadata.sorted_tables:
            number = connection.scalar(select(func.count()).select_from(table)) or 0
            if number and table.name not in NOT_COVERED:
                yield f"the ledger has {counted(number, 'row')} in its table {table.name}"


def _in_folders(project: Project) -> Iterator[str]:
    for name in (REPORTS_DIR, ANCHORS_DIR):
        for folder in sorted(project.root.glob(f"studies/*/{name}")):
            yield f"there is {folder.relative_to(project.root)}"
