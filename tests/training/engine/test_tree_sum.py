"""Gradients have the same bits however ranks share the micro-batches and in any order of merging their sums."""

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from training.engine.sums.tree_sum import TreeSum, nodes_of

COUNTS = st.integers(1, 40)


def terms(count):
    generator = torch.Generator().manual_seed(count)
    return list(torch.randn(count, 50, generator=generator).unbind())


def promised(count):
    """Expected sum, defined top-down: split at the largest power of two below the length."""

    def total(values):
        if len(values) == 1:
            return values[0]
        split = 1 << (len(values) - 1).bit_length() - 1
        return total(values[:split]) + total(values[split:])

    return total(terms(count))


def add_up(microbatches, values):
    total = TreeSum()
    for k in microbatches:
        total.add((k, 1), [values[k].clone()])  # sums are written into them
    return total


@st.composite
def partitions(draw):
    """Number of micro-batches, the ranges that ranks hold, and an order in which the ranges are merged."""
    count = draw(COUNTS)
    cuts = sorted(draw(st.sets(st.integers(0, count), max_size=6)))
    bounds = [0, *cuts, count]
    ranges = [range(start, stop) for start, stop in pairwise(bounds)]
    return count, draw(st.permutations(ranges))


@given(COUNTS)
def test_sums_in_the_promised_tree(count):
    total = add_up(range(count), terms(count)).take_total()

    assert torch.equal(total[0], promised(count))


@given(partitions())
def test_any_ranges_merged_in_any_order_give_the_bits_of_one_process(partition):
    count, ranges = partition
    total = TreeSum()

    for microbatches in ranges:
        for node, gradients in add_up(microbatches, terms(count)).take_nodes():
            total.add(node, gradients)

    assert torch.equal(total.take_total()[0], promised(count))


@given(partitions(), st.data())
def test_ranges_may_meet_two_by_two_before_they_meet_the_owner(partition, data):
    """As in the binomial tree over replicas: merged ranges may be several nodes with a gap between them."""
    count, ranges = partition
    sums = [add_up(microbatches, terms(count)) for microbatches in ranges]
    while len(sums) > 1:
        given_away = sums.pop(data.draw(st.integers(0, len(sums) - 1)))
        taker = data.draw(st.sampled_from(sums))
        for node, gradients in given_away.take_nodes():
            taker.add(node, gradients)

    assert torch.equal(sums[0].take_total()[0], promised(count))


@given(COUNTS, st.data())
def test_the_order_within_a_range_does_not_matter(count, data):
    order = data.draw(st.permutations(range(count)))

    assert torch.equal(add_up(order, terms(count)).take_total()[0], promised(count))


@given(st.integers(0, 60), st.integers(0, 60))
def test_what_a_range_leaves_is_known_without_adding(start, length):
    microbatches = range(start, start + length)
    total = TreeSum()
    for k in microbatches:
        total.add((k, 1), [])

    nodes = nodes_of(microbatches)
    assert [node for node, _ in total.take_nodes()] == nodes
    assert sum(size for _, size in nodes) == length
    assert all(begin % size == 0 and size & (size - 1) == 0 for begin, size in nodes)


@given(st.integers(0, 100), st.integers(1, 100))
def test_a_range_never_holds_more_than_twice_the_logarithm_of_its_length(start, length):
    total = TreeSum()
    most = 0
    for k in range(start, start + length):
        total.add((k, 1), [])
        most = max(most, len(total))

    assert most <= 2 * math.log2(length) + 1


@given(st.integers(1, 8).map(lambda exponent: 1 << exponent))
def test_one_process_holds_a_set_per_bit_of_the_count(count):
    total = TreeSum()
    most = 0
    for k in range(count):
        total.add((k, 1), [])
        most = max(most, len(total))

    assert most <= math.log2(count) + 1
    assert len(total) == 1


def test_a_plain_running_sum_would_differ():
    values = terms(8)

    assert not torch.equal(sum(values[1:], values[0]), promised(8))


def test_a_tree_by_place_and_not_by_index_would_differ():
    """Replicas with odd numbers of micro-batches are equal because the tree is built on the global index."""
    values = terms(6)
    by_place = (values[0] + values[1] + values[2]) + (values[3] + values[4] + values[5])

    assert not torch.equal(by_place, promised(6))


def test_a_taken_total_is_gone():
    total = TreeSum()
    total.add((0, 1), [torch.ones(2)])
    total.take_total()

    assert total.take_total() == []
    assert len(total) == 0


def test_sets_of_different_length_are_refused():
    total = TreeSum()
    total.add((0, 1), [torch.ones(1)])

    with pytest.raises(ValueError, match="differ in length: 1 and 2"):
        total.add((1, 1), [torch.ones(1), torch.ones(1)])
