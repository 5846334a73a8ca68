"""Small networks that are hard to split or to recompute, and one way to train them on one rank."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from training import engine
from training.engine.engine import Engine
from training.engine.recompute import Recompute
from training.models.resnet_v2 import resnet_v2_blocks

NUM_CLASSES = 3
HW = (12, 20)
"""Size of the images: not square."""


class Fork(nn.Module):
    """Module that returns fine features and a coarse copy: the start of a small U-Net's skip connection."""

    def __init__(self, channels: int):
        super().__init__()
        self.fine = nn.Conv2d(3, channels, 3, padding=1)
        self.coarse = nn.Conv2d(channels, 2 * channels, 3, stride=2, padding=1)

    def forward(self, x_nchw: Tensor) -> tuple[Tensor, Tensor]:
        fine_nchw = torch.relu(self.fine(x_nchw))
        return fine_nchw, self.coarse(fine_nchw)


class Deepen(nn.Module):
    """Module that processes the coarse features and passes the fine ones on unchanged."""

    def __init__(self, channels: int):
        super().__init__()
        self.norm = nn.BatchNorm2d(2 * channels)
        self.conv = nn.Conv2d(2 * channels, 2 * channels, 3, padding=1)

    def forward(self, features: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        fine_nchw, coarse_nchw = features
        return fine_nchw, torch.relu(self.conv(self.norm(coarse_nchw)))


class Join(nn.Module):
    """Module that joins both: the end of the skip connection."""

    def __init__(self, channels: int):
        super().__init__()
        self.head = nn.Conv2d(3 * channels, NUM_CLASSES, 1)

    def forward(self, features: tuple[Tensor, Tensor]) -> Tensor:
        fine_nchw, coarse_nchw = features
        upper_nchw = nn.functional.interpolate(coarse_nchw, size=fine_nchw.shape[2:])
        return self.head(torch.cat([fine_nchw, upper_nchw], dim=1)).mean((2, 3))


def unet() -> list[nn.Module]:
    return [Fork(4), Deepen(4), nn.Identity(), Deepen(4), Join(4)]


def resnet() -> list[nn.Module]:
    return resnet_v2_blocks(depth=11, num_classes=NUM_CLASSES)


class Head(nn.Module):
    """Mean over the image, then a score per class."""

    def __init__(self, channels: int):
        super().__init__()
        self.linear = nn.Linear(channels, NUM_CLASSES)

    def forward(self, x_nchw: Tensor) -> Tensor:
        return self.linear(x_nchw.mean((2, 3)))


def relu_chain() -> list[nn.Module]:
    """Blocks that end with an operation that saves its output, which the next block saves as its input."""
    widths = (3, 4, 6, 5)
    chain = [nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.ReLU(inplace=True)) for a, b in pairwise(widths)]
    return [*chain, Head(5)]


def dropout_network() -> list[nn.Module]:
    return [
        nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.Dropout(0.3), nn.ReLU()),
        nn.Dropout2d(0.5),
        nn.Sequential(nn.Conv2d(6, 6, 3, padding=1), nn.BatchNorm2d(6), nn.Dropout(0.5)),
        Head(6),
    ]


