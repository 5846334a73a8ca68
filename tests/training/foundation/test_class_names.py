"""Class names that every table, page and terminal can hold."""

from __future__ import annotations

import pytest

from training.foundation.words.class_names import check_class_name


@pytest.mark.parametrize(
    "name", ["Tumor", "Tumor: Positive", "HER2 (3+)", "Ösophagus", "腫瘍", "a" * 100, "#ff0000", "*"]
)
def test_a_name_people_use_is_kept(name):
    assert check_class_name(name) == name


@pytest.mark.parametrize(
    "name", ["", "a" * 101, " a", "a\t", "a\nb", "\x1b[31m", "\ud800", "a\u202eb", "a\0", "\ufeffa"]
)
def test_a_name_that_some_file_cannot_hold_is_refused(name):
    with pytest.raises(ValueError, match=r"class name|cannot be printed") as raised:
        check_class_name(name)

    assert str(raised.value).isprintable()
