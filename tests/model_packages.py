"""Model packages with other weights or another description, as consistent as those from training."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save


def with_weights(package: Path, state: dict[str, torch.Tensor]) -> Path:
    """Give a package other weights with their matching id and hash. Return its new folder."""
    weights = save(state)
    sha256 = hashlib.sha256(weights).hexdigest()
    (package / "model.safetensors").write_bytes(weights)
    config = read_config(package)
    config["gemslide"]["weights_sha256"] = sha256
    write_config(package, config)
    return package.rename(package.with_name(f"{package.name.rpartition('-')[0]}-{sha256[:8]}"))


def read_config(package: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((package / "config.json").read_text(encoding="utf-8"))
    return config


def write_config(package: Path, config: dict[str, Any]) -> None:
    (package / "config.json").write_text(json.dumps(config), encoding="utf-8")


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
