"""The network that a model package describes, with its weights or fresh ones."""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load

from training.foundation.errors import BadRecipeError, UnreadableError
from training.foundation.model_files import WEIGHTS_FILES
from training.foundation.reading import read_regular
from training.networks.entry_points import build_from_entry_point, find_entry_point
from training.networks.onnx_network import OnnxNetwork
from training.networks.torchscript import load_torchscript
from training.packages.config import PackageConfig
from training.recipe.plan import blocks_of

_MAX_HEADER_BYTES = 100 * 2**20
"""Longest header that the safetensors format allows."""


def trained_network(package: Path, config: PackageConfig) -> tuple[torch.nn.Module, str]:
    """The network with the package's weights, and their SHA-256.

    It maps normalised float32 images (N, 3, tile_px, tile_px) to (N, classes), of the kind in `config.gemslide.gives`.

    Raises:
        UnreadableError: files are missing, damaged, of another layout, not the weights that the id names, or of a kind
            that runs code and is not trusted.
        DecompressionBombError: declared larger than it is. BadRecipeError: onnxruntime is not installed.
    """
    runtime = config.gemslide.runtime
    path = package / WEIGHTS_FILES[runtime]
    network = fresh_network(package, config) if runtime in ("torch", "entry-point") else None
    weights = read_weights(path, config.gemslide.weights_sha256)
    sha256 = hashlib.sha256(weights).hexdigest()
    if network is None:
        return open_weights(weights, sha256, config, str(path)), sha256
    put_weights(network, weights, str(path))
    return network, sha256


def open_weights(weights: bytes, sha256: str, config: PackageConfig, where: str) -> torch.nn.Module:
    """The network in a file that holds more than weights: ONNX, or TorchScript.

    Raises:
        UnreadableError, DecompressionBombError, BadRecipeError: as `trained_network`.
    """
    if config.gemslide.runtime == "torchscript":
        return load_torchscript(weights, sha256, where)
    return OnnxNetwork(weights, where, tile_px=config.patch_size_pixels, num_classes=config.num_classes)


def put_weights(network: torch.nn.Module, weights: bytes, where: str) -> None:
    """Load the content of a safetensors file into a network.

    Raises:
        UnreadableError: they are damaged, or not the weights of this network.
    """
    try:
        network.load_state_dict(load(weights))
    except (SafetensorError, RuntimeError, ValueError, KeyError) as error:
        reason = " ".join(str(error).split())
        raise UnreadableError(f"{where}: {reason:.400}. They are not this network's weights, or damaged.") from error


def fresh_network(package: Path, config: PackageConfig) -> torch.nn.Module:
    """The network with fresh weights; built only if the file can hold its weights.

    Raises:
        UnreadableError: the file cannot be that network's; or its code is not installed.
        BadRecipeError: ONNX and TorchScript files hold a network only with its trained weights.
    """
    ours = config.gemslide
    if ours.entry_point is not None and ours.runtime == "entry-point":
        entry = find_entry_point(ours.entry_point.name, str(package))
        return build_from_entry_point(
            entry, str(package), value=ours.entry_point.value, num_classes=config.num_classes,
            tile_px=config.patch_size_pixels,
        )  # fmt: skip
    if ours.runtime != "torch":
        raise BadRecipeError(
            f"{package}: a {ours.runtime} file has no fresh weights, so there is no untrained network to compare with. "
            "Run `gemslide evaluate` with `--no-baselines`."
        )
    try:
        found_bytes = (package / "model.safetensors").stat().st_size
    except OSError as error:
        raise UnreadableError(f"{package}/model.safetensors: {error.strerror}. Copy the package again.") from error
    return blocks_network(package, config, found_bytes)


def blocks_network(package: Path, config: PackageConfig, found_bytes: int) -> torch.nn.Module:
    """The network that gemslide builds; built only if a weights file of `found_bytes` can be its own.

    Raises:
        UnreadableError: the file cannot be its own, or the network does not exist.
    """
    with torch.device("meta"):  # without memory
        needed_bytes = sum(tensor.nbytes for tensor in _blocks(package, config).state_dict().values())
    if not needed_bytes < found_bytes <= needed_bytes + _MAX_HEADER_BYTES:
        raise UnreadableError(
            f"{package}: its network has {needed_bytes} bytes of weights, model.safetensors has {found_bytes} bytes. "
            "They do not belong together, or the file is truncated: copy the package again."
        )
    return _blocks(package, config)


def _blocks(package: Path, config: PackageConfig) -> torch.nn.Sequential:
    model = config.gemslide.model
    assert model is not None  # checked by `read_package_config`
    try:
        return torch.nn.Sequential(*blocks_of(model, config.patch_size_pixels))
    except ValueError as error:
        raise UnreadableError(f"{package}/config.json: describes no known network ({error}).") from error


def read_weights(path: Path, expected: str) -> bytes:
    """The file's bytes, which must be those that the package's id and `config.json` name.

    Args:
        expected: SHA-256 in `config.json`.

    Raises:
        UnreadableError: missing, or others.
    """
    package = path.parent
    try:
        weights = read_regular(path, max_bytes=path.stat().st_size)
    except OSError as error:
        raise UnreadableError(f"{path}: {error.strerror}. Copy the package again.") from error
    actual = hashlib.sha256(weights).hexdigest()
    if expected != actual or not package.name.endswith(f"-{actual[:8]}"):
        raise UnreadableError(
            f"{path}: has the SHA-256 {actual[:16]}…, which is not that of model {package.name!r}"
            f" ({expected[:16]}…). A model's id ends with the first 8 digits of its weights' "
            "SHA-256: restore the folder's own name, or copy the package again."
        )
    return weights
