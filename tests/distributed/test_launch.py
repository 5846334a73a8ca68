"""Ranks start with what they need: a module that the server could not import would only make every test slower."""

import sys

from tests.distributed.launch import PRELOADED, run_ranks


def not_imported(ranks):
    return [name for name in PRELOADED if name not in sys.modules]


def test_a_rank_starts_with_everything_imported():
    assert run_ranks(2, not_imported) == [[], []]
