"""Every column of every table is covered by the log, or is on a written list with the reason."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from pipeline.ledger import Ledger, metadata
from pipeline.ledger.database import Database
from pipeline.ledger.rows import NOT_COVERED, covered_columns
from tests.pipeline.study import whole_ledger as whole

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.prove)])
def filled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    """Filled ledger, made once; every test reverts its changes."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path_factory.mktemp('whole')}/gemslide.db"
    else:
        url = request.getfixturevalue("postgres").new_database()
    database = Database(url)
    ledger = Ledger(database)
    whole.fill(ledger)
    assert whole.findings(ledger) == []
    whole.open_to_tampering(ledger)
    yield ledger
    database.close()


def test_every_table_has_rows(filled: Ledger) -> None:
    empty = [table.name for table in metadata.sorted_tables if not whole.rows_of(filled, table)]
    assert empty == []


@pytest.mark.parametrize(("table", "name"), whole.all_columns(), ids=lambda value: getattr(value, "name", value))
def test_a_change_of_any_column_of_any_row_is_found_or_is_on_the_list(filled: Ledger, table, name) -> None:
    rows, chance = whole.rows_of(filled, table), random.Random(f"{table.name}.{name}")
    for row in chance.sample(rows, 1):
        value = whole.other(table, name, row[name], chance)
        whole.change(filled, table, row, {name: value})
        findings = whole.findings(filled)
        whole.put_back(filled, table, rows)
        assert bool(findings) == whole.is_covered(table, name), (row[name], value)


@pytest.mark.parametrize(("table", "name"), whole.all_columns(), ids=lambda value: getattr(value, "name", value))
def test_a_value_of_another_kind_in_any_column_is_a_finding_and_no_crash(filled: Ledger, table, name) -> None:
    if not filled.database.is_sqlite:
        pytest.skip("PostgreSQL enforces the kinds of its columns")
    rows, chance = whole.rows_of(filled, table), random.Random(f"{table.name}.{name}")
    row = chance.choice(rows)
    for value in whole.of_other_kinds(table, name):
        whole.set_raw(filled, table, row, name, value)
        try:
            findings = whole.findings(filled)
        finally:
            whole.put_back(filled, table, rows)
        if whole.is_covered(table, name):
            assert findings, value


COVERED = [table for table in metadata.sorted_tables if table.name not in NOT_COVERED]


@pytest.mark.parametrize("table", COVERED, ids=lambda table: table.name)
def test_a_row_that_is_deleted_forged_or_swapped_is_found(filled: Ledger, table) -> None:
    rows, chance = whole.rows_of(filled, table), random.Random(table.name)
    for row in chance.sample(rows, min(2, len(rows))):
        whole.remove(filled, table, row)
        assert whole.findings(filled), f"deleted: {row}"
        whole.put_back(filled, table, rows)
    for row in chance.sample(rows, min(2, len(rows))):
        key = chance.choice([column.name for column in table.primary_key])
        whole.add(filled, table, row | {key: whole.other(table, key, row[key], chance)})
        assert whole.findings(filled), f"forged: {row}, another {key}"
        whole.put_back(filled, table, rows)
    key_names = {column.name for column in table.primary_key}
    for one, two in [chance.sample(rows, 2) for _ in range(2 if len(rows) > 1 else 0)]:
        contents = [{name: row[name] for name in row if name not in key_names} for row in (one, two)]
        if contents[0] != contents[1]:
            whole.change(filled, table, one, contents[1])
            whole.change(filled, table, two, contents[0])
            assert whole.findings(filled), f"swapped: {one} and {two}"
            whole.put_back(filled, table, rows)
    assert whole.findings(filled) == []


def test_the_list_is_the_one_in_the_documentation() -> None:
    page = (ROOT / "docs/explanation/part11.md").read_text(encoding="utf-8")
    section = page.split("## Columns without an entry")[1]
    listed = dict(re.findall(r"^\| `([a-z_.]+)` \| (.+) \|$", section, re.MULTILINE))
    assert listed == dict(NOT_COVERED)
    names = {str(column) for table in metadata.sorted_tables for column in table.columns}
    assert {entry for entry in NOT_COVERED if "." in entry} <= names
    assert {entry for entry in NOT_COVERED if "." not in entry} <= set(metadata.tables)


def test_a_new_column_is_covered_without_anybody_thinking_of_it() -> None:
    for table in metadata.sorted_tables:
        left_out = {column.name for column in table.columns} - set(covered_columns(table))
        allowed = {name.split(".")[1] for name in NOT_COVERED if name.startswith(f"{table.name}.")}
        assert left_out <= allowed | {"audit_seq", "audit_hash"}
