"""A box's arithmetic equals that of the pixels it represents."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pipeline.box import Box

numbers, lengths = st.integers(-20, 20), st.integers(0, 20)
boxes = st.builds(Box, numbers, numbers, lengths, lengths)


def pixels(box):
    return {(x, y) for x in range(box.x_px, box.right_px) for y in range(box.y_px, box.bottom_px)}


@given(boxes, boxes)
def test_an_overlap_has_the_pixels_that_both_have(one, other):
    assert pixels(one.overlap(other)) == pixels(one) & pixels(other)
    assert one.overlap(other).is_empty == (not pixels(one) & pixels(other))


@given(boxes, st.integers(1, 7), st.integers(1, 7))
def test_cells_are_those_in_which_its_pixels_lie(box, width_px, height_px):
    rows, columns = box.cells((width_px, height_px))

    assert set(rows) == {y // height_px for _, y in pixels(box)}
    assert set(columns) == {x // width_px for x, _ in pixels(box)}
