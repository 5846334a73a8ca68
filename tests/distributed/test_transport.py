"""Messages between two real processes, and what one side of them holds."""

from collections import deque
from unittest import mock

import pytest
import torch
from torch import Tensor, nn

from tests.distributed.launch import run_ranks
from tests.distributed.networks import small_resnet
from tests.distributed.problem import Case, StepBatch, evenly, loss_sum, make_engine, train
from training.engine.memory import LiveBytes
from training.engine.ranks import SYNC, Ranks, alone
from training.engine.stage import StageCopy
from training.engine.transport import Route, Transport, Work

CPU = torch.device("cpu")
LANES = (0, 1, 3, 0, 2, 0)


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


def routes(peer: int) -> list[Route]:
    return [Route(peer, lane, kind=kind, during="test") for kind, lane in enumerate(LANES)]


def messages_of_every_kind(ranks: Ranks, ahead: bool) -> tuple[list[object], int]:
    """Rank 0 sends everything twice, rank 1 returns what came, and both what they hold in the end."""
    counter = LiveBytes(enabled=True)
    transport = Transport(ranks, CPU, counter=counter)
    came: list[object] = []
    for _ in range(2):
        for value, route in zip(every_kind(), routes(1 - ranks.rank), strict=True):
            if ranks.rank == 0:
                transport.send(value, route)
            else:
                if ahead:
                    transport.ask(route)
                came.append(transport.receive(route))
    transport.flush()
    return came, counter.now


@pytest.mark.parametrize("ahead", [False, True])
def test_tensors_arrive_with_their_type_values_and_layout(ahead):
    (_, sender_bytes), (received, receiver_bytes) = run_ranks(2, messages_of_every_kind, ahead)

    for sent, came in zip(every_kind() * 2, received, strict=True):
        assert isinstance(came, tuple) == isinstance(sent, tuple)
        pairs = zip(sent, came, strict=True) if isinstance(sent, tuple) else [(sent, came)]
        for mine, theirs in pairs:
            assert torch.equal(mine, theirs)
            assert (mine.dtype, mine.requires_grad) == (theirs.dtype, theirs.requires_grad)
            overlaps = mine.ndim == 5
            assert overlaps or mine.stride() == theirs.stride()
    assert (sender_bytes, receiver_bytes) == (0, 0)


def rows_both_ways(ranks: Ranks) -> list[Tensor]:
    transport = Transport(ranks, CPU, counter=LiveBytes())
    peer = 1 - ranks.rank
    came = []
    for length in (3, 7):
        row = torch.full((length,), 10 * ranks.rank + length, dtype=torch.uint8)
        transport.send_row(row, peer=peer, during="test")
        came.append(transport.receive_row(length, peer=peer, during="test"))
    transport.flush()
    return came


def test_rows_arrive_in_order_while_both_sides_send():
    from_1, from_0 = run_ranks(2, rows_both_ways)

    assert [row.tolist() for row in from_1] == [[13] * 3, [17] * 7]
    assert [row.tolist() for row in from_0] == [[3] * 3, [7] * 7]


class Line:
    """A wire whose other end takes part in the same process, and a log of what happens on it."""

    device = CPU

    def __init__(self) -> None:
        self.log: list[tuple[str, int]] = []
        self.headers: deque[list[int]] = deque()

    def send(self, row: Tensor, peer: int, lane: int) -> "Transfer":
        assert lane != SYNC
        self.log.append(("send", len(row)))
        return Transfer(self, len(row))

    def receive(self, row: Tensor, peer: int, lane: int) -> "Transfer":
        self.log.append(("receive", len(row)))
        return Transfer(self, len(row))

    def send_header(self, numbers: list[int], peer: int, lane: int) -> "Transfer":
        self.headers.append(numbers)
        return Transfer(self, 0)

    def receive_header(self, peer: int, lane: int) -> list[int]:
        return self.headers.popleft()


class Transfer:
    def __init__(self, line: Line, num_bytes: int):
        self._line, self._num_bytes = line, num_bytes

    def wait(self) -> None:
        if self._num_bytes:
            self._line.log.append(("arrived", self._num_bytes))


def two_ends(line: Line) -> tuple[Transport, Transport, LiveBytes, LiveBytes]:
    counters = LiveBytes(enabled=True), LiveBytes(enabled=True)
    sender, receiver = (Transport(alone(), CPU, wire=line, counter=counter) for counter in counters)
    return sender, receiver, *counters


SMALL, LARGE = Route(1, 0, kind="small", during="F"), Route(1, 1, kind="large", during="B")


