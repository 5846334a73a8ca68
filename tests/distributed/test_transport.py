"""Messages between two real processes, and the memory that one side holds."""

from collections.abc import Sequence
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor, nn

from tests.distributed.launch import run_ranks
from tests.distributed.networks import small_resnet
from tests.distributed.problem import Case, evenly, train
from tests.distributed.strict import StrictWire
from training.engine.boundary import Boundary
from training.engine.memory import LiveBytes
from training.engine.ranks import LostPeerError, Ranks, alone
from training.engine.transport import GroupWire, Route, Row, Transport

CPU = torch.device("cpu")


def every_kind() -> list[Tensor | tuple[Tensor, ...]]:
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


def messages_of_every_kind(ranks: Ranks, wire: type[GroupWire], turn: bool) -> tuple[list[Boundary], int]:
    """Send each kind twice from rank 0 to rank 1, and with `turn` also the other way in the same groups."""
    counter = LiveBytes(enabled=True)
    transport = Transport(ranks, CPU, wire=wire(ranks), counter=counter)
    peer = 1 - ranks.rank
    came: list[Boundary] = []
    for _ in range(2):
        for kind, value in enumerate(every_kind()):
            route = Route(peer, kind=kind, during="test")
            gives = turn or ranks.rank == 0
            if gives:
                transport.offer("message", value, route)
            takes = [route] if turn or ranks.rank == 1 else []
            came += [each.value for each in transport.exchange(["message"] if gives else [], takes)]
    transport.flush()
    return came, counter.now


@pytest.mark.parametrize("wire", [GroupWire, StrictWire])
@pytest.mark.parametrize("turn", [False, True])
def test_tensors_arrive_with_their_type_values_and_layout(wire, turn):
    by_rank = run_ranks(2, messages_of_every_kind, wire, turn)

    assert [held for _, held in by_rank] == [0, 0]
    for received, _ in by_rank if turn else by_rank[1:]:
        for sent, came in zip(every_kind() * 2, received, strict=True):
            assert isinstance(came, tuple) == isinstance(sent, tuple)
            pairs = zip(sent, came, strict=True) if isinstance(sent, tuple) else [(sent, came)]
            for mine, theirs in pairs:
                assert torch.equal(mine, theirs)
                assert (mine.dtype, mine.requires_grad) == (theirs.dtype, theirs.requires_grad)
                overlaps = mine.ndim == 5
                assert overlaps or mine.stride() == theirs.stride()


def two_at_a_time(ranks: Ranks) -> list[Boundary]:
    """Repeatedly send two boundaries in one group from rank 0 to rank 1."""
    transport = Transport(ranks, CPU, counter=LiveBytes())
    routes = [Route(1 - ranks.rank, kind=kind, during="test") for kind in ("a", "b")]
    came: list[Boundary] = []
    for turn in range(3):
        if ranks.rank == 0:
            for place, route in enumerate(routes):
                transport.offer(route.kind, torch.full((4,), 10.0 * turn + place), route)
            transport.exchange(["a", "b"], [])
        else:
            came += [each.value for each in transport.exchange([], routes)]
    transport.flush()
    return came


def test_several_messages_of_a_group_come_in_the_order_they_were_asked_for():
    came = run_ranks(2, two_at_a_time)[1]

    assert [int(tensor[0]) for tensor in came if isinstance(tensor, Tensor)] == [0, 1, 10, 11, 20, 21]


def rows_to_all(ranks: Ranks) -> dict[int, Tensor]:
    """Send every rank a row of its own length, but none to the next rank."""
    transport = Transport(ranks, CPU, counter=LiveBytes())
    others = [rank for rank in range(ranks.num_ranks) if rank != ranks.rank]
    lengths = {peer: 0 if (peer - ranks.rank) % 3 == 1 else 2 + peer for peer in others}
    rows = {peer: torch.full((length,), 10 * ranks.rank + peer, dtype=torch.uint8) for peer, length in lengths.items()}
    coming = {peer: 0 if (ranks.rank - peer) % 3 == 1 else 2 + ranks.rank for peer in others}
    return transport.swap(rows, coming, during="test")


