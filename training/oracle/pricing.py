"""What prices a plan: a machine that was measured, or a cluster that a file describes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from training.engine.placement import Placement
from training.engine.schedule import Schedule
from training.oracle.simulation.costs import Costs, StageCost


class GroupPricing(Protocol):
    """Costs of one group."""

    def group_costs(self, stages: Sequence[StageCost], schedule: Schedule, placement: Placement) -> Costs:
        """Costs of one group's schedule, where sums and updates are over all groups of a placement."""


class Pricing(GroupPricing, Protocol):
    """Costs of a step."""

    @property
    def named(self) -> str:
        """For people."""

    def costs(self, stages: Sequence[StageCost], placement: Placement) -> Costs:
        """Costs of all groups."""

    def without_messages(self) -> GroupPricing:
        """The same with messages that take no time."""
