"""The ResNet-v2 that the authors of GEMS published, layer by layer: for comparison only, never the default.

    stem     3x3 convolution, BatchNorm, ReLU                            16 channels
    stage 0  n bottlenecks, stride 1                                     64 channels out
    stage 1  n bottlenecks, the first with stride 2                     128 channels out
    stage 2  n bottlenecks, the first with stride 2                     256 channels out
    head     BatchNorm, ReLU, 8x8 average pool, linear, softmax         num_classes

What differs from the standard network (`training.models.resnet_v2`), all of it reproduced here:

- A bottleneck is 3x3, 3x3, 1x1 (not 1x1, 3x3, 1x1), so an image costs more than twice as many operations.
- The head pools 8x8 squares instead of everything: the linear layer reads 256 · (side / 32)² features, 262,144 at
  1024 px. The network fits one tile size only.
- Convolutions have biases, and initial weights are PyTorch's defaults.
- Every convolution brings two BatchNorm layers, one for its input and one for its output, and uses one or none of
  them. The unused ones count as parameters. Here they are frozen and without running statistics, which changes
  no result.
- The output is probabilities. A cross-entropy loss applies another softmax to them, as in the published training: a
  double softmax, whose gradients are small and whose loss for 10 classes stays above 1.46.

Depth 110 for 10 classes at 1024 px has 9,803,888 parameters and takes 1769 GFLOP per image forward; depth 1001 has
70,271,504. Layers are made in the published order, so one seed gives the published weights; names of the state differ.

Source: github.com/OSU-Nowlab/MPI4DL, src/models/resnet.py at b8a3d4f, `get_resnet_v2`. Revision 4ffe46e also builds a
shortcut in every bottleneck without using it (10,774,704 parameters); that is not reproduced.
"""

from torch import Tensor, nn

_STEM_CHANNELS = 16
_STAGES = ((16, 64), (64, 128), (128, 256))
"""(channels inside a bottleneck, channels of its output) of each stage."""
_STRIDE = 4
"""Pixels of the image per pixel before the pool, along one side."""
_POOL = 8


class Stem(nn.Module):
    """Convolution, BatchNorm, ReLU: (N, in_channels, H, W) to (N, 16, H, W)."""

    def __init__(self, in_channels: int):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, _STEM_CHANNELS, 3, padding=1)
        self.norm = nn.BatchNorm2d(_STEM_CHANNELS)
        # A normalisation keeps its input for backward, not its output, so the ReLU after it may overwrite that.
        self.relu = nn.ReLU(inplace=True)
        self.unused = nn.ModuleList([_unused_norm(in_channels)])

    def forward(self, x_nchw: Tensor) -> Tensor:
        result: Tensor = self.relu(self.norm(self.conv(x_nchw)))
        return result


class Convolution(nn.Module):
    """A convolution with bias, after BatchNorm and ReLU if `activated`: (N, C, H, W); `stride` divides H and W."""

    def __init__(self, in_channels: int, out_channels: int, kernel: int, *, stride: int = 1, activated: bool = True):
        super().__init__()
        self.norm = nn.BatchNorm2d(in_channels) if activated else nn.Identity()
        self.relu = nn.ReLU(inplace=True) if activated else nn.Identity()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel, stride=stride, padding=kernel // 2)
        unused_channels = [out_channels] if activated else [in_channels, out_channels]
        self.unused = nn.ModuleList(_unused_norm(channels) for channels in unused_channels)

    def forward(self, x_nchw: Tensor) -> Tensor:
        result: Tensor = self.conv(self.relu(self.norm(x_nchw)))
        return result


