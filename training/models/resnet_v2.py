"""ResNet-v2 with pre-activation bottlenecks for images, depth 9n + 2, as a flat list of blocks.

    stem     3x3 convolution, normalisation, ReLU                16 channels
    level 0  n bottlenecks, stride 1                             64 channels out
    level 1  n bottlenecks, the first with stride 2             128 channels out
    level 2  n bottlenecks, the first with stride 2             256 channels out
    head     normalisation, ReLU, global average pool, linear   num_classes

A bottleneck is 1x1, 3x3, 1x1, each convolution after its own normalisation and ReLU, without biases. There is no
max-pool, so a 1024 px tile keeps its full size through the first level: that is why one tile needs 19.7 GB of
activations and why GEMS (SC20) splits this network over ranks. Depth 110 with two classes has 3,289,554 parameters.

Sources: He et al., "Identity Mappings in Deep Residual Networks" (ECCV 2016), section 5; the Keras CIFAR example.
"""

from torch import Tensor, nn

_STEM_CHANNELS = 16
_LEVELS = ((16, 64), (64, 128), (128, 256))
"""(channels inside a bottleneck, channels of its output) of each level."""
_GROUP_CHANNELS = 16
"""Channels per group of GroupNorm: Wu & He, "Group Normalization" (ECCV 2018), table 3."""


class Bottleneck(nn.Module):
    """Pre-activation residual block: input and output are (N, C, H, W); `stride` divides H and W."""

    def __init__(self, in_channels: int, channels: int, out_channels: int, *, stride: int, norm: str, first: bool):
        super().__init__()
        # The stem has already normalised the input of the very first block.
        self.norm1 = nn.Identity() if first else make_norm(norm, in_channels)
        self.relu1 = nn.Identity() if first else nn.ReLU(inplace=True)
        self.conv1 = nn.Conv2d(in_channels, channels, 1, stride=stride, bias=False)
        self.norm2 = make_norm(norm, channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm3 = make_norm(norm, channels)
        self.conv3 = nn.Conv2d(channels, out_channels, 1, bias=False)
        # A normalisation keeps its input for backward, not its output, so the ReLU after it may overwrite that.
        self.relu = nn.ReLU(inplace=True)
        changes_shape = stride != 1 or in_channels != out_channels
        self.shortcut = nn.Conv2d(in_channels, out_channels, 1, stride=stride, bias=False) if changes_shape else None

    def forward(self, x_nchw: Tensor) -> Tensor:
        out_nchw = self.conv1(self.relu1(self.norm1(x_nchw)))
        out_nchw = self.conv2(self.relu(self.norm2(out_nchw)))
        out_nchw = self.conv3(self.relu(self.norm3(out_nchw)))
        shortcut_nchw = x_nchw if self.shortcut is None else self.shortcut(x_nchw)
        # A convolution does not keep its output either.
        result: Tensor = out_nchw.add_(shortcut_nchw)
        return result


def resnet_v2_blocks(*, depth: int, num_classes: int, norm: str = "batch", in_channels: int = 3) -> list[nn.Module]:
    """Make the blocks of a ResNet-v2, to be cut into stages anywhere between two of them.

    Args:
        depth: number of weighted layers, 9n + 2 (11, 20, 29, ..., 110, ...).
        norm: "batch", or "group" for micro-batches of one tile.

    Returns:
        3n + 2 modules: the stem, 3n bottlenecks and the head. Run one after the other they turn images
        (N, in_channels, H, W) into logits (N, num_classes).

    Raises:
        ValueError: no ResNet-v2 has this depth, or the normalisation is unknown.
    """
    per_level, rest = divmod(depth - 2, 9)
    if rest or per_level < 1:
        below = max(11, 9 * per_level + 2)
        raise ValueError(f"depth of a ResNet-v2 is 9n + 2, got {depth}; use {below} or {below + 9}")
    blocks: list[nn.Module] = [
        nn.Sequential(
            nn.Conv2d(in_channels, _STEM_CHANNELS, 3, padding=1, bias=False),
            make_norm(norm, _STEM_CHANNELS),
            nn.ReLU(inplace=True),
        )
    ]
    width = _STEM_CHANNELS
    for level, (channels, out_channels) in enumerate(_LEVELS):
        for index in range(per_level):
            stride = 2 if level > 0 and index == 0 else 1
            first = level == 0 and index == 0
            blocks.append(Bottleneck(width, channels, out_channels, stride=stride, norm=norm, first=first))
            width = out_channels
    blocks.append(
        nn.Sequential(
            make_norm(norm, width),
            nn.ReLU(inplace=True),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(width, num_classes),
        )
    )
    for block in blocks:
        block.apply(_initialise)
    return blocks


def resnet_v2(*, depth: int, num_classes: int, norm: str = "batch", in_channels: int = 3) -> nn.Sequential:
    """The same network as one module; its state names are `<block index>.<parameter>`. See `resnet_v2_blocks`."""
    return nn.Sequential(*resnet_v2_blocks(depth=depth, num_classes=num_classes, norm=norm, in_channels=in_channels))


def make_norm(norm: str, channels: int) -> nn.Module:
    """Normalisation over `channels`; all widths of this network are multiples of 16."""
    if norm == "batch":
        return nn.BatchNorm2d(channels)
    if norm == "group":
        return nn.GroupNorm(channels // _GROUP_CHANNELS, channels)
    raise ValueError(f'norm must be "batch" or "group", got {norm!r}')


def _initialise(module: nn.Module) -> None:
    # A meta tensor needs no values, and torch would import its compiler to draw them, which takes over a second.
    if isinstance(module, nn.Conv2d) and not module.weight.is_meta:
        nn.init.kaiming_normal_(module.weight, mode="fan_in", nonlinearity="relu")
