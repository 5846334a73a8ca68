"""Costs of REDUCE and STEP, from the real ones with gradients of zeros."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import nn

from training.engine.plan import Plan
from training.engine.ranks import Ranks
from training.engine.replica_sync import StageSync
from training.engine.schedule import Action, Op
from training.engine.stage import StageCopy
from training.engine.strategies import build_schedule
from training.engine.transport import Transport
from training.oracle.calibration.block_inputs import Setting
from training.oracle.calibration.machine import MeasuredUpdate
from training.oracle.calibration.rounds import ROUNDS, WARM_UPS, now_s, together
from training.oracle.simulation.links import Network, swap_s


def measure_update(
    blocks: Sequence[nn.Module],
    plan: Plan,
    setting: Setting,
    ranks: Ranks,
    transport: Transport,
    network: Network,
) -> MeasuredUpdate:
    """Sums and updates of the whole network: by this rank alone, and shared by all."""
    module = nn.Sequential(*blocks)
    weight_bytes = sum(weight.nbytes for weight in module.parameters() if weight.requires_grad)
    alone = _Update(module, plan, setting, ranks, transport, (ranks.rank,)).median_s()
    if ranks.num_ranks == 1:
        return MeasuredUpdate(
            sum_s_per_byte=alone.sum_s / weight_bytes,
            pack_s_per_byte=0,
            step_s_per_byte=alone.step_s / weight_bytes,
            share_s_per_byte=0,
            agree_s=alone.agree_s,
        )
    number = ranks.num_ranks
    shared = _Update(module, plan, setting, ranks, transport, tuple(range(number))).median_s()
    share = weight_bytes / number
    swapped_s = swap_s(network, {(a, b): share for a in range(number) for b in range(number) if a != b})
    given = weight_bytes - share

    def left_s(seconds: float, alone_s: float) -> float:
        return max(seconds - alone_s / number - swapped_s, 0.0) / given

    return MeasuredUpdate(
        sum_s_per_byte=alone.sum_s / weight_bytes,
        pack_s_per_byte=left_s(shared.sum_s, alone.sum_s),
        step_s_per_byte=alone.step_s / weight_bytes,
        share_s_per_byte=left_s(shared.step_s, alone.step_s),
        agree_s=shared.agree_s,
    )


class _Seconds(NamedTuple):
    """One update in its parts, messages included."""

    sum_s: float
    agree_s: float
    step_s: float


class _Update:
    """REDUCE and STEP of a whole network that some ranks hold."""

    def __init__(
        self,
        module: nn.Sequential,
        plan: Plan,
        setting: Setting,
        ranks: Ranks,
        transport: Transport,
        holders: tuple[int, ...],
    ):
        self._copy = StageCopy(module, stage=0, first_block=0, device=setting.device)
        self._module = module
        self._before = {name: value.clone() for name, value in module.state_dict().items()}
        self._transport, self._device = transport, setting.device
        self._sync = StageSync(
            self._copy, rank=ranks.rank, holders=lambda _: holders, transport=transport, make=plan.make_optimizer
        )
        self._schedule = build_schedule(
            "single", num_stages=1, num_microbatches=ranks.num_ranks, data_parallel=ranks.num_ranks
        )
        self._action = Action(Op.REDUCE, ranks.rank, 0)
        self._rank, self._is_shared = ranks.rank, len(holders) > 1

    def median_s(self) -> _Seconds:
        """Medians of the rounds, of which each part is that of the slowest rank."""
        rounds = [self._round() for _ in range(WARM_UPS + ROUNDS)][WARM_UPS:]
        self._module.load_state_dict(self._before)
        return _Seconds(*(statistics.median(column) for column in zip(*rounds, strict=True)))

    def _round(self) -> _Seconds:
        (group,) = self._copy.groups
        rows = group.rows.like(range(len(group.weights)))
        group.gradient_sum.add((self._rank, 1), [torch.zeros_like(row, device=self._device) for row in rows])
        if self._is_shared:
            group.statistics = {self._rank: torch.zeros_like(group.running.row)}
        return _Seconds(self._timed(self._reduce), self._timed(self._agree), self._timed(self._step))

    def _reduce(self) -> None:
        if self._is_shared:
            self._sync.bring_together(self._action, self._schedule)
        self._sync.finish_sum(1.0)

    def _agree(self) -> None:
        """As agreement.py: the norms of the owned gradients to the CPU, and a sum over all ranks."""
        norms = list(self._sync.squared_norms().values())
        numbers = torch.stack(norms).cpu() if norms else torch.zeros(0, dtype=torch.float64)
        (group,) = self._copy.groups
        filled = torch.cat([numbers, torch.zeros(len(group.weights) - len(numbers), dtype=torch.float64)])
        self._transport.sum_over_ranks(filled, during=self._action)

    def _step(self) -> None:
        (group,) = self._copy.groups
        self._sync.update(len(group.statistics))
        if self._is_shared:
            self._sync.hand_round(self._action)

    def _timed(self, work: Callable[[], None]) -> float:
        together(self._transport, 0.0)
        start_s = now_s(self._device)
        work()
        return max(together(self._transport, now_s(self._device) - start_s))
