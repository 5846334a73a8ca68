"""Class names that every table, page and terminal can hold."""

from __future__ import annotations

import pytest

from training.foundation.words.class_names import check_class_name, check_printable


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


INVISIBLE = (
    0x00AD, 0x034F, 0x061C, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2065, 0x2800, 0x3164, 0xFEFF, 0xFFA0, 0x1D159, 0xE0FFF,
    *range(0x180B, 0x1810), *range(0x200B, 0x2010), *range(0xFE00, 0xFE10), *range(0xFFF0, 0xFFF9),
    *range(0xE0000, 0xE1000, 0x155),
)  # fmt: skip


@pytest.mark.parametrize("code", INVISIBLE, ids="U+{:04X}".format)
def test_a_character_that_shows_nothing_is_refused_wherever_it_stands(code):
    for text in (f"P{chr(code)}1", f"{chr(code)}P1", f"P1{chr(code)}"):
        with pytest.raises(ValueError, match=rf"U\+{code:04X}, which cannot be printed"):
            check_printable(text)


@pytest.mark.parametrize("text", ["नमस्ते", "ភាសាខ្មែរ", "한국어", "⠁", "e\u0301", "ａ", "𝄞", "☺", "ﬁ"])
def test_a_character_that_shows_something_is_kept(text):
    check_printable(text)
