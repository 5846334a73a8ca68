"""Checks of an ONNX file before onnxruntime sees it: it may hold standard operators and its own weights, nothing else.

The format is onnx.proto of the ONNX project (IR versions up to that of the installed `onnx` package).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from training.foundation.errors import BadRecipeError, DecompressionBombError, UnreadableError
from training.foundation.words.counts import counted

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, TensorProto

MAX_ONNX_BYTES = 2**31 - 1
"""Limit of one protobuf message; a larger network keeps its weights in other files, which are refused."""
STANDARD_DOMAINS = frozenset({"", "ai.onnx", "ai.onnx.ml"})
LOOPS = frozenset({"Loop", "Scan"})
"""Operators that a network for tiles does not need, and that can run forever."""
_MAX_DEPTH = 16


@dataclass(frozen=True)
class OnnxFacts:
    """Facts about a network, as its file states them."""

    input_name: str
    batch: int | None
    """Number of tiles that it takes at a time; None for any number."""


def onnx_module(name: str) -> Any:
    """Import `onnx` or `onnxruntime`.

    Raises:
        BadRecipeError: it is not installed.
    """
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise BadRecipeError(
            f"ONNX files need the package {name!r}, which is not installed here ({error}). "
            "Install gemslide with its extra `onnx`: `pip install 'gemslide[onnx]'`."
        ) from error


def check_onnx(data: bytes, where: str, *, tile_px: int, num_classes: int) -> OnnxFacts:
    """Check an ONNX file's content against what a classifier of tiles needs.

    Args:
        data: the whole file.
        where: name of the file in messages.
        tile_px, num_classes: the network must take float32 (N, 3, tile_px, tile_px) and return (N, num_classes).

    Raises:
        UnreadableError: not ONNX, weights in other files, custom operators, loops, other inputs or outputs.
        DecompressionBombError: weights that are declared larger than the file.
        BadRecipeError: the package `onnx` is not installed.
    """
    onnx = onnx_module("onnx")
    decode_error = onnx_module("google.protobuf.message").DecodeError
    try:
        model: ModelProto = onnx.load_model_from_string(data)
    except (decode_error, ValueError, RecursionError) as error:
        raise UnreadableError(f"{where}: not an ONNX file, or damaged ({error!s:.200}). Copy it again.") from error
    if model.functions:
        raise UnreadableError(
            f"{where}: contains functions of its own ({model.functions[0].name!r:.60}). Export it again with functions "
            "inlined."
        )
    _check_operators(model, where)
    for tensor in _tensors(model.graph):
        _check_tensor(tensor, len(data), where)
    facts = _check_shapes(model.graph, where, tile_px=tile_px, num_classes=num_classes)
    try:
        onnx.checker.check_model(model)
    except (onnx.checker.ValidationError, ValueError, RuntimeError) as error:
        raise UnreadableError(f"{where}: not a valid ONNX network ({error!s:.300}). Export it again.") from error
    return facts


def _nodes(graph: GraphProto, depth: int = 0) -> Iterator[NodeProto]:
    """Nodes of a graph and of the graphs inside its nodes."""
    if depth > _MAX_DEPTH:
        raise UnreadableError(f"ONNX graph {graph.name!r:.60}: nested more than {_MAX_DEPTH} deep.")
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _nodes(inner, depth + 1)


def _check_operators(model: ModelProto, where: str) -> None:
    for node in _nodes(model.graph):
        if node.domain not in STANDARD_DOMAINS:
            raise UnreadableError(
                f"{where}: uses the custom operator {node.domain:.60}.{node.op_type:.60}. Only ONNX's standard "
                "operators are run: export the network again without it."
            )
        if node.op_type in LOOPS:
            raise UnreadableError(
                f"{where}: contains {node.op_type}, which may never end. Export the network again without loops."
            )


def _tensors(graph: GraphProto) -> Iterator[TensorProto]:
    """All weights and constants, including those of the graphs inside nodes."""
    graphs = [graph]
    for node in _nodes(graph):
        for attribute in node.attribute:
            graphs += [attribute.g, *attribute.graphs]
            sparse = (attribute.sparse_tensor, *attribute.sparse_tensors)
            yield from (attribute.t, *attribute.tensors)
            yield from (part for tensor in sparse for part in (tensor.values, tensor.indices))
    for inner in graphs:
        yield from inner.initializer
        yield from (part for tensor in inner.sparse_initializer for part in (tensor.values, tensor.indices))


def _check_tensor(tensor: TensorProto, file_bytes: int, where: str) -> None:
    onnx = onnx_module("onnx")
    if tensor.data_location == onnx.TensorProto.EXTERNAL or tensor.external_data:
        named = next((entry.value for entry in tensor.external_data if entry.key == "location"), "not named")
        raise UnreadableError(
            f"{where}: keeps weights in another file ({named!r:.80}). Export the network again as one file of at most "
            "2 GiB (torch.onnx.export: external_data=False)."
        )
    count = 1
    for size in tensor.dims:
        count *= max(size, 0)
    if any(size < 0 for size in tensor.dims) or count > 8 * file_bytes:  # the smallest element has one bit
        raise DecompressionBombError(
            f"{where}: weights {tensor.name!r:.60} claim the shape {list(tensor.dims)[:8]}, which a file of "
            f"{file_bytes} bytes cannot hold. It is damaged or malicious: do not use it."
        )


def _check_shapes(graph: GraphProto, where: str, *, tile_px: int, num_classes: int) -> OnnxFacts:
    constants = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in constants]
    if len(inputs) != 1 or len(graph.output) != 1:
        raise UnreadableError(
            f"{where}: has {len(inputs)} inputs and {len(graph.output)} outputs; a classifier of tiles has one of each."
        )
    taken, given = inputs[0].type.tensor_type, graph.output[0].type.tensor_type
    float32 = onnx_module("onnx").TensorProto.FLOAT
    in_shape, out_shape = _shape(taken), _shape(given)
    if taken.elem_type != float32 or given.elem_type != float32:
        raise UnreadableError(
            f"{where}: takes or returns other numbers than float32. Export the network again in float32."
        )
    if len(in_shape) != 4 or not _agree(in_shape[1:], (3, tile_px, tile_px)) or in_shape[0] not in (None, 1):
        raise UnreadableError(
            f"{where}: takes images of the shape {_shape_text(in_shape)}; tiles are (N, 3, {tile_px}, {tile_px}), "
            "any number of them or one at a time. Correct patch_size_pixels in its config.json, or export it again."
        )
    if out_shape and (len(out_shape) != 2 or not _agree(out_shape[1:], (num_classes,))):
        raise UnreadableError(
            f"{where}: returns numbers of the shape {_shape_text(out_shape)}; "
            f"{counted(num_classes, 'class needs', 'classes need')} (N, {num_classes}). Correct num_classes and "
            "class_names in its config.json, or export the network again."
        )
    return OnnxFacts(inputs[0].name, in_shape[0])


def _shape(tensor_type: Any) -> tuple[int | None, ...]:
    """Sizes; None where a size is open."""
    return tuple(size.dim_value if size.HasField("dim_value") else None for size in tensor_type.shape.dim)


def _agree(declared: tuple[int | None, ...], wanted: tuple[int, ...]) -> bool:
    return len(declared) == len(wanted) and all(
        size in (None, want) for size, want in zip(declared, wanted, strict=True)
    )


def _shape_text(shape: tuple[int | None, ...]) -> str:
    return f"({', '.join('N' if size is None else str(size) for size in shape)})"
