"""Weights of a stage that the same ranks hold, and what one step adds up for them.

Most stages have one group. Where the parts of a stage are sub-graphs, what lies outside branches is the group of all
parts, and the branches of each part are a group of their own (training/parallel/branches.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from torch import Tensor, nn

from training.engine.sums.gradient_rows import GradientRows
from training.engine.sums.running_statistics import RunningStatistics
from training.engine.sums.tree_sum import TreeSum
from training.parallel.branches import branches_in


class WeightGroup:
    """The trained weights of some modules of a stage, the sum of their gradients, and their running statistics."""

    def __init__(self, part: int | None, weights: Mapping[str, nn.Parameter], modules: Iterable[nn.Module]) -> None:
        """Begin a group.

        Args:
            part: the part that alone has these weights; None: all parts have them.
            weights: trained, by name in the whole network.
            modules: whose running statistics belong to it.
        """
        self.part = part
        self.names, self.weights = list(weights), list(weights.values())
        self.rows = GradientRows(self.weights)
        self.gradient_sum = TreeSum()
        self.running = RunningStatistics(modules)
        self.statistics: dict[int, Tensor] = {}
        """By micro-batch."""

    def is_of(self, part: int) -> bool:
        """Whether a part has these weights."""
        return self.part is None or self.part == part

    def forget(self) -> None:
        """Drop the sums of a step."""
        self.gradient_sum.take_nodes()
        self.statistics = {}


def part_of_names(module: nn.Module, num_parts: int) -> dict[str, int]:
    """The part that alone has a weight or buffer, by its name in a module; those of all parts are left out.

    Raises:
        ValueError: no branches, or fewer than parts; or a weight of a branch that is used elsewhere, too.
    """
    of_module = _part_of_modules(module, num_parts)
    if num_parts > 1 and not of_module:
        raise ValueError("no block of a stage in sub-graphs has branches; use another strategy, or other cuts")
    tensors: dict[int, int | None] = {}
    found = {}
    for prefix, each in module.named_modules():
        part = of_module.get(id(each))
        for name, tensor in (*each.named_parameters(prefix, False), *each.named_buffers(prefix, False)):
            if tensors.setdefault(id(tensor), part) != part:
                raise ValueError(f"the weight {name} of a branch is used elsewhere, too; give each its own")
            if part is not None:
                found[name] = part
    return found


def groups_of(module: nn.Module, num_parts: int, here: Sequence[int]) -> list[WeightGroup]:
    """The groups of the parts of a stage that are here: that of all parts first, then part by part."""
    part_of = part_of_names(module, num_parts)
    trained = {name: weight for name, weight in module.named_parameters() if weight.requires_grad}
    of_module = _part_of_modules(module, num_parts)
    return [
        WeightGroup(
            part,
            {name: weight for name, weight in trained.items() if part_of.get(name) == part},
            [each for each in module.modules() if of_module.get(id(each)) == part],
        )
        for part in (None, *sorted(set(of_module.values()) & set(here)))
    ]


def _part_of_modules(module: nn.Module, num_parts: int) -> dict[int, int]:
    """The part that alone has a module, by the module's identity: all that is inside branches and here."""
    found: dict[int, int] = {}
    for branches in branches_in(module) if num_parts > 1 else ():
        branches.check(num_parts)
        for number, branch in branches.items():
            found |= dict.fromkeys(map(id, branch.modules()), branches.part_of(int(number), num_parts))
    return found
