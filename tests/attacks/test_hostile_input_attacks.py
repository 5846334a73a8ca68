"""Short runs of attacks; `make attack` runs them in full."""

from __future__ import annotations

from tests.attacks import (
    damaged_projects,
    foreign_files,
    hostile_names,
    hostile_packages,
    hostile_tables,
    rival_writers,
)
from tests.small_trained_project import SmallProject


def test_two_writers_of_one_output_both_end_well() -> None:
    result = rival_writers.attack(15, 3)

    assert result.findings == []
    assert result.attempts == 15


def test_a_package_that_is_not_what_it_says_is_refused_and_explained() -> None:
    assert hostile_packages.attack(8, 3).findings == []


def test_a_table_or_prediction_that_cannot_be_is_refused_and_explained() -> None:
    assert hostile_tables.attack(40, 3).findings == []


def test_a_file_of_another_program_is_read_whole_or_refused() -> None:
    result = foreign_files.attack(300, 3)

    assert result.findings == []
    assert result.attempts == 300


def test_a_name_that_leads_out_of_the_project_is_refused() -> None:
    result = hostile_names.attack(20, 3)

    assert result.findings == []
    assert result.attempts > 1000


def test_damage_to_any_file_of_a_project_ends_a_verb_with_an_explanation(small_project_copy: SmallProject) -> None:
    result = damaged_projects.attack(10, 3, damaged_projects.prepare(small_project_copy))

    assert result.findings == []
    assert result.attempts == 10
