"""Foreign ONNX files: anything but a plain tile classifier is refused with a message before onnxruntime sees it."""

from __future__ import annotations

import sys
from contextlib import suppress

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from training.foundation.errors import (
    BadRecipeError,
    DecompressionBombError,
    GemslideError,
    ImplausibleOutputError,
    UnreadableError,
)
from training.networks.onnx_checks import check_onnx
from training.networks.onnx_network import OnnxNetwork
from training.networks.probe import probe

SIDE_PX, CLASSES = 16, 3


def tiny_onnx(
    *, nodes=(), batch="N", side=SIDE_PX, classes=CLASSES, weights=None, element=TensorProto.FLOAT, more_outputs=()
):
    """Real classifier in four operators: mean colour times a matrix."""
    random = np.random.default_rng(0)
    matrix = numpy_helper.from_array(random.normal(size=(3, classes)).astype(np.float32), "matrix")
    graph = helper.make_graph(
        [
            helper.make_node("GlobalAveragePool", ["images"], ["pooled"]),
            helper.make_node("Flatten", ["pooled"], ["colours"]),
            helper.make_node("MatMul", ["colours", "matrix"], ["outputs"]),
            *nodes,
        ],
        "tiny",
        [helper.make_tensor_value_info("images", element, [batch, 3, side, side])],
        [helper.make_tensor_value_info("outputs", TensorProto.FLOAT, [batch, classes]), *more_outputs],
        [matrix if weights is None else weights],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def check(model):
    data = model if isinstance(model, bytes) else model.SerializeToString()
    return check_onnx(data, "a.onnx", tile_px=SIDE_PX, num_classes=CLASSES)


def matrix_of(model):
    return model.graph.initializer[0]


def test_a_plain_network_passes_and_gives_what_numpy_gives():
    model = tiny_onnx()
    network = OnnxNetwork(model.SerializeToString(), "a.onnx", tile_px=SIDE_PX, num_classes=CLASSES)
    images = torch.randn(5, 3, SIDE_PX, SIDE_PX)

    expected = images.mean((2, 3)).numpy() @ numpy_helper.to_array(matrix_of(model))

    np.testing.assert_allclose(network(images).numpy(), expected, atol=1e-5)
    probe(network, "a.onnx", tile_px=SIDE_PX, num_classes=CLASSES, outputs="logits")


def test_memory_that_runs_out_in_onnxruntime_is_said_as_such_and_nothing_else_is(monkeypatch):
    from onnxruntime.capi.onnxruntime_pybind11_state import RuntimeException

    network = OnnxNetwork(tiny_onnx().SerializeToString(), "a.onnx", tile_px=SIDE_PX, num_classes=CLASSES)
    images = torch.randn(2, 3, SIDE_PX, SIDE_PX)

    class Session:
        says = "BFCArena::AllocateRawInternal Failed to allocate memory for requested buffer of size 19267584"

        def run(self, *_):
            raise RuntimeException(self.says)

    monkeypatch.setattr(network, "_session", Session())
    with pytest.raises(MemoryError, match="Failed to allocate"):
        network(images)
    Session.says = "Non-zero status code returned while running Conv node"
    with pytest.raises(ImplausibleOutputError, match="cannot run it on 2 tiles"):
        network(images)


def test_a_network_for_one_tile_at_a_time_is_run_tile_by_tile():
    one = OnnxNetwork(tiny_onnx(batch=1).SerializeToString(), "a.onnx", tile_px=SIDE_PX, num_classes=CLASSES)
    many = OnnxNetwork(tiny_onnx().SerializeToString(), "a.onnx", tile_px=SIDE_PX, num_classes=CLASSES)
    images = torch.randn(4, 3, SIDE_PX, SIDE_PX)

    assert one.facts.batch == 1
    torch.testing.assert_close(one(images), many(images))


def external(model):
    tensor = matrix_of(model)
    tensor.data_location = TensorProto.EXTERNAL
    tensor.ClearField("raw_data")
    for key, value in (("location", "../../etc/passwd"), ("length", "36")):
        tensor.external_data.add(key=key, value=value)
    return model


def external_in_a_subgraph(model):
    inner = helper.make_graph([], "inner", [], [], [external(tiny_onnx()).graph.initializer[0]])
    model.graph.node.append(helper.make_node("If", ["x"], ["y"], then_branch=inner, else_branch=inner))
    return model


def huge(model):
    matrix_of(model).dims[0] = 2**40
    return model


def negative(model):
    matrix_of(model).dims[0] = -3
    return model


def with_function(model):
    model.functions.append(helper.make_function("own", "f", ["x"], ["y"], [helper.make_node("Relu", ["x"], ["y"])], []))
    return model


HOSTILE = {
    "no ONNX": (lambda: b"not an ONNX file", UnreadableError, "not an ONNX file, or damaged"),
    "cut short": (lambda: tiny_onnx().SerializeToString()[:-20], GemslideError, "a.onnx: "),
    "empty": (lambda: b"", UnreadableError, "0 inputs and 0 outputs"),
    "weights elsewhere": (
        lambda: external(tiny_onnx()), UnreadableError, r"another file \('../../etc/passwd'\).*as one file",
    ),
    "weights elsewhere, in a branch": (lambda: external_in_a_subgraph(tiny_onnx()), UnreadableError, "another file"),
    "custom operator": (
        lambda: tiny_onnx(nodes=[helper.make_node("Evil", ["outputs"], ["x"], domain="com.evil")]),
        UnreadableError, "custom operator com.evil.Evil",
    ),
    "function": (lambda: with_function(tiny_onnx()), UnreadableError, "functions of its own"),
    "loop": (
        lambda: tiny_onnx(nodes=[helper.make_node("Loop", ["a", "b"], ["x"], body=helper.make_graph([], "g", [], []))]),
        UnreadableError, "Loop, which may never end",
    ),
    "huge weights": (lambda: huge(tiny_onnx()), DecompressionBombError, r"claim the shape \[1099511627776, 3\]"),
    "negative weights": (lambda: negative(tiny_onnx()), DecompressionBombError, "claim the shape"),
    "another tile side": (lambda: tiny_onnx(side=32), UnreadableError, r"\(N, 3, 32, 32\); tiles are \(N, 3, 16, 16\)"),
    "a fixed batch": (lambda: tiny_onnx(batch=8), UnreadableError, r"\(8, 3, 16, 16\).*any number of them"),
    "other classes": (lambda: tiny_onnx(classes=4), UnreadableError, r"\(N, 4\); 3 classes need \(N, 3\)"),
    "bytes in": (lambda: tiny_onnx(element=TensorProto.UINT8), UnreadableError, "other numbers than float32"),
    "two outputs": (
        lambda: tiny_onnx(more_outputs=[helper.make_tensor_value_info("pooled", TensorProto.FLOAT, None)]),
        UnreadableError, "1 inputs and 2 outputs",
    ),
    "not connected": (
        lambda: tiny_onnx(nodes=[helper.make_node("Relu", ["nowhere"], ["x"])]), UnreadableError, "not a valid ONNX",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", HOSTILE)
def test_what_is_no_plain_classifier_is_refused_in_words(what):
    make, kind, words = HOSTILE[what]

    with pytest.raises(kind, match=words):
        check(make())


def test_every_bit_flip_is_refused_in_words_or_still_a_classifier():
    """Flips in the weights give other weights, which the file's SHA-256 tells from the right ones."""
    honest = tiny_onnx().SerializeToString()
    random = np.random.default_rng(3)
    for at in random.choice(len(honest), 150, replace=False):
        damaged = bytearray(honest)
        damaged[at] ^= 1 << random.integers(8)
        with suppress(GemslideError):
            OnnxNetwork(bytes(damaged), "a.onnx", tile_px=SIDE_PX, num_classes=CLASSES)


@pytest.mark.parametrize("is_constant", [True, False])
def test_a_network_that_asks_for_more_memory_than_there_is_ends_in_words(is_constant):
    """A million gigabytes of zeros, made when the file is opened, or when it is run."""
    size = numpy_helper.from_array(np.array([2**30, 2**18], np.int64), "size")
    nodes = [helper.make_node("ConstantOfShape", ["size"], ["zeros"])]
    if is_constant:
        nodes.append(helper.make_node("ReduceSum", ["zeros"], ["none"], keepdims=0))
    else:
        nodes += [
            helper.make_node("ReduceMax", ["raw"], ["most"], keepdims=0),
            helper.make_node("Add", ["zeros", "most"], ["many"]),
            helper.make_node("ReduceSum", ["many"], ["none"], keepdims=0),
        ]
    model = tiny_onnx(nodes=[*nodes, helper.make_node("Add", ["raw", "none"], ["outputs"])])
    model.graph.node[2].output[0] = "raw"
    model.graph.initializer.append(size)

    with pytest.raises(GemslideError, match=r"a\.onnx: (onnxruntime|needs more memory than is available)") as refused:
        probe(
            OnnxNetwork(model.SerializeToString(), "a.onnx", tile_px=SIDE_PX, num_classes=CLASSES),
            "a.onnx", tile_px=SIDE_PX, num_classes=CLASSES, outputs="logits",
        )  # fmt: skip
    assert "Traceback" not in str(refused.value)


@pytest.mark.parametrize("missing", ["onnx", "onnxruntime"])
def test_without_onnx_installed_the_extra_is_named(missing, monkeypatch):
    monkeypatch.setitem(sys.modules, missing, None)  # as Python does for modules that cannot be imported

    with pytest.raises(BadRecipeError, match=rf"need the package '{missing}'.*pip install 'gemslide\[onnx\]'"):
        OnnxNetwork(tiny_onnx().SerializeToString(), "a.onnx", tile_px=SIDE_PX, num_classes=CLASSES)


def test_numbers_that_depend_on_the_other_tiles_of_a_batch_are_refused():
    """A network exported in training mode normalises by its batch."""
    spoilt = [
        helper.make_node("ReduceMean", ["raw"], ["mean"], keepdims=0),
        helper.make_node("Sub", ["raw", "mean"], ["outputs"]),
    ]
    model = tiny_onnx(nodes=spoilt)
    model.graph.node[2].output[0] = "raw"
    network = OnnxNetwork(model.SerializeToString(), "a.onnx", tile_px=SIDE_PX, num_classes=CLASSES)

    with pytest.raises(GemslideError, match="exported in training mode") as refused:
        probe(network, "a.onnx", tile_px=SIDE_PX, num_classes=CLASSES, outputs="logits")
    assert refused.value.code == "insane_output"


def test_logits_that_are_called_probabilities_are_refused():
    network = OnnxNetwork(tiny_onnx().SerializeToString(), "a.onnx", tile_px=SIDE_PX, num_classes=CLASSES)

    with pytest.raises(UnreadableError, match="declared as probabilities"):
        probe(network, "a.onnx", tile_px=SIDE_PX, num_classes=CLASSES, outputs="probabilities")
