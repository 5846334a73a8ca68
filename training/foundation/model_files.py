"""Name of the weights file of a model package, for all code that hashes or watches it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from training.foundation.reading import read_json_file

Runtime = Literal["torch", "onnx", "torchscript", "entry-point"]
"""Runtime of a package's network: gemslide's own code, onnxruntime, the TorchScript interpreter, or code of another
installed package."""

WEIGHTS_FILES: dict[Runtime, str] = {
    "torch": "model.safetensors",
    "onnx": "model.onnx",
    "torchscript": "torchscript_model.pt",
    "entry-point": "model.safetensors",
}
"""File names by runtime; the second and third also hold the network."""
MAX_CONFIG_BYTES = 2**20


def weights_file(package: Path) -> Path:
    """The file in a package whose SHA-256 ends the package's id; it may be missing.

    If `config.json` cannot be read, it is the file of a package of gemslide's own: opening the package reports the
    error.
    """
    try:
        config = read_json_file(package / "config.json", max_bytes=MAX_CONFIG_BYTES)
    except (OSError, ValueError):
        config = None
    ours = config.get("gemslide") if isinstance(config, dict) else None
    named = ours.get("runtime") if isinstance(ours, dict) else None
    (name,) = [file for runtime, file in WEIGHTS_FILES.items() if runtime == named] or [WEIGHTS_FILES["torch"]]
    return package / name
