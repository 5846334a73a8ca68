"""One stage of one replica on this rank: forward and backward of one micro-batch, and the sums of the step."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from training.engine.batchnorm import Statistics, record_statistics, tracking_layers
from training.engine.transport import Boundary
from training.engine.tree_sum import TreeSum

Precision = Literal["fp32", "bf16"]
Loss = Callable[[Tensor, int], Tensor]
"""(output of the network, micro-batch) -> scalar, already divided by the number of samples of the whole step."""


class StageCopy:
    """The blocks of a stage, with the activations between forward and backward and the gradient sum of the step."""

    def __init__(self, module: nn.Module, *, replica: int, stage: int, device: torch.device, precision: Precision):
        self.module = module
        self.replica = replica
        self.stage = stage
        self.weights = [weight for weight in module.parameters() if weight.requires_grad]
        self.gradient_sum = TreeSum()
        self.statistics: dict[int, Statistics] = {}
        self._autocast = torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16")
        self._live: dict[int, tuple[list[Tensor], list[Tensor]]] = {}

    def forward(self, microbatch: int, value: Boundary, loss: Loss | None) -> Boundary:
        """Run the stage; with `loss`, its output is the loss. Activations stay until `backward` of the micro-batch."""
        with record_statistics(tracking_layers(self.module)) as recorded, self._autocast:
            output: Boundary = self.module(value)
            if loss is not None:
                output = loss(_only(output), microbatch)
        self.statistics[microbatch] = recorded
        self._live[microbatch] = (_needing_gradient(value), _needing_gradient(output))
        return output

    def backward(self, microbatch: int, gradients: tuple[Tensor, ...] | None) -> tuple[Tensor, ...]:
        """Add the micro-batch's gradients to the sum of the step.

        Args:
            gradients: of the outputs that need one; None if the output is the loss.

        Returns:
            gradients of the inputs that need one.
        """
        inputs, outputs = self._live.pop(microbatch)
        found: tuple[Tensor, ...] = ()
        if outputs and (self.weights or inputs):
            # autograd.grad, not backward(): the latter may change the memory layout of what it stores in .grad.
            found = torch.autograd.grad(outputs, [*self.weights, *inputs], gradients, materialize_grads=True)
            self.gradient_sum.add(list(found[: len(self.weights)]))
        return found[len(self.weights) :]

    def take_statistics(self) -> dict[int, Statistics]:
        """Statistics recorded in this step; the next step starts without them."""
        taken, self.statistics = self.statistics, {}
        return taken


def _needing_gradient(value: Boundary) -> list[Tensor]:
    tensors = value if isinstance(value, tuple) else (value,)
    return [tensor for tensor in tensors if tensor.requires_grad]


def _only(output: Boundary) -> Tensor:
    if isinstance(output, tuple):
        raise TypeError(f"the last block must give one tensor for the loss, got a tuple of {len(output)}")
    return output
