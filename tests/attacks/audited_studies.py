"""A study falsified by somebody with write access to the database and the files.

    python -m tests.attacks.audited_studies --times 600 --seed 1

Rows of every table are changed, deleted, forged and exchanged; outputs, reports and signatures are edited, replaced,
copied from elsewhere, deleted; the whole log is rewritten. Promised: `study verify` or `log verify` finds each.
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

from pipeline.ledger.database import Database
from pipeline.ledger.ledger import Ledger
from tests.attacks.attack import Result, main
from tests.attacks.audited_project import OUTPUTS, REPORTS, SIGNATURES, Audited, make_audited
from tests.pipeline.study import whole_ledger as whole
from tests.small_trained_project import SmallProject, make_small_project

OF_ROWS = ("changed", "changed", "changed", "deleted", "forged", "exchanged")


def attack(times: int, seed: int, small_project: SmallProject | None = None) -> Result:
    """Tamper with files in every listed way, then with rows, up to `times` attempts.

    Args:
        small_project: a project whose model is used; made if not given.
    """
    result, chance = Result("audited studies"), random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        audited = make_audited(home / "audited", small_project or make_small_project(home / "small_project"))
        listed = [
            *((Audited.outputs_changed, what, change) for what, change in OUTPUTS.items()),
            *((Audited.reports_changed, what, change) for what, change in REPORTS.items()),
            *((Audited.signatures_changed, what, change) for what, change in SIGNATURES.items()),
        ]
        chance.shuffle(listed)
        for number, (changed, what, tamper) in enumerate(listed[: times // 2]):
            result.attempts += 1
            copy = audited.copy(home / f"copy-{number}")
            tamper(copy)
            result.check(bool(changed(copy)), f"{what}: is not found")
        with Ledger(Database(f"sqlite:///{home}/gemslide.db")) as ledger:
            whole.fill(ledger)
            result.check(whole.findings(ledger) == [], f"untouched: {whole.findings(ledger)}")
            whole.open_to_tampering(ledger)
            while result.attempts < times:
                result.attempts += 1
                _tamper_with_rows(result, ledger, chance)
    return result


def _tamper_with_rows(result: Result, ledger: Ledger, chance: random.Random) -> None:
    table, name = chance.choice([candidate for candidate in whole.all_columns() if whole.is_covered(*candidate)])
    rows = whole.rows_of(ledger, table)
    row, how = chance.choice(rows), chance.choice(OF_ROWS)
    key = [column.name for column in table.primary_key]
    if how == "changed":
        whole.change(ledger, table, row, {name: whole.other(table, name, row[name], chance)})
    elif how == "deleted":
        whole.remove(ledger, table, row)
    elif how == "forged":
        of_key = chance.choice(key)
        whole.add(ledger, table, row | {of_key: whole.other(table, of_key, row[of_key], chance)})
    else:
        other = chance.choice(rows)
        contents = [{name: values[name] for name in values if name not in key} for values in (row, other)]
        if contents[0] != contents[1]:
            whole.change(ledger, table, row, contents[1])
            whole.change(ledger, table, other, contents[0])
    if rows != whole.rows_of(ledger, table):
        result.check(bool(whole.findings(ledger)), f"{table.name}.{name} of {row}: {how}, and not found")
        whole.put_back(ledger, table, rows)


if __name__ == "__main__":
    main(attack, times=600)
