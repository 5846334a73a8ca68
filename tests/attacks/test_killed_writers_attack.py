"""A few kills (`make attack` does 280), and a control that must be detected."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.attacks import killed_writers


def test_a_killed_writer_leaves_the_old_output_or_the_new_one_and_nothing_else() -> None:
    result = killed_writers.attack(24, 5)

    assert result.findings == []
    assert result.attempts == 24


def _removes_before_it_renames(project: Path, number: int) -> None:
    final = project / "slides/s.ome.zarr/predictions/m-1"
    fresh = final.with_name("fresh")
    shutil.rmtree(fresh, ignore_errors=True)
    for index in range(killed_writers.NUM_FILES):
        (fresh / f"{index}/c").mkdir(parents=True)
        (fresh / f"{index}/c/0").write_text(str(number))
    (fresh / "zarr.json").write_text(f'{{"number": {number}}}')
    shutil.rmtree(final, ignore_errors=True)
    fresh.rename(final)


def test_the_attack_finds_a_writer_that_removes_before_it_renames() -> None:
    seeds = range(5, 13)

    assert any(killed_writers.attack(5, seed, [_removes_before_it_renames]).findings for seed in seeds)
