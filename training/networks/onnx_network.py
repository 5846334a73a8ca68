"""A network in an ONNX file, run by onnxruntime: the only adapter to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from training.foundation.errors import ImplausibleOutputError, UnreadableError
from training.foundation.words.counts import counted
from training.machine.memory_errors import is_out_of_memory
from training.networks.onnx_checks import OnnxFacts, check_onnx, onnx_module

_ERRORS_ONLY = 4
"""Level of onnxruntime's own log: errors are raised, and reported once."""
_CUDA, _ON_CPU = "CUDAExecutionProvider", ("CPUExecutionProvider",)


class OnnxNetwork(nn.Module):
    """Network from float32 images (N, 3, H, W) on any device to (N, num_classes) there.

    It runs on the CPU until `to` moves it to CUDA, if the installed onnxruntime can; images pass through host memory.

    Raises:
        UnreadableError, DecompressionBombError, BadRecipeError: as `check_onnx`; or onnxruntime rejects the file.
    """

    def __init__(self, data: bytes, where: str, *, tile_px: int, num_classes: int) -> None:
        super().__init__()
        self._facts = check_onnx(data, where, tile_px=tile_px, num_classes=num_classes)
        self._data, self._where = data, where
        self._session = _session(data, where, _ON_CPU)

    def to(self, device: torch.device) -> Self:  # type: ignore[override]  # a Module's takes formats, too
        """Run on that device from now on; stay on the CPU if onnxruntime cannot."""
        if device.type == "cuda" and _CUDA in onnx_module("onnxruntime").get_available_providers():
            providers = [(_CUDA, {"device_id": device.index or 0}), *_ON_CPU]
            self._session = _session(self._data, self._where, providers)
        return self

    @property
    def facts(self) -> OnnxFacts:
        """Facts about the network, as its file states them."""
        return self._facts

    def forward(self, images_nchw: Tensor) -> Tensor:
        """Run the network.

        Raises:
            ImplausibleOutputError: onnxruntime fails while running it. MemoryError: there is too little memory.
        """
        images = np.ascontiguousarray(images_nchw.detach().float().cpu().numpy())
        size = self._facts.batch or len(images)
        outputs = [self._run(images[start : start + size]) for start in range(0, len(images), size)]
        return torch.from_numpy(np.concatenate(outputs)).to(images_nchw.device)

    def _run(self, images_nchw: np.ndarray[Any, np.dtype[np.float32]]) -> np.ndarray[Any, np.dtype[np.float32]]:
        state = onnx_module("onnxruntime.capi.onnxruntime_pybind11_state")
        try:
            (outputs,) = self._session.run(None, {self._facts.input_name: images_nchw})
        except (state.Fail, state.InvalidArgument, state.RuntimeException, RuntimeError) as error:
            if is_out_of_memory(error):
                raise MemoryError(str(error)) from error
            raise ImplausibleOutputError(
                f"{self._where}: onnxruntime cannot run it on {counted(len(images_nchw), 'tile')} of "
                f"{images_nchw.shape[2]} px ({error!s:.300}). Export the network again."
            ) from error
        return np.asarray(outputs)


def _session(data: bytes, where: str, providers: Sequence[object]) -> Any:
    ort = onnx_module("onnxruntime")
    state = onnx_module("onnxruntime.capi.onnxruntime_pybind11_state")
    options = ort.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.inter_op_num_threads = 1
    options.log_severity_level = _ERRORS_ONLY
    refused = (
        state.Fail, state.InvalidArgument, state.InvalidGraph, state.InvalidProtobuf, state.NotImplemented,
        state.RuntimeException, RuntimeError, MemoryError,
    )  # fmt: skip
    try:
        return ort.InferenceSession(data, sess_options=options, providers=list(providers))
    except refused as error:
        raise UnreadableError(
            f"{where}: onnxruntime {ort.__version__} rejects it ({error!s:.300}). Export the network again."
        ) from error
