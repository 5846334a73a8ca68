"""Short run of an attack that `make attack` runs in full."""

from __future__ import annotations

from tests.attacks import wrong_slides


def test_the_slide_is_read_or_the_file_refused_wherever_labels_and_levels_stand() -> None:
    result = wrong_slides.attack(25, 3)

    assert result.findings == []
    assert result.attempts == 25
