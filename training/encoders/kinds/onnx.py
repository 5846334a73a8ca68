"""Encoders in ONNX files, from images to one row each."""

from __future__ import annotations

from typing import Any

from training.encoders.kinds.backbone import Backbone
from training.foundation.errors import UnreadableError
from training.networks.onnx_checks import onnx_module
from training.networks.onnx_network import OnnxNetwork


def onnx_encoder(data: bytes, where: str, *, tile_px: int, dims: int) -> Backbone:
    """The network in an ONNX file.

    Args:
        data: the whole file.

    Raises:
        UnreadableError: not ONNX, damaged, not for such tiles, or more than a network.
        DecompressionBombError: weights that are declared larger than the file.
        BadRecipeError: onnxruntime is not installed.
    """
    _check_declared(data, where, tile_px=tile_px, dims=dims)
    return Backbone(OnnxNetwork(data, where, tile_px=tile_px, num_classes=dims), is_ours=False)


def _check_declared(data: bytes, where: str, *, tile_px: int, dims: int) -> None:
    """Compare the shapes that the file states with the row; `OnnxNetwork` checks everything else."""
    decode_error = onnx_module("google.protobuf.message").DecodeError
    try:
        graph = onnx_module("onnx").load_model_from_string(data).graph
    except (decode_error, ValueError, RecursionError):
        return
    constants = {tensor.name for tensor in graph.initializer}
    taken = [_sizes(value) for value in graph.input if value.name not in constants]
    given = [_sizes(value) for value in graph.output]
    if len(taken) != 1 or len(given) != 1:
        return
    if not _can_be(taken[0], (None, 3, tile_px, tile_px)):
        raise UnreadableError(
            f"{where}: takes images of the shape {_text(taken[0])}, but the row says tile_px = {tile_px}, which is "
            f"(N, 3, {tile_px}, {tile_px}). Correct the row, or export the network again."
        )
    if given[0] and not _can_be(given[0], (None, dims)):
        raise UnreadableError(
            f"{where}: returns numbers of the shape {_text(given[0])}, but the row says dims = {dims}, which is "
            f"(N, {dims}). Correct the row, or export the network again, with its pooling."
        )


def _sizes(value: Any) -> tuple[int | None, ...]:
    shape = value.type.tensor_type.shape
    return tuple(size.dim_value if size.HasField("dim_value") else None for size in shape.dim)


def _can_be(declared: tuple[int | None, ...], wanted: tuple[int | None, ...]) -> bool:
    return len(declared) == len(wanted) and all(
        size is None or want is None or size == want for size, want in zip(declared, wanted, strict=True)
    )


def _text(shape: tuple[int | None, ...]) -> str:
    return f"({', '.join('N' if size is None else str(size) for size in shape)})"
