"""Memory of a rank, from the costs of its stages. It depends on the rank's own order only; nothing is played."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from training.engine.placement import Placement
from training.engine.schedule import Action, Op, Schedule
from training.oracle.simulation.costs import StageCost


class _State(NamedTuple):
    """What a rank keeps while it does something."""

    live: tuple[tuple[int, int], ...]
    """(stage, micro-batches whose activations are kept)"""
    recomputes: int | None
    """The stage that is in backward."""


class RankMemory:
    """Bytes of every rank of one group, as a function of the costs of the stages."""

    def __init__(self, schedule: Schedule, placement: Placement, optimizer_slots: int):
        """Collect the moments that can be the fullest.

        Args:
            schedule: of one group.
            placement: of all groups.
            optimizer_slots: tensors of the size of a weight that the optimizer keeps for it.
        """
        self._states = [_fullest(set(_states(actions))) for actions in schedule.ranks]
        self._slots = optimizer_slots
        self._placement = placement
        self._held: list[list[tuple[int, int]]] = []  # (stage, sums of gradients at a time)
        for rank in range(len(schedule.ranks)):
            stages = sorted({stage for _, stage in schedule.placement.held_by(rank)})
            numbers = [len(schedule.microbatches_on(rank, stage)).bit_length() for stage in stages]
            self._held.append(list(zip(stages, numbers, strict=True)))

    def activation_bytes(self, rank: int, stages: Sequence[StageCost]) -> int:
        """The most that autograd and recomputation keep on a rank."""
        return max((_bytes_in(state, stages) for state in self._states[rank]), default=0)

    def state_bytes(self, rank: int, stages: Sequence[StageCost]) -> int:
        """Weights, the sums of their gradients, and the share of the optimizer's state that a rank owns."""
        total = 0.0
        for stage, sums in self._held[rank]:
            cost = stages[stage]
            total += cost.weight_bytes * (1 + sums) + cost.owned_bytes(self._placement, stage) * self._slots
        return int(total)

    def rank_bytes(self, rank: int, stages: Sequence[StageCost]) -> int:
        """All of a rank's memory that grows with the network or the tiles."""
        return self.activation_bytes(rank, stages) + self.state_bytes(rank, stages)

    def most_bytes(self, stages: Sequence[StageCost]) -> int:
        """Bytes of the fullest rank."""
        return max(self.rank_bytes(rank, stages) for rank in range(len(self._states)))


def _states(actions: Sequence[Action]) -> Iterator[_State]:
    live: Counter[int] = Counter()
    for action in actions:
        if action.op is Op.F:
            live[action.stage] += 1
        if action.op in (Op.F, Op.B):
            kept = tuple(sorted((stage, number) for stage, number in live.items() if number))
            yield _State(kept, action.stage if action.op is Op.B else None)
        if action.op is Op.B:
            live[action.stage] -= 1


def _fullest(states: set[_State]) -> list[_State]:
    """The states in which no stage has fewer micro-batches than in another, during the same kind of work."""
    return [
        state
        for state in states
        if not any(
            state is not other
            and state.recomputes == other.recomputes
            and all(dict(other.live).get(stage, 0) >= number for stage, number in state.live)
            for other in states
        )
    ]


def _bytes_in(state: _State, stages: Sequence[StageCost]) -> int:
    kept = sum(number * stages[stage].kept_bytes for stage, number in state.live)
    return kept + (0 if state.recomputes is None else stages[state.recomputes].recomputed_bytes)
