"""Average of the weights over the steps of a run (exponential: w̄ ← w̄ + (1 − d) (w − w̄)), on the ranks that own them.

Running statistics are averaged with the weights that they belong to. Early in a run the decay is lower,
(1 + steps) / (10 + steps), so that the first weights, which are noise, are soon forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor


class WeightAverage:
    """Average of the tensors that one rank provides (`Engine.own_state`)."""

    def __init__(self, own: Mapping[str, Tensor], decay: float) -> None:
        """Start from the current tensors.

        Args:
            own: the live weights and buffers.
            decay: decay of the average, in the long run.
        """
        self._decay = decay
        self._live = dict(own)
        self._average = {name: tensor.detach().clone() for name, tensor in own.items()}
        floating = [name for name, tensor in own.items() if tensor.is_floating_point()]
        self._pairs = [self._average[name] for name in floating], [self._live[name] for name in floating]
        self._counts = [name for name in own if name not in set(floating)]

    def update(self, num_steps: int) -> None:
        """Include the weights after `num_steps` steps of the run."""
        decay = min(self._decay, (1 + num_steps) / (10 + num_steps))
        average, live = self._pairs
        if average:
            # By the distance, so that weights that do not change, such as frozen ones, keep every bit. Separate
            # products: a fused one gives different bits at the end of a row than in its middle.
            step = torch._foreach_sub(live, average)
            torch._foreach_mul_(step, 1 - decay)
            torch._foreach_add_(average, step)
        for name in self._counts:
            self._average[name].copy_(self._live[name])

    def own(self) -> Mapping[str, Tensor]:
        """The average, named like the live tensors."""
        return self._average

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Continue from a saved average; `state` may contain more.

        Raises:
            ValueError: a tensor is missing, or of another shape.
        """
        for name, tensor in self._average.items():
            if name not in state or state[name].shape != tensor.shape:
                raise ValueError(f"the average of {name} is missing, or of another shape")
        for name, tensor in self._average.items():
            tensor.copy_(state[name])
