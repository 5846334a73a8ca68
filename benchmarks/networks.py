"""Networks of other programs, for benchmarks; ours is in training/models."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pipeline.inference.predictor import Predictor
from training.inference import Classifier, RunOn
from training.models.build import probabilities
from training.models.resnet_v2 import resnet_v2
from training.predict.forward_only import ForwardOnly
from training.predict.numerics import ready_to_predict

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut; names as in torchvision, so that its weights fit."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        changes = stride != 1 or channels_in != channels
        shortcut = (nn.Conv2d(channels_in, channels, 1, stride, bias=False), nn.BatchNorm2d(channels))
        self.downsample = nn.Sequential(*shortcut) if changes else None

    def forward(self, x_nchw: Tensor) -> Tensor:
        y_nchw = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x_nchw)))))
        return self.relu(y_nchw + (x_nchw if self.downsample is None else self.downsample(x_nchw)))


def resnet18(num_classes: int) -> nn.Sequential:
    """He et al., CVPR 2016, table 1, as a chain of blocks."""
    stem = (nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1))
    blocks: list[nn.Module] = [nn.Sequential(*stem)]
    channels_in = 64
    for channels, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        blocks += [BasicBlock(channels_in, channels, stride), BasicBlock(channels, channels, 1)]
        channels_in = channels
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, num_classes))
    return nn.Sequential(*blocks, head)


def torchvision_name(key: str) -> str:
    """Name in torchvision of this entry of `resnet18`'s state."""
    block, rest = key.split(".", 1)
    if block == "0":
        return {"0": "conv1", "1": "bn1"}[rest[0]] + rest[1:]
    if block == "9":
        return "fc" + rest[1:]
    return f"layer{(int(block) + 1) // 2}.{(int(block) - 1) % 2}.{rest}"


def resnet110(num_classes: int) -> nn.Sequential:
    """The network that gemslide trains."""
    return resnet_v2(depth=110, num_classes=num_classes)


def predictor_of(
    network: nn.Module, name: str, *, tile_px: int, mpp: float, num_classes: int, run_on: RunOn
) -> Predictor:
    """Predictor of a network, as the pipeline runs a trained one."""
    devices = [torch.device(part) for part in run_on.device.split("+")]
    ready = ready_to_predict(network, devices, run_on.numerics, input_shape=(1, 3, tile_px, tile_px))
    return Predictor(
        Classifier(
            model_id=name,
            weights_sha256=None,
            class_names=tuple(f"class {number}" for number in range(num_classes)),
            tile_px=tile_px,
            mpp=mpp,
            mean=MEAN,
            std=STD,
            split_sha256="",
            outputs="logits",
            runtime="torch",
            stain=None,
            hues=None,
            focus=None,
            run_on=run_on,
            forward_only=ForwardOnly(
                network=ready,
                finish=lambda outputs_nk: probabilities(outputs_nk, "logits"),
                mean=MEAN,
                std=STD,
                device=devices[0],
                numerics=run_on.numerics,
            ),
        )
    )


class BottleneckV1(nn.Module):
    """1x1, 3x3, 1x1 with a shortcut, the stride in the middle (He et al., CVPR 2016, in torchvision's variant)."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        out = 4 * channels
        self.conv1, self.bn1 = nn.Conv2d(channels_in, channels, 1, bias=False), nn.BatchNorm2d(channels)
        self.conv2, self.bn2 = nn.Conv2d(channels, channels, 3, stride, 1, bias=False), nn.BatchNorm2d(channels)
        self.conv3, self.bn3 = nn.Conv2d(channels, out, 1, bias=False), nn.BatchNorm2d(out)
        self.relu = nn.ReLU(inplace=True)
        shortcut = (nn.Conv2d(channels_in, out, 1, stride, bias=False), nn.BatchNorm2d(out))
        self.downsample = nn.Sequential(*shortcut) if stride != 1 or channels_in != out else None

    def forward(self, x_nchw: Tensor) -> Tensor:
        y_nchw = self.relu(self.bn1(self.conv1(x_nchw)))
        y_nchw = self.bn3(self.conv3(self.relu(self.bn2(self.conv2(y_nchw)))))
        return self.relu(y_nchw + (x_nchw if self.downsample is None else self.downsample(x_nchw)))


def resnet50(num_classes: int) -> nn.Sequential:
    """He et al., CVPR 2016, table 1, as a chain of blocks: 26 million weights."""
    return _resnet_v1((3, 4, 6, 3), num_classes)


def resnet152(num_classes: int) -> nn.Sequential:
    """The deepest of the same table: 60 million weights."""
    return _resnet_v1((3, 8, 36, 3), num_classes)


def _resnet_v1(counts: tuple[int, int, int, int], num_classes: int) -> nn.Sequential:
    stem = (nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1))
    blocks: list[nn.Module] = [nn.Sequential(*stem)]
    channels_in = 64
    for channels, stride, count in zip((64, 128, 256, 512), (1, 2, 2, 2), counts, strict=True):
        for index in range(count):
            blocks.append(BottleneckV1(channels_in, channels, stride if index == 0 else 1))
            channels_in = 4 * channels
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, num_classes))
    return nn.Sequential(*blocks, head)


class Patches(nn.Module):
    """Patches of 16 px as tokens after a class token, with positions (Dosovitskiy et al., ICLR 2021)."""

    def __init__(self, width: int, side_px: int) -> None:
        super().__init__()
        self.project = nn.Conv2d(3, width, 16, 16)
        self.class_token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.randn(1, 1 + (side_px // 16) ** 2, width) * 0.02)

    def forward(self, x_nchw: Tensor) -> Tensor:
        tokens_ntd = self.project(x_nchw).flatten(2).transpose(1, 2)
        first = self.class_token.expand(len(tokens_ntd), -1, -1)
        return torch.cat([first, tokens_ntd], 1) + self.positions


class FirstToken(nn.Module):
    """Output of the class token."""

    def forward(self, tokens_ntd: Tensor) -> Tensor:
        return tokens_ntd[:, 0]


def vit_large(num_classes: int) -> nn.Sequential:
    """ViT-L/16 for tiles of 224 px: 24 layers of width 1024 with 16 heads."""
    layers = [
        nn.TransformerEncoderLayer(1024, 16, 4096, 0.0, "gelu", batch_first=True, norm_first=True) for _ in range(24)
    ]
    head = nn.Sequential(nn.LayerNorm(1024), FirstToken(), nn.Linear(1024, num_classes))
    return nn.Sequential(Patches(1024, 224), *layers, head)


def small_vit(num_classes: int, side_px: int) -> nn.Sequential:
    """A vision transformer of four layers of width 64 with 4 heads."""
    layers = [nn.TransformerEncoderLayer(64, 4, 256, 0.0, "gelu", batch_first=True, norm_first=True) for _ in range(4)]
    head = nn.Sequential(nn.LayerNorm(64), FirstToken(), nn.Linear(64, num_classes))
    return nn.Sequential(Patches(64, side_px), *layers, head)
