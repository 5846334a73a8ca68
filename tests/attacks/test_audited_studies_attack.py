"""Short run: `make attack` tampers with a study a thousand times; every listed kind has its own test
(tests/pipeline/study/test_audited_files.py, test_covered_columns.py)."""

from __future__ import annotations

import pytest

from tests.attacks import audited_studies
from tests.small_trained_project import SmallProject


@pytest.mark.xdist_group("audited")
def test_tampering_with_a_study_is_found(small_project: SmallProject) -> None:
    result = audited_studies.attack(12, 3, small_project)

    assert result.findings == []
    assert result.attempts == 12