class Bottleneck(nn.Module):
    """Pre-activation residual block: input and output are (N, C, H, W); `stride` divides H and W.

    `activated` is false for the very first block, whose input the stem has already normalised. The first block of a
    stage is `projected`: its shortcut is a convolution.
    """

    def __init__(
        self, in_channels: int, channels: int, out_channels: int, *, stride: int, activated: bool, projected: bool
    ):
        super().__init__()
        self.layer1 = Convolution(in_channels, channels, 3, stride=stride, activated=activated)
        self.layer2 = Convolution(channels, channels, 3)
        self.layer3 = Convolution(channels, out_channels, 1)
        self.shortcut = (
            Convolution(in_channels, out_channels, 1, stride=stride, activated=False) if projected else nn.Identity()
        )

    def forward(self, x_nchw: Tensor) -> Tensor:
        out_nchw = self.layer3(self.layer2(self.layer1(x_nchw)))
        # A convolution does not keep its output.
        result: Tensor = out_nchw.add_(self.shortcut(x_nchw))
        return result


class Head(nn.Module):
    """(N, channels, side_px / 4, side_px / 4) to class probabilities (N, num_classes)."""

    def __init__(self, channels: int, num_classes: int, *, side_px: int):
        super().__init__()
        self.side_px = side_px
        self.norm = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)
        self.pool = nn.AvgPool2d(_POOL)
        self.linear = nn.Linear(channels * (side_px // (_STRIDE * _POOL)) ** 2, num_classes)

    def forward(self, x_nchw: Tensor) -> Tensor:
        """Raises ValueError for images that are not side_px x side_px: other shapes could have as many features."""
        height_px, width_px = (_STRIDE * side for side in x_nchw.shape[-2:])
        if (height_px, width_px) != (self.side_px, self.side_px):
            raise ValueError(
                f"this network was built for tiles of {self.side_px}x{self.side_px} px, got {width_px}x{height_px}; "
                "build it with their side_px, or use the standard network, which takes any size"
            )
        features_nf = self.pool(self.relu(self.norm(x_nchw))).flatten(1)
        result: Tensor = self.linear(features_nf).softmax(dim=1)
        return result


def gems_public_blocks(*, depth: int, num_classes: int, side_px: int, in_channels: int = 3) -> list[nn.Module]:
    """Make the blocks of the published network, to be cut into stages anywhere between two of them.

    Args:
        depth: number of weighted layers, 9n + 2 (11, 20, 29, ..., 110, ..., 1001).
        side_px: width and height of the tiles, a multiple of 32.

    Returns:
        3n + 2 modules: the stem, 3n bottlenecks and the head. Run one after the other they turn images
        (N, in_channels, side_px, side_px) into class probabilities (N, num_classes), not logits.

    Raises:
        ValueError: no ResNet-v2 has this depth, or the head's pool does not divide such tiles.
    """
    per_stage, rest = divmod(depth - 2, 9)
    if rest or per_stage < 1:
        below = max(11, 9 * per_stage + 2)
        raise ValueError(f"depth of a gems-public network is 9n + 2, got {depth}; use {below} or {below + 9}")
    multiple_px = _STRIDE * _POOL
    if side_px < multiple_px or side_px % multiple_px:
        below = max(multiple_px, side_px // multiple_px * multiple_px)
        raise ValueError(
            f"tiles of a gems-public network need a side that is a multiple of {multiple_px} px, got {side_px}; "
            f"use {below} or {below + multiple_px}, or the standard network, which takes any size"
        )
    blocks: list[nn.Module] = [Stem(in_channels)]
    width = _STEM_CHANNELS
    for stage, (channels, out_channels) in enumerate(_STAGES):
        for index in range(per_stage):
            stride = 2 if stage > 0 and index == 0 else 1
            activated = stage > 0 or index > 0
            blocks.append(
                Bottleneck(width, channels, out_channels, stride=stride, activated=activated, projected=index == 0)
            )
            width = out_channels
    blocks.append(Head(width, num_classes, side_px=side_px))
    return blocks


def _unused_norm(channels: int) -> nn.BatchNorm2d:
    """A layer that exists only to be counted; frozen, so that no optimizer decays it and no gradient is expected."""
    norm = nn.BatchNorm2d(channels, track_running_stats=False)
    norm.requires_grad_(False)
    return norm
