"""Weights of encoders: the bytes that the row names or none, and never code."""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
from contextlib import suppress

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from tests.training.encoders.tiny_encoders import sha256, timm_state
from training.encoders.weights import read_state
from training.foundation.errors import DecompressionBombError, GemslideError, UnreadableError
from training.networks.torchscript import deprecations_of_torchscript_ignored


def pickled(content) -> bytes:
    stream = io.BytesIO()
    torch.save(content, stream)
    return stream.getvalue()


def written(path, data: bytes):
    path.write_bytes(data)
    return path, hashlib.sha256(data).hexdigest()


def test_half_precision_weights_are_read_as_float32(tmp_path):
    path = tmp_path / "w.safetensors"
    save_file({"a": torch.tensor([1.5, -2.25]).half(), "b": torch.tensor([3.0]).bfloat16(), "n": torch.tensor(7)}, path)

    state = read_state(path, sha256(path), keep=True)

    assert {name: tensor.dtype for name, tensor in state.items()} == {
        "a": torch.float32, "b": torch.float32, "n": torch.int64,
    }  # fmt: skip
    assert state["a"].tolist() == [1.5, -2.25]


def test_other_weights_under_the_name_are_refused(tmp_path):
    path = tmp_path / "w.safetensors"
    save_file({"a": torch.ones(2)}, path)
    expected = sha256(path)
    save_file({"a": torch.zeros(2)}, path)

    with pytest.raises(UnreadableError, match=f"but the encoder's row says {expected[:16]}.*These are other weights"):
        read_state(path, expected, keep=True)


def test_missing_damaged_and_special_files_are_refused_by_name(tmp_path):
    with pytest.raises(
        UnreadableError, match=r"w\.safetensors: the encoder's weights cannot be read.*Nothing is downloaded"
    ):
        read_state(tmp_path / "w.safetensors", "0" * 64, keep=True)
    with pytest.raises(UnreadableError, match=r"w\.pth: the encoder's weights cannot be read"):
        read_state(tmp_path / "w.pth", "0" * 64, keep=True)
    os.mkfifo(tmp_path / "pipe.safetensors")
    with pytest.raises(UnreadableError, match="not a regular file"):
        read_state(tmp_path / "pipe.safetensors", "0" * 64, keep=True)
    for name in ("text.safetensors", "text.pth"):
        path, digest = written(tmp_path / name, b"not weights")
        with pytest.raises(UnreadableError, match="or damaged"):
            read_state(path, digest, keep=True)


def test_a_pickle_is_read_once_and_its_copy_from_then_on(tmp_path, monkeypatch):
    state = timm_state()
    path, digest = written(tmp_path / "w.pth", pickled({"state_dict": state, "epoch": 3}))

    first = read_state(path, digest, keep=True)
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("unpickled again"))
    second = read_state(path, digest, keep=True)

    assert first.keys() == second.keys() == state.keys()
    assert all(torch.equal(first[name], tensor) and torch.equal(second[name], tensor) for name, tensor in state.items())
    (copy,) = tmp_path.glob("*.safetensors")
    assert copy.name == f"{digest}-{sha256(copy)[:16]}.safetensors"


def test_a_damaged_copy_is_made_again_and_one_of_other_weights_is_not_taken(tmp_path):
    state = timm_state()
    path, digest = written(tmp_path / "w.pth", pickled(state))
    read_state(path, digest, keep=True)
    (copy,) = tmp_path.glob("*.safetensors")
    intact = copy.read_bytes()
    copy.write_bytes(intact[:-1] + bytes([intact[-1] ^ 1]))

    again = read_state(path, digest, keep=True)

    assert all(torch.equal(again[name], tensor) for name, tensor in state.items())
    assert copy.read_bytes() == intact
    path.write_bytes(pickled({"a": torch.ones(1)}))
    with pytest.raises(UnreadableError, match="These are other weights"):
        read_state(path, digest, keep=True)


def test_nothing_is_written_beside_weights_that_are_not_ours(tmp_path):
    path, digest = written(tmp_path / "w.pth", pickled({"a": torch.ones(2)}))

    read_state(path, digest, keep=False)

    assert list(tmp_path.iterdir()) == [path]


class Runs:
    """Object whose unpickling creates a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (os.mkdir, (str(self.path),))


def test_a_pickle_that_runs_code_is_refused_and_nothing_of_it_runs(tmp_path):
    path, digest = written(tmp_path / "w.pth", pickled({"a": torch.ones(2), "more": Runs(tmp_path / "ran")}))

    with pytest.raises(
        UnreadableError, match=r"holds more than tensors: reading it would run posix\.mkdir\. Nothing of it was run"
    ):
        read_state(path, digest, keep=True)

    assert list(tmp_path.iterdir()) == [path]


def test_torchscript_and_whole_modules_are_refused(tmp_path):
    with deprecations_of_torchscript_ignored():
        torch.jit.script(torch.nn.Linear(2, 3)).save(tmp_path / "script.pt")
    for path in (tmp_path / "script.pt", tmp_path / "module.pt"):
        if path.name == "module.pt":
            torch.save(torch.nn.Linear(2, 3), path)
        with pytest.raises(UnreadableError, match=path.name):
            read_state(path, sha256(path), keep=True)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({}, "not named tensors"),
        ([torch.ones(2)], "contains a list, not named tensors"),
        ({"a": torch.ones(2), "epoch": 3}, "'epoch' is a int, not an ordinary tensor"),
        ({"a": torch.ones(2).to_sparse()}, "not an ordinary tensor"),
        ({1: torch.ones(2)}, "1 is a Tensor, not an ordinary tensor"),
    ],
)
def test_what_is_no_state_of_a_network_is_refused(tmp_path, content, words):
    path, digest = written(tmp_path / "w.pth", pickled(content))

    with pytest.raises(UnreadableError, match=words):
        read_state(path, digest, keep=True)


def test_tensors_larger_than_their_file_are_refused_before_memory_is_taken(tmp_path):
    path, digest = written(tmp_path / "wide.pth", pickled({"a": torch.ones(1).expand(2**40)}))
    with pytest.raises(DecompressionBombError, match="more than twice the file's"):
        read_state(path, digest, keep=True)

    stored = zipfile.ZipFile(io.BytesIO(pickled({"a": torch.zeros(2**20)})))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in stored.namelist():
            archive.writestr(name, stored.read(name))
    path, digest = written(tmp_path / "packed.pth", packed.getvalue())
    with pytest.raises(DecompressionBombError, match="weights are not compressed"):
        read_state(path, digest, keep=True)


@settings(max_examples=60)
@given(data=st.data(), legacy=st.booleans())
def test_a_damaged_file_of_weights_is_read_or_refused_and_never_breaks_the_reader(tmp_path_factory, data, legacy):
    stream = io.BytesIO()
    torch.save({"a": torch.arange(6.0), "b": torch.tensor(4)}, stream, _use_new_zipfile_serialization=not legacy)
    whole = bytearray(stream.getvalue())
    for place in data.draw(st.lists(st.integers(0, len(whole) - 1), min_size=1, max_size=4)):
        whole[place] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(len(whole) // 2, len(whole)))
    path, digest = written(tmp_path_factory.mktemp("damaged") / "w.pth", bytes(whole[:cut]))

    with suppress(GemslideError):
        state = read_state(path, digest, keep=False)
        assert all(isinstance(tensor, torch.Tensor) for tensor in state.values())