def test_each_rank_gets_its_own_row_from_each_other():
    by_rank = run_ranks(3, rows_to_all)

    for rank, came in enumerate(by_rank):
        empty, full = (rank - 1) % 3, (rank + 1) % 3
        assert came[empty].tolist() == []
        assert came[full].tolist() == [10 * full + rank] * (2 + rank)


class Line:
    """A wire whose other end is in the same process, with a log of its events."""

    device = CPU

    def __init__(self) -> None:
        self.log: list[tuple[str, int]] = []
        self.headers: list[list[int]] = []

    def group(self, sends: Sequence[Row], receives: Sequence[Row]) -> tuple[list[Any], list[Any]]:
        self.log.append(("group", len(sends) + len(receives)))
        return [self._transfer("sent", row) for row, _ in sends], [self._transfer("arrived", r) for r, _ in receives]

    def send_first(self, header: list[int], rows: Sequence[Tensor], peer: int) -> list[Any]:
        self.headers.append(header)
        return [self._transfer("sent", row) for row in rows]

    def receive_header(self, peer: int) -> list[int]:
        return self.headers.pop(0)

    def receive_first(self, row: Tensor, peer: int) -> Any:
        return self._transfer("arrived", row)

    def _transfer(self, what: str, row: Tensor) -> Any:
        return mock.Mock(wait=lambda: self.log.append((what, len(row))))


def two_ends(line: Line) -> tuple[Transport, Transport, LiveBytes, LiveBytes]:
    counters = LiveBytes(enabled=True), LiveBytes(enabled=True)
    sender, receiver = (Transport(alone(), CPU, wire=line, counter=counter) for counter in counters)
    return sender, receiver, *counters


SMALL, LARGE = Route(1, kind="small", during="F"), Route(1, kind="large", during="B")


def small_and_large() -> tuple[Tensor, Tensor]:
    """Two boundaries of 24 and 96 bytes."""
    return torch.zeros(2, 3), torch.zeros(4, 6)


def known(line: Line) -> tuple[Transport, Transport, LiveBytes, LiveBytes]:
    """Two ends that have already exchanged both kinds."""
    sender, receiver, held_here, held_there = two_ends(line)
    for value, route in zip(small_and_large(), (SMALL, LARGE), strict=True):
        sender.offer(route.kind, value, route)
        sender.exchange([route.kind], [])
        receiver.exchange([], [route])
    sender.flush()
    line.log.clear()
    return sender, receiver, held_here, held_there


def test_what_a_rank_gives_and_takes_goes_in_one_group():
    line = Line()
    sender, *_ = known(line)
    back = Route(1, kind="back", during="B")
    sender._layouts["from", 1, "back"] = sender._layouts["to", 1, "small"]

    sender.offer("message", small_and_large()[0], SMALL)
    assert line.log == []
    sender.exchange(["message"], [back])

    assert line.log == [("group", 2), ("arrived", 24)]


def test_at_most_one_sent_boundary_is_under_way():
    line = Line()
    sender, _, held, _ = known(line)

    for value, route in zip(small_and_large(), (SMALL, LARGE), strict=True):
        sender.offer(route.kind, value, route)
        sender.exchange([route.kind], [])
        assert held.now == value.numel() * 4

    assert line.log == [("group", 1), ("sent", 24), ("group", 1)]
    sender.flush()
    assert held.now == 0


def test_what_was_sent_is_released_before_more_comes():
    line = Line()
    sender, _, held, _ = known(line)
    sender._layouts["from", 1, "back"] = sender._layouts["to", 1, "small"]
    sender.offer("message", small_and_large()[0], SMALL)
    sender.exchange(["message"], [])

    sender.exchange([], [Route(1, kind="back", during="B")])

    assert line.log == [("group", 1), ("sent", 24), ("group", 1), ("arrived", 24)]
    assert held.now == 0


