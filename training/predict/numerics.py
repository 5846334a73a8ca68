"""Settings of a network for prediction: number format, folded normalisation, compilation, devices."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, fx, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from training.engine.partition import block_costs, partition, stage_ranges

Precision = Literal["fp32", "bf16"]


@dataclass(frozen=True)
class Numerics:
    """Settings that may change the last bits of a probability."""

    precision: Precision = "fp32"
    deterministic: bool = False
    """Every tile goes through the network alone, with algorithms that give the same bits each time: its probabilities
    then depend only on the tile, not on the batch, the number of devices or the free memory."""
    compile: bool = False
    """Use `torch.compile`, which needs a C++ compiler on a CPU."""


@dataclass(frozen=True)
class RunOn:
    """Devices and settings that a network runs with."""

    device: str = "cpu"
    """Device as torch names it; several joined by "+" hold one part of the network each."""
    numerics: Numerics = field(default_factory=Numerics)
    views: str = "none"
    """Key of `training.inference.VIEWS`: the mean over several views of a tile is its probability."""


def ready_to_predict(
    network: nn.Module,
    devices: Sequence[torch.device],
    numerics: Numerics,
    *,
    input_shape: tuple[int, ...],
    is_ours: bool = True,
) -> nn.Module:
    """A network in evaluation mode, as fast as these numerics allow, on its device or spread over several.

    Args:
        devices: several hold consecutive blocks each, as the engine cuts a network into stages.
        input_shape: of one tile, (1, 3, side, side), by which the cut is chosen.
        is_ours: whether its modules can be inspected; a TorchScript or ONNX file runs as it is.

    Raises:
        ValueError: it cannot be cast, compiled or spread as requested.
    """
    network = network.eval()
    if not is_ours:
        if len(devices) > 1 or numerics.compile or numerics.precision != "fp32":
            raise ValueError("an ONNX or TorchScript file runs as it is: on one device, in fp32, not compiled")
        return network.to(devices[0])
    network = _folded(network).to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's stubs
    if numerics.precision == "bf16":
        network = _in_bf16(network)
    if len(devices) > 1:
        return StagedNetwork(network, devices, input_shape)
    network = network.to(devices[0])
    return torch.compile(network) if numerics.compile else network  # type: ignore[return-value]  # it is a Module


def _in_bf16(network: nn.Module) -> nn.Module:
    """Cast to bf16; remaining normalisations keep float32 statistics, which would lose five of their eight digits."""
    network = network.to(torch.bfloat16)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.float()
    return network


def _folded(network: nn.Module) -> nn.Module:
    """Fold each batch normalisation into the convolution before it: one pass over memory less.

    Networks that cannot be traced stay as they are, and so do blocks without one, convolutions that run more than once,
    and normalisations by each batch's own statistics. A chain of blocks stays one: each block is folded alone.
    """
    if isinstance(network, nn.Sequential):
        return nn.Sequential(*(_folded_block(block) for block in network))
    return _folded_block(network)


def _folded_block(block: nn.Module) -> nn.Module:
    if not any(isinstance(module, nn.BatchNorm2d) for module in block.modules()):
        return block
    try:
        traced = fx.symbolic_trace(copy.deepcopy(block))
    except (fx.proxy.TraceError, TypeError, RuntimeError, AttributeError, NotImplementedError):
        return block  # it branches on values, or is no longer Python (TorchScript)
    modules = dict(traced.named_modules())
    calls = Counter(modules[str(node.target)] for node in traced.graph.nodes if node.op == "call_module")
    for node in list(traced.graph.nodes):
        source = node.args[0] if node.op == "call_module" and node.args else None
        if not isinstance(source, fx.Node) or source.op != "call_module" or len(source.users) != 1:
            continue
        convolution, norm = modules[str(source.target)], modules[str(node.target)]
        if not (isinstance(convolution, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d)):
            continue
        if calls[convolution] > 1 or norm.running_mean is None:
            continue
        traced.set_submodule(str(source.target), fuse_conv_bn_eval(convolution, norm))
        node.replace_all_uses_with(source)
        traced.graph.erase_node(node)
    traced.delete_all_unused_submodules()
    traced.recompile()
    return traced


class StagedNetwork(nn.Module):
    """A chain of blocks cut into stages on several devices, forward only.

    A batch goes through tile by tile: kernels are only queued here, so that while one device works on a tile, the one
    before it works on the next.

    Raises:
        ValueError: not a chain of blocks, or fewer blocks than devices.
    """

    def __init__(self, network: nn.Module, devices: Sequence[torch.device], input_shape: tuple[int, ...]) -> None:
        super().__init__()
        if not isinstance(network, nn.Sequential):
            raise ValueError("only a network that is a chain of blocks can be spread over several devices")
        blocks = list(network)
        costs = [cost.flops for cost in block_costs([block.float() for block in copy.deepcopy(blocks)], input_shape)]
        ranges = stage_ranges(partition(costs, len(devices)), len(blocks))
        self.stages = nn.ModuleList(
            nn.Sequential(*blocks[held.start : held.stop]).to(device)
            for held, device in zip(ranges, devices, strict=True)
        )
        self._devices = tuple(devices)

    def forward(self, images_nchw: Tensor) -> Tensor:
        """Return the outputs that the whole network would."""
        return torch.cat([self._one(images_nchw[k : k + 1]) for k in range(len(images_nchw))])

    def _one(self, value: Tensor) -> Tensor:
        for stage, device in zip(self.stages, self._devices, strict=True):
            value = stage(value.to(device, non_blocking=True))
        return value
