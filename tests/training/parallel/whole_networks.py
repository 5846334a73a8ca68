"""Networks with every kind of layer that can be in parts, and their gradients in virtual parts and whole."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from training.models.resnet_v2 import resnet_v2
from training.parallel.link import VirtualLink
from training.parallel.parted import Split
from training.parallel.wrap import Form, Parts, aliases


class UNetLike(nn.Module):
    """Odd windows, dilation, groups, pools with partial windows, interpolation both ways, dropout, a gate."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 8, 5, padding=2), nn.BatchNorm2d(8), nn.ReLU(True))
        self.maximum = nn.MaxPool2d(3, 2, 1, ceil_mode=True)
        self.second = nn.Sequential(nn.Conv2d(8, 16, 3, padding=2, dilation=2), nn.GroupNorm(4, 16), nn.GELU())
        self.average = nn.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False)
        self.grouped = nn.Conv2d(16, 16, 3, stride=2, padding=1, groups=4)
        self.joined, self.last = nn.Conv2d(32, 8, 3, padding="same"), nn.Conv2d(16, 4, 1)
        self.single, self.channels = nn.Dropout(0.3), nn.Dropout2d(0.3)
        self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(8, 8, 1), nn.Sigmoid())

    def forward(self, x_nchw: Tensor) -> Tensor:
        fine = self.first(x_nchw)
        middle = self.second(self.maximum(fine))
        coarse = self.channels(functional.silu(self.grouped(self.average(middle))))
        coarse = functional.interpolate(coarse, size=middle.shape[-2:], mode="bilinear", align_corners=False)
        joined = self.single(self.joined(torch.cat([coarse, middle], 1)))
        joined = functional.interpolate(joined, size=(fine.shape[2], fine.shape[3]), mode="nearest")
        output: Tensor = self.last(torch.cat([joined * self.gate(joined), fine], dim=1))
        return output.flatten(1).mean(1, keepdim=True) + (2 * output).sum((2, 3)).mean(1, keepdim=True) / 100


def vgg_like() -> nn.Module:
    """Plain convolutions without padding, a pool to five by three, fully connected layers."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8),
        nn.LeakyReLU(), nn.AdaptiveMaxPool2d((5, 3)), nn.Flatten(), nn.Linear(120, 10), nn.BatchNorm1d(10),
        nn.Linear(10, 2),
    )  # fmt: skip


NETWORKS = {
    "ResNet-v2": lambda: resnet_v2(depth=11, num_classes=2),
    "ResNet-v2 with groups": lambda: resnet_v2(depth=11, num_classes=2, norm="group"),
    "VGG-like": vgg_like,
    "U-Net-like": UNetLike,
}


@dataclass(frozen=True)
class Result:
    """Everything that a forward and backward gave."""

    output: Tensor
    of_input: Tensor
    of_weights: list[Tensor]
    buffers: list[Tensor]


def network(name: str, *, channels_last: bool, dtype: torch.dtype = torch.float64) -> nn.Module:
    torch.manual_seed(1)
    made: nn.Module = NETWORKS[name]().to(dtype)
    return made.to(memory_format=torch.channels_last) if channels_last else made


def images(height: int, *, channels_last: bool, dtype: torch.dtype = torch.float64) -> Tensor:
    torch.manual_seed(2)
    images_nchw = torch.randn(2, 3, height, 29, dtype=dtype)
    return images_nchw.contiguous(memory_format=torch.channels_last) if channels_last else images_nchw


def whole(made: nn.Module, x_nchw: Tensor) -> Result:
    """In one process, by autograd alone."""
    made, x_nchw = copy.deepcopy(made), x_nchw.clone().requires_grad_()
    torch.manual_seed(5)
    output = made(x_nchw)
    output.square().sum().backward()
    assert x_nchw.grad is not None
    of_weights = [weight.grad for weight in made.parameters() if weight.grad is not None]
    return Result(output.detach(), x_nchw.grad, of_weights, list(made.buffers()))


def in_parts(made: nn.Module, x_nchw: Tensor, num_parts: int, split: Split) -> Result:
    """In virtual parts; every part must have the same output."""
    made = copy.deepcopy(made)
    stand_for = aliases(made, num_parts)
    parts = Parts(VirtualLink(num_parts), split, stand_for)
    rows, form = parts.cut_input(x_nchw)
    # Of a tensor that is not cut, each part's copy has a summand of the gradient.
    rows = tuple(row.detach().clone().requires_grad_() for row in rows)
    torch.manual_seed(5)
    outputs, form = parts.call(made, rows, form)
    wholes = parts.whole_tensors(outputs, form)
    assert all(torch.equal(each, wholes[0]) for each in wholes)
    wholes[0].square().sum().backward()
    gradients = [row.grad for row in rows if row.grad is not None]
    return Result(
        wholes[0].detach(),
        torch.cat(gradients, 2) if form_is_cut(x_nchw, num_parts, split) else sum_of(gradients),
        [
            sum_of([each.grad for each in stand_for[id(weight)] if each.grad is not None])
            for weight in made.parameters()
        ],
        list(made.buffers()),
    )


def form_is_cut(x_nchw: Tensor, num_parts: int, split: Split) -> bool:
    return split == "rows" and x_nchw.shape[2] >= num_parts


def sum_of(tensors: list[Tensor]) -> Tensor:
    return torch.stack(tensors).sum(0)


def distance(a: Tensor, b: Tensor) -> float:
    """Relative, by norm; absolute where there is nothing to compare with."""
    norm = float(b.detach().double().norm())
    return float((a.detach().double() - b.detach().double()).norm()) / (norm if norm > 1e-9 else 1.0)


def worst(a: Result, b: Result) -> float:
    """The largest distance of outputs, of any gradient and of any buffer."""
    pairs = [(a.output, b.output), (a.of_input, b.of_input)]
    pairs += [*zip(a.of_weights, b.of_weights, strict=True), *zip(a.buffers, b.buffers, strict=True)]
    return max(distance(mine, theirs) for mine, theirs in pairs)


__all__ = ["NETWORKS", "Form", "images", "in_parts", "network", "whole", "worst"]
