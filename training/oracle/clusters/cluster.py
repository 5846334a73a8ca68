"""A cluster that is not at hand: seconds of blocks from a GPU's limits, messages over links that GPUs share.

A block's forward takes as long as its operations or its traffic with memory would, whichever is slower; backward twice
as long. Traffic is counted in activations that are kept: `TRAFFIC` of them in forward and backward together, as counted
for ResNet-110-v2 (benchmarks/roofline.py). GPUs of a node have links of their own to each other, and share one to the
network in each direction; nothing else slows down messages. All ranks compute equally fast.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from pydantic import Field

from training.engine.partition import BlockCost, BlockTimes
from training.engine.placement import Placement
from training.engine.schedule import Schedule
from training.engine.sums.tree_sum import nodes_of
from training.foundation.errors import BadRecipeError
from training.foundation.recipe_file import find_toml
from training.foundation.settings import Section, parse_section
from training.foundation.toml_file import read_toml
from training.oracle.simulation.costs import BACKWARD_PER_FORWARD, Costs, StageCost
from training.oracle.simulation.links import Link, Network, instant

CLUSTERS_DIR = Path(__file__).parent
TRAFFIC = 17.5
"""Bytes that forward and backward read and write for each byte of activations that they keep: 344.5 GB for 19.7 GB."""
SUM_TRAFFIC, STEP_TRAFFIC = 3.0, 8.0
"""Bytes read and written for each byte of a weight: by the sum of its gradients, and by its update."""
Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Gpu(Section):
    """One GPU."""

    name: str
    memory_bytes: int = Field(ge=1)
    flops_per_s: dict[str, Rate]
    """By precision."""
    bytes_per_s: Rate
    """Of a copy in its memory."""
    share: float = Field(1.0, gt=0, le=1)
    """Of both rates that training reaches."""
    host_bytes_per_s: Rate
    """To and from host memory, for offload."""


class Node(Section):
    """GPUs with links of their own between each two."""

    gpus: int = Field(ge=1, le=1024)
    alpha_s: Seconds
    bytes_per_s: Rate


class Between(Section):
    """The way of a message from one node to another."""

    alpha_s: Seconds
    bytes_per_s: Rate
    """Of a node in each direction: its GPUs share it."""


class Cluster(Section):
    """The file."""

    name: str
    source: str = ""
    """Where the numbers come from."""
    gpu: Gpu
    node: Node
    network: Between

    @property
    def named(self) -> str:
        """For people."""
        return f"{self.name} (not measured)"

    def with_times(self, costs: Sequence[BlockCost], precision: str) -> list[BlockCost]:
        """Add seconds to the costs of a network's blocks.

        Raises:
            BadRecipeError: the file does not say how fast the GPU computes in this precision.
        """
        rate = self.gpu.flops_per_s.get(precision)
        if rate is None:
            known = ", ".join(self.gpu.flops_per_s)
            raise BadRecipeError(f"cluster {self.name!r}: flops_per_s is missing for {precision}; it names {known}.")
        return [replace(cost, times=self._times(cost, rate)) for cost in costs]

    def _times(self, cost: BlockCost, flops_per_s: float) -> BlockTimes:
        gpu = self.gpu
        bytes_s = cost.saved_bytes / (gpu.bytes_per_s * gpu.share)
        forward_s = max(cost.flops / (flops_per_s * gpu.share), TRAFFIC * bytes_s / (1 + BACKWARD_PER_FORWARD))
        again_bytes = max(cost.saved_bytes - cost.norm_bytes, 0)
        return BlockTimes(
            forward_s,
            BACKWARD_PER_FORWARD * forward_s,
            norm_s=2 * again_bytes / (gpu.bytes_per_s * gpu.share),  # what is recomputed is read once and written once
            offload_s=2 * cost.saved_bytes / gpu.host_bytes_per_s,
        )

    def network_between(self) -> Network:
        """Links between ranks, which fill one node after the other."""
        inside, between, gpus = self.node, self.network, self.node.gpus

        def links(sender: int, receiver: int) -> tuple[Link, ...]:
            out_of, into = sender // gpus, receiver // gpus
            if out_of == into:
                return (Link(f"{sender} to {receiver}", inside.alpha_s, 1 / inside.bytes_per_s),)
            beta = 1 / between.bytes_per_s
            return Link(f"out of node {out_of}", between.alpha_s, beta), Link(f"into node {into}", 0.0, beta)

        return links

    def costs(self, stages: Sequence[StageCost], placement: Placement) -> Costs:
        """Costs of a step: those of its stages, with messages, sums and updates."""
        stages = [self._with_update(stage, stage.owned_bytes(placement, index)) for index, stage in enumerate(stages)]
        return Costs(stages, self.network_between(), self._agree_s(placement.num_ranks))

    def group_costs(self, stages: Sequence[StageCost], schedule: Schedule, placement: Placement) -> Costs:
        """Costs of one group's schedule, where sums and updates are over all groups of a placement.

        All groups do the same at the same time, so the GPUs of a node exchange gradients at once.
        """
        costs = self.costs(stages, placement)
        folded = []
        for index, stage in enumerate(costs.stages):
            swapped_s = sum(
                self.swap_s(holders, num_bytes / len(holders), placement.num_ranks)
                for num_bytes, holders in stage.held(placement, index)
            )
            held = schedule.microbatches_on(schedule.placement.holders(index)[0], index)
            folded.append(stage.with_swaps(len(nodes_of(held)), swapped_s))
        return replace(costs, stages=folded)

    def swap_s(self, holders: Sequence[int], share_bytes: float, num_ranks: int) -> float:
        """Seconds until ranks that each send every other as many bytes have all of them.

        Messages of a rank start one after the other. All GPUs of a node do the same for their own stages meanwhile.

        Args:
            holders: ranks of one stage.
            num_ranks: of the whole step.
        """
        gpus = self.node.gpus
        by_node = Counter(rank // gpus for rank in holders)
        here = max(by_node.values())
        inside, outside = here - 1, len(holders) - min(by_node.values())
        sharing = min(gpus, num_ranks)
        inside_s = inside * (self.node.alpha_s + share_bytes / self.node.bytes_per_s)
        outside_s = outside * (self.network.alpha_s + sharing * share_bytes / self.network.bytes_per_s)
        return max(inside_s, outside_s if len(by_node) > 1 else 0.0)

    def without_messages(self) -> WithoutMessages:
        """The same cluster with messages that take no time."""
        return WithoutMessages(self)

    def _with_update(self, stage: StageCost, owned: float) -> StageCost:
        rate = self.gpu.bytes_per_s * self.gpu.share
        return replace(stage, reduce_s=owned * SUM_TRAFFIC / rate, step_s=owned * STEP_TRAFFIC / rate)

    def _agree_s(self, num_ranks: int) -> float:
        """Losses and norms to all ranks and back, in a tree."""
        return 2 * self.network.alpha_s * (num_ranks - 1).bit_length()


class WithoutMessages:
    """A cluster whose messages take no time: what they cost is the difference."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def group_costs(self, stages: Sequence[StageCost], schedule: Schedule, placement: Placement) -> Costs:
        """As `Cluster.group_costs`."""
        return replace(self._cluster.costs(stages, placement), network=instant, agree_s=0.0)


def load_cluster(name: Path) -> Cluster:
    """Read a cluster's file, or a shipped one by its name; `.toml` may be left out.

    Raises:
        BadRecipeError: there is none, or it is not one.
    """
    path = find_toml(name, CLUSTERS_DIR)
    if path is None:
        shipped = ", ".join(sorted(path.stem for path in CLUSTERS_DIR.glob("*.toml")))
        raise BadRecipeError(
            f"{name}: no such cluster. Looked in {name.absolute().parent} and among shipped ones: {shipped}."
        )
    try:
        content: Mapping[str, object] = read_toml(path)
    except (OSError, ValueError) as error:
        raise BadRecipeError(f"{path}: cannot be read as a cluster: {error}.") from error
    return parse_section(Cluster, content, where=str(path))
