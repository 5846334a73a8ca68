"""Small networks that are hard to split: residuals, normalisations of every kind, tuples, views with gaps."""

import functools
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from training.models.resnet_v2 import resnet_v2_blocks
from training.parallel.branches import Branches, branch_dropout

NUM_CLASSES = 3


def small_resnet() -> list[nn.Module]:
    torch.manual_seed(7)
    return resnet_v2_blocks(depth=11, num_classes=NUM_CLASSES)


def group_norm_resnet() -> list[nn.Module]:
    torch.manual_seed(7)
    return resnet_v2_blocks(depth=11, num_classes=NUM_CLASSES, norm="group")


class Fork(nn.Module):
    """Module that returns a tuple: two branches of different size, and a tensor that needs no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.fine = nn.Conv2d(3, 4, 3, padding=1)
        self.coarse = nn.Conv2d(3, 6, 3, stride=2, padding=1)

    def forward(self, x_nchw: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.fine(x_nchw), self.coarse(x_nchw), torch.arange(4.0).view(1, 4, 1, 1)


class Shift(nn.Module):
    """Module that takes and returns a tuple; its first output is a view with gaps in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(4)

    def forward(self, branches: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        fine_nchw, coarse_nchw, offset = branches
        return (self.norm(fine_nchw) + offset)[..., ::2], coarse_nchw


class Join(nn.Module):
    """Module that joins both branches."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(10, NUM_CLASSES)

    def forward(self, branches: tuple[Tensor, Tensor]) -> Tensor:
        return self.head(torch.cat([branch.mean((2, 3)) for branch in branches], dim=1))


def tuple_network() -> list[nn.Module]:
    torch.manual_seed(7)
    return [Fork(), Shift(), Join()]


def odd_norms_network() -> list[nn.Module]:
    """Network with cumulative, untracked and weightless BatchNorm, and a frozen convolution."""
    torch.manual_seed(7)
    blocks = [
        nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8, momentum=None), nn.ReLU()),
        nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8, track_running_stats=False), nn.ReLU()),
        nn.Sequential(nn.Conv2d(8, 8, 3, padding=1).requires_grad_(False), nn.BatchNorm2d(8, affine=False), nn.ReLU()),
        nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, NUM_CLASSES)),
    ]
    return list(blocks)


def dropout_resnet() -> list[nn.Module]:
    """Residual blocks with dropout between them, of single values and of whole channels."""
    torch.manual_seed(7)
    stem, *middle, head = resnet_v2_blocks(depth=11, num_classes=NUM_CLASSES)
    return [stem, nn.Sequential(middle[0], nn.Dropout2d(0.3)), *middle[1:], nn.Sequential(nn.Dropout(0.2), head)]


def vgg_like_network() -> list[nn.Module]:
    """Plain convolutions, one without padding; pools, one with partial windows; fully connected layers."""
    torch.manual_seed(7)
    blocks = [
        nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(3, 2, ceil_mode=True)),
        nn.Sequential(nn.Conv2d(8, 10, 3, padding=(0, 1)), nn.BatchNorm2d(10), nn.LeakyReLU()),
        nn.Sequential(nn.AdaptiveMaxPool2d((3, 2)), nn.Flatten(), nn.Linear(60, 10)),
        nn.Sequential(nn.ReLU(), nn.Linear(10, NUM_CLASSES)),
    ]
    return list(blocks)


class Down(nn.Module):
    """Module that halves the last of its inputs, and passes all on."""

    def __init__(self, channels_in: int, channels: int) -> None:
        super().__init__()
        self.halve = nn.Sequential(nn.MaxPool2d(2, ceil_mode=True), nn.Conv2d(channels_in, channels, 3, padding=1))
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return *inputs, torch.relu(self.norm(self.halve(inputs[-1])))


class Finest(nn.Module):
    """Module that returns a tuple of one."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, channels, 3, padding=1), nn.BatchNorm2d(channels)

    def forward(self, x_nchw: Tensor) -> tuple[Tensor]:
        return (torch.relu(self.norm(self.first(x_nchw))),)


class Up(nn.Module):
    """Module that joins the last of its inputs with the one before it, at its size."""

    def __init__(self, channels_in: int, channels: int, mode: str) -> None:
        super().__init__()
        self.join, self.mode = nn.Conv2d(channels_in, channels, 3, padding=1), mode

    def forward(self, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...] | Tensor:
        *others, fine, coarse = inputs
        coarse = nn.functional.interpolate(coarse, size=fine.shape[-2:], mode=self.mode)
        joined = torch.relu(self.join(torch.cat([fine, coarse], 1)))
        return (*others, joined) if others else joined


def unet_like_network() -> list[nn.Module]:
    """Blocks that hand on several images of different sizes, and join them later."""
    torch.manual_seed(7)
    head = nn.Sequential(nn.Conv2d(6, 6, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, NUM_CLASSES))
    return [Finest(6), Down(6, 8), Down(8, 10), Up(18, 8, "bilinear"), Up(14, 6, "nearest"), head]


class HeadGroup(nn.Module):
    """Two heads of attention: a branch."""

    def __init__(self, width: int, head_dim: int) -> None:
        super().__init__()
        self.to_qkv, self.out = nn.Linear(width, 6 * head_dim), nn.Linear(2 * head_dim, width, bias=False)


class Attention(nn.Module):
    """Pre-norm attention whose heads are branches, with dropout inside and outside of them."""

    def __init__(self, width: int, num_branches: int, head_dim: int = 3) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.heads = Branches([HeadGroup(width, head_dim) for _ in range(num_branches)])
        self.bias = nn.Parameter(torch.randn(width) / 10)
        self.drop = nn.Dropout(0.2)

    def forward(self, x_ntc: Tensor) -> Tensor:
        return x_ntc + self.drop(self.heads.total(self._mixed, self.norm(x_ntc)) + self.bias)

    def _mixed(self, heads: Mapping[int, HeadGroup], x_ntc: Tensor) -> Tensor:
        terms = []
        for number, head in heads.items():
            query, key, value = (x.unflatten(2, (2, -1)).transpose(1, 2) for x in head.to_qkv(x_ntc).chunk(3, dim=2))
            mixed = nn.functional.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)
            terms.append(head.out(branch_dropout(mixed, 0.3, [number], training=self.training)))
        return functools.reduce(torch.add, terms)