def test_a_swap_ends_when_what_it_gives_has_been_taken_too():
    """Otherwise rows could be changed or freed while they are read."""
    line = Line()
    here, *_ = two_ends(line)

    came = here.swap({1: torch.zeros(24, dtype=torch.uint8)}, {1: 96}, during="REDUCE")

    assert line.log[0] == ("group", 2)
    assert sorted(line.log[1:]) == [("arrived", 96), ("sent", 24)]
    assert came[1].shape == (96,)


def test_the_layout_of_a_kind_is_told_once():
    line = Line()
    sender, receiver, *_ = two_ends(line)

    sender.offer("message", torch.zeros(2, 3), SMALL)
    sender.exchange(["message"], [])
    assert len(line.headers) == 1
    receiver.exchange([], [SMALL])
    sender.offer("message", torch.ones(2, 3), SMALL)
    sender.exchange(["message"], [])

    assert not line.headers
    assert receiver.exchange([], [SMALL])[0].value.shape == (2, 3)


@pytest.mark.parametrize(
    "changed",
    [
        torch.zeros(2, 3, 4, 6).to(memory_format=torch.channels_last),
        torch.zeros(2, 3, 4, 5),
        torch.zeros(2, 3, 4, 6, dtype=torch.bfloat16),
        torch.zeros(2, 3, 4, 6, requires_grad=True),
        (torch.zeros(2, 3, 4, 6),),
    ],
)
def test_a_boundary_that_changes_for_the_same_kind_is_refused(changed):
    sender, *_ = two_ends(Line())
    sender.offer("message", torch.zeros(2, 3, 4, 6), SMALL)

    with pytest.raises(
        ValueError,
        match=r"F gave BoundaryLayout.* but BoundaryLayout.* before for inputs of the same shape; what is passed "
        r"between stages may depend only on the shape of the network's input\. Cut elsewhere",
    ):
        sender.offer("message", changed, SMALL)


@pytest.mark.parametrize(
    ("error", "seen"),
    [
        (RuntimeError("connection reset"), LostPeerError),
        (torch.OutOfMemoryError("out of memory"), torch.OutOfMemoryError),
        (torch.AcceleratorError("device-side assert", 710), torch.AcceleratorError),
    ],
)
def test_what_the_device_reports_is_not_taken_for_a_lost_peer(error, seen):
    line = Line()
    sender, *_ = known(line)
    sender.offer("message", small_and_large()[0], SMALL)

    with mock.patch.object(line, "group", side_effect=error), pytest.raises(Exception) as raised:  # noqa: PT011
        sender.exchange(["message"], [])

    assert type(raised.value) is seen


class Fickle(nn.Module):
    """Module that changes the memory layout of its output after two calls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x_nchw: Tensor) -> Tensor:
        self.calls += 1
        return x_nchw.contiguous(memory_format=torch.channels_last) if self.calls > 2 else x_nchw


def fickle_resnet() -> list[nn.Module]:
    stem, *rest = small_resnet()
    return [nn.Sequential(stem, Fickle()), *rest]


def test_a_network_whose_boundary_changes_is_refused_by_name():
    case = Case("gpipe", 2, evenly(4), network=fickle_resnet, costs=(9.0, 1, 1, 1, 1))

    with pytest.raises(
        torch.multiprocessing.ProcessRaisedException,
        match=r"F of stage 0, replica 0, micro-batch 2 gave .* before for inputs of the same shape",
    ):
        run_ranks(2, train, case)


def test_more_tensors_than_fit_a_header_are_refused():
    transport = Transport(alone(), CPU, counter=LiveBytes())

    with pytest.raises(ValueError, match=r"12 tensors .* header of 146 numbers, but at most 140 fit"):
        transport.offer("message", (torch.ones(1, 1, 1, 1),) * 12, SMALL)


def test_a_type_that_cannot_travel_is_refused():
    transport = Transport(alone(), CPU, counter=LiveBytes())

    with pytest.raises(ValueError, match=r"complex64 cannot be sent between stages; use one of torch.float32"):
        transport.offer("message", torch.ones(1, dtype=torch.complex64), SMALL)
