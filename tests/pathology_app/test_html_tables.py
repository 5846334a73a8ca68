"""HTML tables show their values as text, and nothing that is empty."""

from __future__ import annotations

import re

from pathology_app.html.tables import Column, Swatch, bar, beside, facts, table

HOSTILE = "<img src=x onerror=alert(1)>\" style='x' &amp; \u202e\n"


def cells(drawn: str) -> list[str]:
    return re.findall(r"<t[dh](?: [^>]*)?>(.*?)</t[dh]>", drawn)


def test_a_column_in_which_nothing_stands_is_left_out() -> None:
    columns = (Column("a"), Column("b", "number"), Column("c"))
    drawn = table(columns, [("x", None, 0), ("", None, 1)], foot=("sum", "", 1), label="t")
    assert cells(drawn) == ["a", "c", "x", "0", "", "1", "sum", "1"]


def test_a_table_without_rows_has_its_first_heading() -> None:
    assert cells(table((Column("a"), Column("b")), [], label="t")) == ["a"]


def test_a_long_hash_is_shown_by_its_beginning_and_whole_as_a_tooltip() -> None:
    drawn = table((Column("hash", "hash"),), [("ab" * 32,)], label="t")
    assert cells(drawn)[1] == "abababababab…"
    assert f'title="{"ab" * 32}"' in drawn


def test_a_bar_has_a_part_for_every_number_above_zero_and_says_them() -> None:
    drawn = bar({"done": 3, "failed": 1, "none": 0}, {"done": "green", "failed": "red", "none": "black"})
    assert 'aria-label="3 done, 1 failed"' in drawn
    assert re.findall(r"flex: ([\d.]+)", drawn) == ["0.750000", "0.250000"]
    assert "black" not in drawn
    assert "<span" not in bar({}, {})


def test_nothing_that_others_wrote_becomes_a_tag_or_an_attribute() -> None:
    drawn = beside(
        {
            HOSTILE: table(
                (Column(HOSTILE, "hash"),), [(HOSTILE,), (Swatch(HOSTILE, "red"),)], foot=(HOSTILE,), label=HOSTILE
            )
        }
    )
    drawn += facts({HOSTILE: HOSTILE}) + bar({HOSTILE: 1}, {HOSTILE: "red"})
    assert "<img" not in drawn
    assert "\u202e" not in drawn
    assert "\n" not in drawn
    tags = re.findall(r"<[^>]*>", drawn)
    assert all(tag.count('"') % 2 == 0 and "onerror=alert(1)>" not in tag for tag in tags)
    assert len(re.findall("&lt;img", drawn)) == 12
