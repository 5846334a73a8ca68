"""Messages between two real processes."""

import pytest
import torch

from tests.distributed.launch import run_ranks
from training.engine.ranks import Ranks, alone
from training.engine.transport import SYNC, Transport


def messages_of_every_kind(ranks: Ranks) -> list[object]:
    """Rank 0 sends, rank 1 returns what came."""
    transport = Transport(ranks, torch.device("cpu"))
    sent = every_kind()
    for lane, value in zip((0, 1, SYNC, 0, 0, 0), sent, strict=True):
        if ranks.rank == 0:
            transport.send(value, peer=1, lane=lane, during="test")
    if ranks.rank == 0:
        transport.flush()
        return []
    return [transport.receive(peer=0, lane=lane, during="test") for lane in (0, 1, SYNC, 0, 0, 0)]


def every_kind() -> list[torch.Tensor | tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    image_nchw = torch.randn(2, 3, 4, 6)
    return [
        image_nchw.to(memory_format=torch.channels_last).requires_grad_(),
        (image_nchw.bfloat16(), torch.tensor(3)),
        (),
        image_nchw[..., 1::2],
        image_nchw[:, :, :1, :1].expand(2, 3, 5, 7),
        (torch.empty(0, 3), image_nchw.unfold(3, 2, 1), image_nchw[:, 1]),
    ]


def test_tensors_arrive_with_their_type_values_and_layout():
    received = run_ranks(2, messages_of_every_kind)[1]

    for sent, came in zip(every_kind(), received, strict=True):
        assert isinstance(came, tuple) == isinstance(sent, tuple)
        pairs = zip(sent, came, strict=True) if isinstance(sent, tuple) else [(sent, came)]
        for mine, theirs in pairs:
            assert torch.equal(mine, theirs)
            assert (mine.dtype, mine.requires_grad) == (theirs.dtype, theirs.requires_grad)
            overlaps = mine.ndim == 5
            assert overlaps or mine.stride() == theirs.stride()


def test_more_tensors_than_fit_a_header_are_refused():
    transport = Transport(alone(), torch.device("cpu"))

    with pytest.raises(ValueError, match=r"12 tensors .* header of 134 numbers, at most 128 fit"):
        transport.send((torch.ones(1, 1, 1, 1),) * 12, peer=1, lane=0, during="test")


def test_a_type_that_cannot_travel_is_refused():
    transport = Transport(alone(), torch.device("cpu"))

    with pytest.raises(ValueError, match=r"complex64 cannot go from stage to stage; use one of torch.float32"):
        transport.send(torch.ones(1, dtype=torch.complex64), peer=1, lane=0, during="test")
