"""A receiver lays a boundary out in memory exactly as the sender had it."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from training.engine.layout import HEADER_LENGTH, BoundaryLayout, lay_out, pack, packed_bytes, unpack

TYPES = (
    torch.float32,
    torch.bfloat16,
    torch.float16,
    torch.float64,
    torch.uint8,
    torch.int64,
    torch.int32,
    torch.bool,
)


def numbers(*shape, dtype=torch.float32):
    generator = torch.Generator().manual_seed(sum(shape))
    values = torch.randn(*shape, generator=generator) if shape else torch.tensor(2.5)
    return values.mul(9).to(dtype)


def over_the_wire(value):
    """Value rebuilt by the receiver from a header and rows of bytes alone."""
    layout, rows = lay_out(value)
    assert len(layout.header()) == HEADER_LENGTH
    layout = BoundaryLayout.from_header(layout.header())
    copies = [row.clone() for row in rows]
    assert [len(row) for row in copies] == [tensor.num_bytes for tensor in layout.tensors]
    arrived = [tensor.arrange(row) for tensor, row in zip(layout.tensors, copies, strict=True)]
    return tuple(arrived) if layout.is_tuple else arrived[0]


@st.composite
def views(draw):
    """Tensors as networks make them: permuted, sliced with steps and offsets, expanded, of any type."""
    tensor = numbers(*draw(st.lists(st.integers(1, 5), max_size=4)), dtype=draw(st.sampled_from(TYPES)))
    for _ in range(draw(st.integers(0, 4)) if tensor.ndim else 0):
        dim = draw(st.integers(0, tensor.ndim - 1))
        size = tensor.shape[dim]
        match draw(st.sampled_from(["permute", "slice", "step", "expand", "select"])):
            case "permute":
                tensor = tensor.transpose(dim, draw(st.integers(0, tensor.ndim - 1)))
            case "slice":
                start = draw(st.integers(0, size))
                tensor = tensor.narrow(dim, start, draw(st.integers(0, size - start)))
            case "step":
                tensor = tensor[(slice(None),) * dim + (slice(None, None, 2),)]
            case "expand" if size == 1:
                tensor = tensor.expand([4 if d == dim else -1 for d in range(tensor.ndim)])
            case "select" if tensor.ndim > 1 and size:
                tensor = tensor.select(dim, size - 1)
            case _:
                pass
    return tensor


@given(views())
def test_any_view_arrives_with_its_values_and_strides(tensor):
    arrived = over_the_wire(tensor)

    assert arrived.shape == tensor.shape
    assert arrived.dtype == tensor.dtype
    assert torch.equal(arrived, tensor)
    if tensor.numel():
        pairs = zip(tensor.shape, tensor.stride(), arrived.stride(), strict=True)
        assert all(mine == theirs for size, mine, theirs in pairs if size > 1)


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_the_memory_format_stays(memory_format):
    tensor = numbers(2, 3, 4, 5).contiguous(memory_format=memory_format)

    assert over_the_wire(tensor).is_contiguous(memory_format=memory_format)
    assert over_the_wire(tensor).stride() == tensor.stride()


def test_a_dense_tensor_is_sent_without_a_copy():
    tensor = numbers(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    _, (row,) = lay_out(tensor)

    assert row.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr()


def test_an_expanded_tensor_is_sent_once():
    layout, (row,) = lay_out(numbers(3, 1).expand(3, 1000))

    assert len(row) == layout.tensors[0].num_bytes == 3 * 4
    assert over_the_wire(numbers(3, 1).expand(3, 1000)).stride() == (1, 0)


def test_a_part_of_a_tensor_is_sent_without_the_rest():
    tensor = numbers(4, 50, 60)

    assert lay_out(tensor[1])[0].tensors[0].num_bytes == 4 * 50 * 60
    assert lay_out(tensor[..., ::2])[0].tensors[0].num_bytes == 4 * 4 * 50 * 30


def test_windows_that_overlap_are_sent_apart():
    windows = numbers(10).unfold(0, 4, 1)

    assert torch.equal(over_the_wire(windows), windows)


def test_a_tuple_stays_a_tuple_even_of_one():
    pair = over_the_wire((numbers(2, 3), torch.arange(4)))
    single = over_the_wire((numbers(2, 3),))

    assert isinstance(pair, tuple)
    assert [tensor.dtype for tensor in pair] == [torch.float32, torch.int64]
    assert isinstance(single, tuple)
    assert isinstance(over_the_wire(numbers(2, 3)), torch.Tensor)
    assert over_the_wire(()) == ()


def test_what_needs_a_gradient_arrives_as_a_leaf_that_needs_one():
    weight = torch.ones(2, requires_grad=True)

    needing, plain = over_the_wire((weight * 2, torch.ones(2)))
    gapped = over_the_wire((torch.ones(2, 4, requires_grad=True) * 2)[:, ::2])

    assert (needing.requires_grad, needing.is_leaf, plain.requires_grad) == (True, True, False)
    assert (gapped.requires_grad, gapped.is_leaf, gapped.stride()) == (True, True, (4, 2))


def test_tensors_without_elements_or_dimensions_arrive():
    empty, scalar = over_the_wire((torch.empty(0, 3), torch.tensor(2.5)))

    assert (empty.shape, scalar.item()) == ((0, 3), 2.5)


def test_a_type_that_cannot_be_sent_says_which_can():
    layout, _ = lay_out(torch.ones(2, dtype=torch.complex64))

    with pytest.raises(ValueError, match=r"torch.complex64 cannot be sent between stages; use one of torch.float32,"):
        layout.header()


def test_too_many_tensors_say_what_to_do():
    layout, _ = lay_out(tuple(torch.ones(2, 3, 4) for _ in range(20)))

    with pytest.raises(ValueError, match=r"20 tensors .* header of 202 numbers, but at most 140 fit"):
        layout.header()


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


def test_windows_that_overlap_in_memory_arrive_with_their_values():
    windows = torch.arange(6.0).unfold(0, 3, 1)

    arrived = over_the_wire(windows)

    assert torch.equal(arrived, windows)
    assert arrived.is_contiguous()