def small_and_large() -> tuple[Tensor, Tensor]:
    """Of 24 and 96 bytes."""
    return torch.zeros(2, 3), torch.zeros(4, 6)


def test_at_most_one_boundary_is_asked_for_ahead():
    line = Line()
    sender, receiver, _, held = two_ends(line)
    for value, route in zip(small_and_large(), (SMALL, LARGE), strict=True):
        sender.send(value, route)
        receiver.receive(route)
    sender.flush()
    line.log.clear()

    receiver.ask(SMALL)
    receiver.ask(LARGE)
    assert line.log == [("receive", 24)]
    assert held.now == 24

    receiver.receive(SMALL)
    assert line.log == [("receive", 24), ("arrived", 24)]
    assert held.now == 0

    receiver.ask(LARGE)
    assert line.log[2:] == [("receive", 96)]
    assert held.now == 96


def test_the_first_boundary_of_a_kind_is_not_asked_for_ahead():
    line = Line()
    _, receiver, _, held = two_ends(line)

    receiver.ask(SMALL)

    assert line.log == []
    assert held.now == 0


def test_at_most_one_sent_boundary_is_under_way():
    line = Line()
    sender, _, held, _ = two_ends(line)

    for value, route in zip(small_and_large(), (SMALL, LARGE), strict=True):
        sender.send(value, route)
        assert held.now == value.numel() * 4

    assert line.log == [("send", 24), ("arrived", 24), ("send", 96)]
    sender.flush()
    assert held.now == 0


def test_the_layout_of_a_kind_is_told_once():
    line = Line()
    sender, receiver, *_ = two_ends(line)

    sender.send(torch.zeros(2, 3), SMALL)
    assert len(line.headers) == 1
    receiver.receive(SMALL)
    sender.send(torch.ones(2, 3), SMALL)

    assert not line.headers
    assert receiver.receive(SMALL).shape == (2, 3)


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
    sender.send(torch.zeros(2, 3, 4, 6), SMALL)

    with pytest.raises(
        ValueError,
        match=r"F gave BoundaryLayout.* but BoundaryLayout.* before for inputs of the same shape; what goes from stage "
        r"to stage may depend on the shape of the network's input only\. Cut elsewhere",
    ):
        sender.send(changed, SMALL)


class Fickle(nn.Module):
    """Changes its mind about the layout of what it gives."""

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


class Counted:
    """A receive under way."""

    def __init__(self, work: Work, under_way: list["Counted"]):
        self._work, self._under_way = work, under_way
        under_way.append(self)

    def wait(self) -> None:
        self._under_way.remove(self)
        self._work.wait()


def asked_ahead(ranks: Ranks, case: Case) -> list[list[int]]:
    """By step and action: how many boundaries were on their way to this rank while it computed."""
    engine = make_engine(ranks, case)
    wire, under_way, counts = engine._transport._wire, [], []
    receive = wire.receive
    forward, backward = StageCopy.forward, StageCopy.backward

    def counting(compute):
        def computed(*args):
            counts[-1].append(len(under_way))
            return compute(*args)

        return computed

    with (
        mock.patch.object(wire, "receive", lambda row, peer, lane: Counted(receive(row, peer, lane), under_way)),
        mock.patch.object(StageCopy, "forward", counting(forward)),
        mock.patch.object(StageCopy, "backward", counting(backward)),
    ):
        for step in range(len(case.batches)):
            counts.append([])
            engine.train_step(StepBatch(case, step), loss_sum)
    return counts


def test_one_boundary_comes_in_while_a_rank_computes():
    first_rank, last_rank = run_ranks(2, asked_ahead, Case("gpipe", 2, evenly(3)))

    # Steps 0 and 1 have shapes of their own, so the first boundary of a kind cannot be asked for; step 2 has seen all.
    assert first_rank == [[0, 0, 0, 1, 1, 0], [0, 0, 0, 1, 1, 0], [1, 1, 1, 1, 1, 0]]
    assert last_rank == [[1, 1, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0]]


def test_more_tensors_than_fit_a_header_are_refused():
    transport = Transport(alone(), CPU, counter=LiveBytes())

    with pytest.raises(ValueError, match=r"12 tensors .* header of 134 numbers, at most 128 fit"):
        transport.send((torch.ones(1, 1, 1, 1),) * 12, SMALL)


def test_a_type_that_cannot_travel_is_refused():
    transport = Transport(alone(), CPU, counter=LiveBytes())

    with pytest.raises(ValueError, match=r"complex64 cannot go from stage to stage; use one of torch.float32"):
        transport.send(torch.ones(1, dtype=torch.complex64), SMALL)
