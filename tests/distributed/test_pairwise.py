"""The short set of equality tests leaves out no legal pair of choices."""

from itertools import combinations

import pytest

from tests.distributed.cases import FACTORS, LAYOUTS, SPLIT, all_cases, chosen_combinations, is_legal, pairwise_cases
from tests.distributed.networks import odd_norms_network, tuple_network
from tests.distributed.pairwise import cover, legal_pairs
from training.engine.strategies import STRATEGIES


def test_every_legal_pair_of_choices_is_in_about_a_hundred_cases():
    chosen = chosen_combinations()
    shown = {frozenset(pair) for combination in chosen for pair in combinations(combination.items(), 2)}

    assert {frozenset(pair) for pair in legal_pairs(FACTORS, is_legal)} == shown
    assert len(set(pairwise_cases())) == len(chosen)
    assert 72 <= len(chosen) <= 110  # eight layouts times nine kinds of batches are the minimum


def test_two_choices_that_can_be_shown_on_a_split_network_are_shown_on_one():
    split = [combination for combination in chosen_combinations() if combination["layout"][0] > 1]
    shown = {frozenset(pair) for combination in split for pair in combinations(combination.items(), 2)}

    assert {frozenset(pair) for pair in legal_pairs(SPLIT, is_legal)} <= shown


def test_the_legal_pairs_are_all_but_those_that_the_engine_or_the_network_forbids():
    legal = legal_pairs(FACTORS, is_legal)
    all_pairs = legal_pairs(FACTORS, lambda _: True)

    forbidden = {tuple(value for _, value in pair) for pair in set(all_pairs) - set(legal)}
    assert forbidden == {
        *(((s, d), "single") for s, d in LAYOUTS if s > 1),
        *(((s, d), "chimera") for s, d in LAYOUTS if s % 2),
        *((layout, tuple_network) for layout in ((4, 1), (4, 2))),
        *((tuple_network, block) for block in (3, 4)),
        (odd_norms_network, 4),
    }
    assert {value for pair in legal for value in pair} == {
        (name, v) for name, values in FACTORS.items() for v in values
    }


def test_the_same_set_is_chosen_each_time():
    assert pairwise_cases() == pairwise_cases()


def test_all_cases_are_more_than_a_thousand_and_miss_no_strategy():
    assert len(all_cases()) >= 1312
    assert {case.strategy for case in all_cases()} == set(STRATEGIES)


def test_a_pair_that_fits_nothing_else_is_told():
    factors = {"a": (1, 2), "b": (1, 2), "c": (1, 2)}

    with pytest.raises(ValueError, match=r"no c fits \{'a': 1, 'b': 2\}"):
        cover(factors, lambda chosen: "c" not in chosen or chosen.get("a") == chosen.get("b") == 1 or len(chosen) < 3)
