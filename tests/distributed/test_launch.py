"""Ranks start with the modules they need: one that the server failed to import would slow down every test."""

import sys

from tests.distributed.launch import PRELOADED, run_ranks


def not_imported(ranks):
    return [name for name in PRELOADED if name not in sys.modules]


def test_a_rank_starts_with_everything_imported():
    assert run_ranks(2, not_imported) == [[], []]
