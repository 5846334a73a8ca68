"""Opening of a project's ledger, to work on its studies or only to read; and the user's name for the log."""

from __future__ import annotations

import getpass
import os

from pipeline.ledger.database import Database, NoLedgerError
from pipeline.ledger.errors import LedgerFullError as LedgerFullError
from pipeline.ledger.ledger import Ledger
from pipeline.project import Project
from pipeline.settings.config import load_settings
from pipeline.settings.site import ledger_elsewhere
from training.foundation.words.names import comparable

LEDGER_FILE = "gemslide.db"
_BESIDE = ("-wal", "-shm", "-journal")
"""Files that SQLite keeps beside it."""


def open_ledger(project: Project) -> Ledger:
    """The ledger of a project's studies; created if there is none.

    Raises:
        BadRecipeError: not a database URL, or SQLite on a network file system. UnreadableError: it does not answer.
        DamagedStoreError: a ledger from a later version.
    """
    return Ledger(Database(ledger_url(project)))


def find_ledger(project: Project, *, answer_s: float | None = None) -> Ledger | None:
    """The ledger of a project's studies, for callers that only read: None if there is none, and none is created.

    Args:
        answer_s: how long a database server may take to answer a query.

    Raises: as `open_ledger`.
    """
    try:
        return Ledger(Database(ledger_url(project), make=False, answer_s=answer_s))
    except NoLedgerError:
        return None


def ledger_url(project: Project) -> str:
    """URL of the ledger of a project's studies, created or not: in the project unless the installation says otherwise.

    Raises:
        BadRecipeError: settings that cannot be read, or name a ledger.
        OutsideFoldersError: a link leads to another file.
    """
    load_settings(project.settings_path)
    elsewhere = ledger_elsewhere(project.root)
    if elsewhere:
        return elsewhere
    for ending in ("", *_BESIDE):
        project.inside(project.root / f"{LEDGER_FILE}{ending}")
    return f"sqlite:///{os.path.abspath(project.root / LEDGER_FILE)}"


def actor_here() -> str:
    """Name for the log: that of the current system user."""
    try:
        return comparable(getpass.getuser())
    except (KeyError, OSError):  # a user id without a name, as in containers
        return f"user {os.getuid()}"
