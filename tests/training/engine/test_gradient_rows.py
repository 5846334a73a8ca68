"""Gradients are stored in separate rows, whatever autograd does and whatever their layout or type."""

import torch

from training.engine.sums.gradient_rows import GradientRows, checksum

WEIGHTS = [
    torch.empty(2, 3),
    torch.empty(4, dtype=torch.float64),
    torch.empty(2, 3, 2, 2).to(memory_format=torch.channels_last),
    torch.empty(()),
    torch.empty(5, dtype=torch.float64),
]


def numbers(weights):
    count = iter(range(1000))
    return [
        torch.tensor([next(count) for _ in range(weight.numel())], dtype=weight.dtype).reshape(weight.shape)
        for weight in weights
    ]


def test_what_was_joined_comes_back_whole_and_by_share():
    rows, gradients = GradientRows(WEIGHTS), numbers(WEIGHTS)

    joined = rows.join(gradients)

    for share in (range(5), range(2), range(2, 5), range(4, 5), range(3, 3)):
        parts = rows.cut(joined, share)
        parts_back = rows.split(parts, share)
        assert all(torch.equal(a, b) for a, b in zip(parts_back, gradients[share.start : share.stop], strict=True))
        assert [tensor.dtype for tensor in parts_back] == [WEIGHTS[i].dtype for i in share]
        like = rows.like(share)
        assert [(one.shape, one.dtype) for one in like] == [(one.shape, one.dtype) for one in parts]


def test_a_layout_in_memory_changes_no_number():
    rows, gradients = GradientRows(WEIGHTS), numbers(WEIGHTS)
    other = [gradients[i].to(memory_format=torch.channels_last) if i == 2 else gradients[i] for i in range(5)]

    assert all(torch.equal(a, b) for a, b in zip(rows.join(gradients), rows.join(other), strict=True))


def test_gradients_that_share_memory_get_memory_of_their_own():
    shared = torch.ones(3)
    expanded = torch.ones(()).expand(3)

    (row,) = GradientRows([torch.empty(3)] * 3).join([shared, shared, expanded])
    row += torch.arange(9.0)

    assert row.tolist() == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]
    assert shared.tolist() == [1.0] * 3


def test_a_checksum_is_finite_exactly_where_all_numbers_are():
    large = torch.full((1000,), 60000.0, dtype=torch.float16)
    fine = [torch.full((1000,), 1e30), large, torch.tensor([1e300], dtype=torch.float64)]
    assert checksum(fine).isfinite()

    for bad in (float("inf"), float("-inf"), float("nan")):
        for index, row in enumerate(fine):
            hurt = [one.clone() for one in fine]
            hurt[index][len(row) // 2] = bad
            assert not checksum(hurt).isfinite()
    opposite = torch.tensor([float("inf"), float("-inf")])
    assert not checksum([opposite]).isfinite()
