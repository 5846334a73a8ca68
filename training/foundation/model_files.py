"""Name of the file of a model package that holds its weights, for all code that hashes or watches it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from training.foundation.reading import read_json_file

Runtime = Literal["torch", "onnx", "torchscript", "entry-point"]
"""Runtime of a package's network: gemslide's own code, onnxruntime, the TorchScript interpreter, or code that another
installed package registered."""

WEIGHTS_FILES: dict[Runtime, str] = {
    "torch": "model.safetensors",
    "onnx": "model.onnx",
    "torchscript": "torchscript_model.pt",
    "entry-point": "model.safetensors",
}
"""By runtime; the second and third hold the network as well."""
MAX_CONFIG_BYTES = 2**20


def weights_file(package: Path) -> Path:
    """The file in a package whose SHA-256 its id ends with; it may be missing.

    Where `config.json` cannot be read it is that of a package of gemslide's own: whoever opens the package says what
    is wrong with it.
    """
    try:
        config = read_json_file(package / "config.json", max_bytes=MAX_CONFIG_BYTES)
    except (OSError, ValueError):
        config = None
    ours = config.get("gemslide") if isinstance(config, dict) else None
    said = ours.get("runtime") if isinstance(ours, dict) else None
    (name,) = [file for runtime, file in WEIGHTS_FILES.items() if runtime == said] or [WEIGHTS_FILES["torch"]]
    return package / name
