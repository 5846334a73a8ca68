"""Where a project's ledger is, opened by whoever works on its studies, or only looks; and who that is, for the log."""

from __future__ import annotations

import getpass
import os

from pipeline.config import load_settings
from pipeline.project import Project
from pipeline.study.database import Database, NoLedgerError
from pipeline.study.ledger import Ledger
from pipeline.study.order import LEDGER_VARIABLE

LEDGER_FILE = "gemslide.db"


def open_ledger(project: Project) -> Ledger:
    """The ledger of a project's studies; made where there is none.

    Raises:
        BadRecipeError: no URL of a database, or SQLite on a network file system. UnreadableError: it does not answer.
        DamagedStoreError: a ledger of a later version.
    """
    return Ledger(Database(ledger_url(project)))


def find_ledger(project: Project, *, answer_s: float | None = None) -> Ledger | None:
    """The ledger of a project's studies, for who only looks: None where there is none, and none is made.

    Args:
        answer_s: how long a database server may take for one answer.

    Raises: as `open_ledger`.
    """
    try:
        return Ledger(Database(ledger_url(project), make=False, answer_s=answer_s))
    except NoLedgerError:
        return None


def ledger_url(project: Project) -> str:
    """Where the ledger of a project's studies is, or would be. Raises BadRecipeError: settings that cannot be read."""
    said = os.environ.get(LEDGER_VARIABLE) or load_settings(project.settings_path).study.ledger
    return said or f"sqlite:///{os.path.abspath(project.root / LEDGER_FILE)}"


def actor_here() -> str:
    """Who the log names: the person that the system knows."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user number without a name, as containers have
        return f"user {os.getuid()}"
