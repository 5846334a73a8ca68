"""A network in an ONNX file, run by onnxruntime: the one adapter to it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from training.errors import ImplausibleOutputError, UnreadableError
from training.networks.onnx_checks import OnnxFacts, check_onnx, onnx_module

_ERRORS_ONLY = 4
"""onnxruntime's level of its own log: what goes wrong is raised, and said once."""


class OnnxNetwork(nn.Module):
    """Takes float32 images (N, 3, H, W) on any device and gives (N, num_classes) there.

    On CUDA where the installed onnxruntime has it; images pass through host memory.

    Raises:
        UnreadableError, DecompressionBombError, BadRecipeError: as `check_onnx`; or onnxruntime does not take the file.
    """

    def __init__(self, data: bytes, where: str, *, tile_px: int, num_classes: int) -> None:
        super().__init__()
        self._facts = check_onnx(data, where, tile_px=tile_px, num_classes=num_classes)
        self._where = where
        self._session = _session(data, where)

    @property
    def facts(self) -> OnnxFacts:
        """What the file says of its network."""
        return self._facts

    def forward(self, images_nchw: Tensor) -> Tensor:
        """Run the network.

        Raises:
            ImplausibleOutputError: onnxruntime fails in the middle of it.
        """
        images = np.ascontiguousarray(images_nchw.detach().float().cpu().numpy())
        size = self._facts.batch or len(images)
        outputs = [self._run(images[start : start + size]) for start in range(0, len(images), size)]
        return torch.from_numpy(np.concatenate(outputs)).to(images_nchw.device)

    def _run(self, images_nchw: np.ndarray[Any, np.dtype[np.float32]]) -> np.ndarray[Any, np.dtype[np.float32]]:
        state = onnx_module("onnxruntime.capi.onnxruntime_pybind11_state")
        try:
            (outputs,) = self._session.run(None, {self._facts.input_name: images_nchw})
        except (state.Fail, state.InvalidArgument, state.RuntimeException, RuntimeError, MemoryError) as error:
            raise ImplausibleOutputError(
                f"{self._where}: onnxruntime cannot run it on {len(images_nchw)} tiles of {images_nchw.shape[2]} px "
                f"({error!s:.300}). Export the network again."
            ) from error
        return np.asarray(outputs)


def _session(data: bytes, where: str) -> Any:
    ort = onnx_module("onnxruntime")
    state = onnx_module("onnxruntime.capi.onnxruntime_pybind11_state")
    options = ort.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.inter_op_num_threads = 1
    options.log_severity_level = _ERRORS_ONLY
    wanted = ["CPUExecutionProvider"]
    if torch.cuda.is_available() and "CUDAExecutionProvider" in ort.get_available_providers():
        wanted.insert(0, "CUDAExecutionProvider")
    refused = (
        state.Fail, state.InvalidArgument, state.InvalidGraph, state.InvalidProtobuf, state.NotImplemented,
        state.RuntimeException, RuntimeError, MemoryError,
    )  # fmt: skip
    try:
        return ort.InferenceSession(data, sess_options=options, providers=wanted)
    except refused as error:
        raise UnreadableError(
            f"{where}: onnxruntime {ort.__version__} does not take it ({error!s:.300}). Export the network again."
        ) from error
