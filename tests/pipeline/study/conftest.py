"""Ledgers on both databases."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.ledger.database import Database
from pipeline.ledger.ledger import Ledger, NewSlide
from tests.postgres import Postgres

STAGES = ("ingest", "qc", "infer a-00000000")


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """Server outside pytest's own folder, which any other pytest started by this user would close to the server."""
    with tempfile.TemporaryDirectory(prefix="gemslide-pg-", ignore_cleanup_errors=True) as folder:
        server = Postgres(Path(folder))
        yield server
        server.end()


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/gemslide.db"
    return request.getfixturevalue("postgres").new_database()


@pytest.fixture
def ledger(url: str) -> Iterator[Ledger]:
    database = Database(url)
    yield Ledger(database)
    database.close()


@pytest.fixture
def begun(ledger: Ledger) -> Ledger:
    """Ledger with a study "s" of four slides, one of which is excluded."""
    slides = [NewSlide("S-1", site="A"), NewSlide("S-2"), NewSlide("S-3", excluded="broken glass"), NewSlide("S-4")]
    ledger.begin("s", {"question": "?"}, "0" * 64, slides, STAGES, actor="ada")
    return ledger
