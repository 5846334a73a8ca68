"""Counts agree with their nouns in number."""

from __future__ import annotations

import numpy as np
import pytest

from training.foundation.words.counts import counted


@pytest.mark.parametrize(
    ("number", "words", "said"),
    [
        (0, ("slide",), "0 slides"),
        (1, ("slide",), "1 slide"),
        (3, ("slide",), "3 slides"),
        (1_234, ("slide",), "1,234 slides"),
        (np.int64(1), ("tile",), "1 tile"),
        (np.int64(5_000), ("tile",), "5,000 tiles"),
        (1, ("class", "classes"), "1 class"),
        (2, ("class", "classes"), "2 classes"),
        (1, ("annotation was", "annotations were"), "1 annotation was"),
        (2, ("annotation was", "annotations were"), "2 annotations were"),
        (1.0, ("day",), "1 day"),
        (0.5, ("day",), "0.5 days"),
        (14.0, ("day",), "14 days"),
    ],
)
def test_one_thing_is_one_and_all_other_numbers_are_several(number, words, said):
    assert counted(number, *words) == said
