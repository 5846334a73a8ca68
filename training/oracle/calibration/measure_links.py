"""α and β of the links between ranks, from messages over the executor's own wire.

Messages one after the other find both sides waiting. Where ranks have computed and come to a message at the same time,
each with one core, it takes longer: the thread that moves bytes takes the core from the one that is about to send, and
waits for it. How much longer is measured after some computing.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

import torch
from torch import Tensor

from training.engine.ranks import Ranks
from training.engine.transport import Transport
from training.oracle.calibration.machine import MeasuredLink
from training.oracle.calibration.rounds import ROUNDS, WARM_UPS, now_s, together

SIZES_BYTES = (4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20)
MEETINGS, MEETING_BYTES = 64, 64 << 10
COMPUTING_S = 0.005, 0.02
"""Of a rank before a meeting, from the first to the last."""


def measure_link(transport: Transport, ranks: Ranks) -> MeasuredLink:
    """Send messages between ranks 0 and 1, 2 and 3, and so on, all pairs at once; every rank calls it."""
    one_way: dict[int, float] = {}
    both_ways: dict[int, float] = {}
    for size in SIZES_BYTES:
        row = torch.zeros(size, dtype=torch.uint8, device=transport.wire.device)
        for times, is_both in ((one_way, False), (both_ways, True)):
            seconds = [_message_s(transport, ranks, row, is_both=is_both) for _ in range(WARM_UPS + ROUNDS)]
            times[size] = statistics.median(seconds[WARM_UPS:])
    alpha_s, beta = fit(one_way)
    _, both_beta = fit(both_ways)
    meeting_s = statistics.fmean(
        _meeting_s(transport, ranks, seconds) for seconds in torch.linspace(*COMPUTING_S, MEETINGS).tolist()
    )
    return MeasuredLink(
        alpha_s=alpha_s,
        beta_s_per_byte=beta,
        both_ways_s_per_byte=max(both_beta, beta),
        meeting_s=max(meeting_s - both_ways[MEETING_BYTES], 0.0),
    )


def _message_s(transport: Transport, ranks: Ranks, row: Tensor, *, is_both: bool) -> float:
    """Seconds of one message, the slowest over all ranks: there and back one after the other, or both at once."""
    is_first = ranks.rank % 2 == 0
    together(transport, 0.0)
    start_s = time.perf_counter()
    for sends, takes in ((True, True),) if is_both else ((is_first, not is_first), (not is_first, is_first)):
        _exchange(transport, ranks, row, sends=sends, takes=takes)
    seconds = (time.perf_counter() - start_s) / (1 if is_both else 2)
    return max(together(transport, seconds))


def _meeting_s(transport: Transport, ranks: Ranks, computing_s: float) -> float:
    """Seconds of two messages, one each way, from when the later rank has done the same computing as the other."""
    row = torch.zeros(MEETING_BYTES, dtype=torch.uint8, device=transport.wire.device)
    matrix = torch.ones(256, 256, device=transport.wire.device)
    together(transport, 0.0)
    end_s = time.perf_counter() + computing_s
    while time.perf_counter() < end_s:
        matrix = matrix @ matrix / 256
    start_s = now_s(matrix.device)
    _exchange(transport, ranks, row, sends=True, takes=True)
    return of_pairs(together(transport, time.perf_counter() - start_s))


def of_pairs(seconds: Sequence[float]) -> float:
    """The mean, over pairs of ranks, of the shorter time: both end at about the same time, so it began later.

    Args:
        seconds: by rank; a last one without a partner does not count.
    """
    return statistics.fmean(min(pair) for pair in zip(seconds[::2], seconds[1::2], strict=False))


def _exchange(transport: Transport, ranks: Ranks, row: Tensor, *, sends: bool, takes: bool) -> None:
    """Send a row to the other rank of the pair, take one from it, or both; a last rank without a partner does not."""
    peer = ranks.rank ^ 1
    if peer >= ranks.num_ranks:
        return
    sent, received = transport.wire.group([(row, peer)] * sends, [(torch.empty_like(row), peer)] * takes)
    for work in (*sent, *received):
        work.wait()


def fit(times: dict[int, float]) -> tuple[float, float]:
    """α and β of seconds by size in bytes, with the least sum of squared relative errors; neither is below 0."""
    sizes = torch.tensor(list(times), dtype=torch.float64)
    seconds = torch.tensor(list(times.values()), dtype=torch.float64)
    rows = torch.stack([1 / seconds, sizes / seconds], dim=1)
    alpha_s, beta = torch.linalg.lstsq(rows, torch.ones(len(sizes), 1, dtype=torch.float64)).solution.flatten().tolist()
    return max(alpha_s, 0.0), max(beta, 0.0)
