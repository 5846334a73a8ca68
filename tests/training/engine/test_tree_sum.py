import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from training.engine.replica_sync import pack, packed_bytes, unpack
from training.engine.tree_sum import TreeSum


def tree_sum(terms):
    """The promise, written the other way round: split at the largest power of two below the length."""
    if len(terms) == 1:
        return terms[0]
    split = 1 << (len(terms) - 1).bit_length() - 1
    return tree_sum(terms[:split]) + tree_sum(terms[split:])


def add_up(terms):
    total = TreeSum()
    for term in terms:
        total.add([term])
    return total.take_total()[0]


def random_terms(count):
    generator = torch.Generator().manual_seed(count)
    return list(torch.randn(count, 50, generator=generator).unbind())


@given(st.integers(1, 40))
def test_sums_in_the_promised_tree(count):
    terms = random_terms(count)

    assert torch.equal(add_up(terms), tree_sum(terms))


@given(st.integers(0, 5))
def test_two_halves_added_equal_the_whole_for_powers_of_two(exponent):
    terms = random_terms(2 * 2**exponent)
    half = len(terms) // 2

    assert torch.equal(add_up(terms[:half]) + add_up(terms[half:]), add_up(terms))


def test_a_plain_running_sum_would_differ():
    terms = random_terms(8)

    assert not torch.equal(sum(terms[1:], terms[0]), add_up(terms))


@given(st.integers(1, 40))
def test_holds_few_sets(count):
    total = TreeSum()
    most = 0
    for term in random_terms(count):
        total.add([term])
        most = max(most, len(total))

    assert most <= math.log2(count) + 1


def test_a_taken_total_is_gone():
    total = TreeSum()
    total.add([torch.ones(2)])
    total.take_total()

    assert total.take_total() == []


def test_gradients_that_share_memory_are_not_added_twice():
    total = TreeSum()
    shared = torch.ones(3)
    total.add([shared, shared])
    total.add([torch.ones(3), torch.zeros(3)])

    assert [tensor.tolist() for tensor in total.take_total()] == [[2.0] * 3, [1.0] * 3]
    assert shared.tolist() == [1.0] * 3


def test_sets_of_different_length_are_refused():
    total = TreeSum()
    total.add([torch.ones(1)])

    with pytest.raises(ValueError, match="differ in length: 1 and 2"):
        total.add([torch.ones(1), torch.ones(1)])


def test_packed_tensors_come_back_whatever_their_type_and_layout():
    tensors = [
        torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.tensor(7),
        torch.randn(3).bfloat16(),
        torch.empty(0, 4),
        torch.tensor([True, False, True]),
    ]

    packed = pack(tensors)

    assert packed.numel() == packed_bytes(tensors)
    for tensor, back in zip(tensors, unpack(packed, tensors), strict=True):
        assert torch.equal(tensor, back)
        assert tensor.dtype == back.dtype


def test_nothing_packs_to_nothing():
    assert pack([]).numel() == packed_bytes([]) == 0
    assert unpack(pack([]), []) == []
