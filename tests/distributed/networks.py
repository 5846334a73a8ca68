"""Small networks that are hard to split: residuals, normalisations of every kind, tuples, views with gaps."""

import torch
from torch import Tensor, nn

from training.models.resnet_v2 import resnet_v2_blocks

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