class Strongest(nn.Module):
    """Module that returns the features and, as integers, the strongest channel at every position."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 5, 3, padding=1)

    def forward(self, x_nchw: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        features_nchw = self.conv(x_nchw)
        return features_nchw, features_nchw.argmax(dim=1, keepdim=True), features_nchw > 0


class Gate(nn.Module):
    """Module that looks up the strongest channel again."""

    def forward(self, value: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        features_nchw, strongest_n1hw, positive_nchw = value
        return features_nchw.gather(1, strongest_n1hw) + features_nchw * positive_nchw


def integer_network() -> list[nn.Module]:
    return [Strongest(), nn.Identity(), Gate(), Head(5)]


def frozen_network() -> list[nn.Module]:
    """Network for fine-tuning: the first blocks are frozen, one of them in evaluation mode."""
    blocks = resnet()
    for block in blocks[:2]:
        block.requires_grad_(False).eval()
    blocks[3].requires_grad_(False)
    return blocks


def shared_network() -> list[nn.Module]:
    """Network with one convolution in two places."""
    shared = nn.Conv2d(6, 6, 3, padding=1)
    return [nn.Conv2d(3, 6, 1), shared, nn.Tanh(), shared, Head(6)]


def norms_network() -> list[nn.Module]:
    """Network with every normalisation that has its own statistics, which bf16 leaves in the weights' type."""
    return [
        nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.GroupNorm(2, 6), nn.ReLU()),
        nn.Sequential(nn.Conv2d(6, 6, 3, padding=1), nn.LayerNorm([6, *HW]), nn.ReLU()),
        nn.Sequential(nn.Conv2d(6, 6, 3, padding=1), nn.InstanceNorm2d(6, affine=True), nn.ReLU()),
        nn.Sequential(nn.Conv2d(6, 6, 3, padding=1), nn.BatchNorm2d(6, affine=False), nn.GroupNorm(3, 6, affine=False)),
        Head(6),
    ]


class HandsOn(nn.Module):
    """Module that passes on a tensor that is never used."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 1)

    def forward(self, x_nchw: Tensor) -> tuple[Tensor, Tensor]:
        features_nchw = self.conv(x_nchw)
        return features_nchw, features_nchw.square()


class First(nn.Module):
    def forward(self, pair: tuple[Tensor, Tensor]) -> Tensor:
        return pair[0]


def handing_network() -> list[nn.Module]:
    return [HandsOn(), First(), Head(4)]


NETWORKS: dict[str, Callable[[], list[nn.Module]]] = {
    "resnet": resnet,
    "relu-chain": relu_chain,
    "unet": unet,
    "dropout": dropout_network,
    "integers": integer_network,
    "frozen": frozen_network,
    "shared": shared_network,
    "handed-on": handing_network,
    "norms": norms_network,
}


def make_blocks(network: str) -> list[nn.Module]:
    torch.manual_seed(7)
    return NETWORKS[network]()


def make_batch(num_microbatches: int, *, samples: int = 2, last: int | None = None) -> engine.TensorBatch:
    """Make random images and classes; the last micro-batch may be smaller."""
    generator = torch.Generator().manual_seed(num_microbatches)
    count = samples * (num_microbatches - 1) + (last or samples)
    images_nchw = torch.randn(count, 3, *HW, generator=generator)
    classes_n = torch.randint(0, NUM_CLASSES, (count,), generator=generator)
    parts = zip(images_nchw.split(samples), classes_n.split(samples), strict=True)
    # Separate memory per micro-batch, as from a loader: a view would count as the whole batch.
    return engine.TensorBatch(tuple((images.clone(), classes.clone()) for images, classes in parts))


def loss(logits_nk: Tensor, classes_n: Tensor) -> Tensor:
    return nn.functional.cross_entropy(logits_nk.float(), classes_n, reduction="sum")


def plan_of(blocks: list[nn.Module], strategy: str = "single", **options: Any) -> engine.Plan:
    """Plan that cuts the blocks evenly."""
    sgd = {"make_optimizer": lambda weights: torch.optim.SGD(weights, lr=0.05, momentum=0.9)}
    return engine.make_plan(strategy, costs=[1.0] * len(blocks), **{**sgd, **options})


def train(network: str, recompute: Recompute | None = None, *, steps: int = 2, **options: Any) -> dict[str, Any]:
    """Train on one rank, with the same random numbers for every plan."""
    blocks = make_blocks(network)
    one = Engine(blocks, plan_of(blocks, recompute=recompute, num_microbatches=3, **options), count_bytes=True)
    torch.manual_seed(11)
    results = [one.train_step(make_batch(3), loss) for _ in range(steps)]
    return {
        "losses": torch.tensor([value for result in results for value in result.losses]),
        **one.full_state_dict(),
        "random numbers": torch.get_rng_state(),
    }
