"""The network that a model package describes, with the weights in it or fresh ones."""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load

from training.errors import UnreadableError
from training.foundation.reading import read_regular
from training.package_config import PackageConfig
from training.parallel_plan import blocks_of

_MAX_HEADER_BYTES = 100 * 2**20
"""The safetensors format allows no longer header."""


def trained_network(package: Path, config: PackageConfig) -> tuple[torch.nn.Module, str]:
    """The network with the package's weights, and their SHA-256.

    Raises:
        UnreadableError: files are missing, damaged, of another layout, or not the weights that the id names.
    """
    network = fresh_network(package, config)
    weights = _read_weights(package, config)
    try:
        network.load_state_dict(load(weights))
    except (SafetensorError, RuntimeError, ValueError, KeyError) as error:
        raise UnreadableError(f"{package}/model.safetensors: {error}. Copy the package again.") from error
    return network, hashlib.sha256(weights).hexdigest()


def fresh_network(package: Path, config: PackageConfig) -> torch.nn.Module:
    """The network with fresh weights; made only when its weights can be those in the file."""
    with torch.device("meta"):  # without memory
        needed_bytes = sum(tensor.nbytes for tensor in _blocks(package, config).state_dict().values())
    try:
        found_bytes = (package / "model.safetensors").stat().st_size
    except OSError as error:
        raise UnreadableError(f"{package}/model.safetensors: {error.strerror}. Copy the package again.") from error
    if not needed_bytes < found_bytes <= needed_bytes + _MAX_HEADER_BYTES:
        raise UnreadableError(
            f"{package}: its network has {needed_bytes} bytes of weights, model.safetensors has {found_bytes} bytes. "
            "They do not belong together, or the file is cut short: copy the package again."
        )
    return _blocks(package, config)


def _blocks(package: Path, config: PackageConfig) -> torch.nn.Sequential:
    try:
        return torch.nn.Sequential(*blocks_of(config.gemslide.model, config.patch_size_pixels))
    except ValueError as error:
        raise UnreadableError(f"{package}/config.json: describes no known network ({error}).") from error


def _read_weights(package: Path, config: PackageConfig) -> bytes:
    """The file's bytes, which must be those that the package's id and `config.json` name."""
    path = package / "model.safetensors"
    try:
        weights = read_regular(path, max_bytes=path.stat().st_size)
    except OSError as error:
        raise UnreadableError(f"{path}: {error.strerror}. Copy the package again.") from error
    found = hashlib.sha256(weights).hexdigest()
    if config.gemslide.weights_sha256 not in (found, None) or not package.name.endswith(f"-{found[:8]}"):
        said = config.gemslide.weights_sha256
        raise UnreadableError(
            f"{path}: has the SHA-256 {found[:16]}…, which is not that of model {package.name!r}"
            f"{f' ({said[:16]}…)' if said else ''}. A model's id ends with the first 8 digits of its weights' "
            "SHA-256: give the folder its own name again, or copy the package again."
        )
    return weights
