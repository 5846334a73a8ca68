"""A network as the bytes of an ONNX or a TorchScript file that takes any number of tiles.

Neither contains a path of this computer: TorchScript's source locations are removed.
"""

from __future__ import annotations

import io
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor, nn
from torch.jit._trace import TracerWarning

from training.foundation.errors import BadRecipeError
from training.models.build import Outputs
from training.networks.onnx_checks import MAX_ONNX_BYTES, onnx_module
from training.networks.torchscript import deprecations_of_torchscript_ignored

Format = Literal["onnx", "torchscript", "wsinfer"]
FORMATS: tuple[Format, ...] = ("onnx", "torchscript", "wsinfer")
OPSET = 18
"""ONNX operator set, supported by onnxruntime since 1.14 (2023)."""
_LEAST_PROBABILITY = 1e-30
_ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)
"""Fixed time, so that an export records none."""


class _AsLogits(nn.Module):
    """A network that returns probabilities, for programs that always apply a softmax."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images_nchw: Tensor) -> Tensor:
        probabilities_nk: Tensor = self.network(images_nchw)
        return probabilities_nk.clamp_min(_LEAST_PROBABILITY).log()


def with_logits(network: nn.Module, outputs: Outputs) -> nn.Module:
    """The network with outputs whose softmax gives its probabilities."""
    return network if outputs == "logits" else _AsLogits(network).eval()


def torchscript_bytes(network: nn.Module, images_nchw: Tensor) -> bytes:
    """The network as a TorchScript file.

    Args:
        images_nchw: at least two normalised images, to trace the network's operations.
    """
    buffer = io.BytesIO()
    with torch.no_grad(), deprecations_of_torchscript_ignored(), _exporters_warnings_ignored():
        traced = torch.jit.trace(network, images_nchw[:2], check_trace=False)  # type: ignore[no-untyped-call]
        torch.jit.save(traced, buffer)
    return _without_debug_files(buffer.getvalue())


def _without_debug_files(data: bytes) -> bytes:
    """The archive without the files that record where on this computer the network's source is."""
    cleaned = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as source, zipfile.ZipFile(cleaned, "w", zipfile.ZIP_STORED) as target:
        for entry in source.infolist():
            if not entry.filename.endswith(".debug_pkl"):
                target.writestr(zipfile.ZipInfo(entry.filename, _ZIP_EPOCH), source.read(entry))
    return cleaned.getvalue()


def onnx_bytes(network: nn.Module, images_nchw: Tensor) -> bytes:
    """The network as an ONNX file, with any number of tiles at a time.

    Args:
        images_nchw: at least two normalised images, to trace the network's operations.

    Raises:
        BadRecipeError: onnx is not installed, torch cannot export this network, or it is larger than one file may be.
    """
    onnx_module("onnx")
    buffer = io.BytesIO()
    any_number = {0: "batch"}
    try:
        with torch.no_grad(), _exporters_warnings_ignored():
            # The exporter on torch.export took fifteen times as long on ResNet-110, and wrote paths of this computer.
            torch.onnx.export(
                network, (images_nchw[:2],), buffer,  # type: ignore[arg-type]  # a file may be open already
                dynamo=False, opset_version=OPSET, input_names=["images"],
                output_names=["outputs"], dynamic_axes={"images": any_number, "outputs": any_number},
            )  # fmt: skip
    except (torch.onnx.errors.OnnxExporterError, RuntimeError, ValueError) as error:
        reason = (str(error).strip().splitlines() or [""])[0]
        raise BadRecipeError(
            f"torch cannot turn this network into ONNX ({reason:.300}). Export it as torchscript instead."
        ) from error
    data = buffer.getvalue()
    if len(data) > MAX_ONNX_BYTES:
        raise BadRecipeError(f"this network has {len(data)} bytes; one ONNX file holds at most {MAX_ONNX_BYTES}.")
    return data


@contextmanager
def _exporters_warnings_ignored() -> Iterator[None]:
    """Silence warnings about its own deprecated parts, and about checks of image size: several batches are tried."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", TracerWarning)
        yield