class Towers(nn.Module):
    """Convolutions of several sizes, each with BatchNorm, whose sum follows a shortcut."""

    def __init__(self, channels: int, sizes: Sequence[int]) -> None:
        super().__init__()
        self.towers = Branches([
            nn.Sequential(nn.Conv2d(channels, channels, size, padding=size // 2), nn.BatchNorm2d(channels), nn.ReLU())
            for size in sizes
        ])  # fmt: skip

    def forward(self, x_nchw: Tensor) -> Tensor:
        return x_nchw + self.towers.total(_sum_of_towers, x_nchw)


def _sum_of_towers(towers: Mapping[int, nn.Module], x_nchw: Tensor) -> Tensor:
    return functools.reduce(torch.add, [tower(x_nchw) for tower in towers.values()])


class Tokens(nn.Module):
    """Patches as tokens, with an embedding that is added to each."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.patch, self.norm = nn.Conv2d(channels, width, 4, 4), nn.BatchNorm2d(width)
        self.embedding = nn.Parameter(torch.randn(1, 1, width))

    def forward(self, x_nchw: Tensor) -> Tensor:
        return self.norm(self.patch(x_nchw)).flatten(2).transpose(1, 2) + self.embedding


class TokenHead(nn.Module):
    """Classes from the mean token."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, NUM_CLASSES)

    def forward(self, x_ntc: Tensor) -> Tensor:
        return self.linear(x_ntc.mean(1))


def branching_network() -> list[nn.Module]:
    """Towers and heads of attention as branches: three, and five, so that no number of parts divides both."""
    torch.manual_seed(7)
    first = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU())
    return [first, Towers(6, (1, 3, 5)), Tokens(6, 8), Attention(8, 5), Attention(8, 3), TokenHead(8)]
