"""Weights of encoders: files whose SHA-256 is compared, as named tensors. Nothing in them is run.

A pickled file is read by torch's restricted reader, which builds tensors and nothing else, and its tensors are written
beside it as safetensors, in a file named after the SHA-256 of both; later loads take that one.
"""

from __future__ import annotations

import hashlib
import io
import pickle
import re
import struct
import warnings
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from training.foundation.errors import DecompressionBombError, DiskFullError, UnreadableError
from training.foundation.publish import write_bytes_atomic
from training.foundation.reading import open_regular, read_regular
from training.foundation.words.counts import counted

State = dict[str, Tensor]
"""Tensors by name; those of floating point are float32."""
MAX_WEIGHTS_BYTES = 16 * 2**30
SUFFIX = ".safetensors"
_WRAPPERS = ("state_dict", "model")
"""Keys under which training programs keep the weights beside other things."""
_SIGNS_OF_DAMAGE = (
    RuntimeError, ValueError, EOFError, LookupError, TypeError, AttributeError, AssertionError, ArithmeticError,
    ImportError, MemoryError, struct.error,
)  # fmt: skip
"""Errors of torch on files that are cut short, altered, or not of its making."""


def read_weights(path: Path, sha256: str) -> bytes:
    """All bytes of a file.

    Raises:
        UnreadableError: missing, or another file than the row names.
    """
    try:
        data = read_regular(path, max_bytes=min(path.stat().st_size, MAX_WEIGHTS_BYTES))
    except OSError as error:
        raise _missing(path, error) from error
    _compare(path, hashlib.sha256(data).hexdigest(), sha256)
    return data


def read_state(path: Path, sha256: str, *, keep: bool) -> State:
    """The tensors in a file of weights, in float32.

    Args:
        path: safetensors, or a pickle.
        keep: write the tensors of a pickle beside it, for the next time, if its folder can be written.

    Raises:
        UnreadableError: missing, damaged, another file than the row names, or more than weights: such as code.
        DecompressionBombError: tensors larger than the file.
    """
    if path.suffix == SUFFIX:
        return _as_float32(_from_safetensors(read_weights(path, sha256), path), path)
    if keep and (state := _converted(path, sha256)) is not None:
        return _as_float32(state, path)
    state = _from_pickle(read_weights(path, sha256), path)
    if keep:
        content = save(state)
        with suppress(DiskFullError):  # it only saves time
            write_bytes_atomic(_converted_path(path, sha256, hashlib.sha256(content).hexdigest()), content)
    return _as_float32(state, path)


def _missing(path: Path, error: OSError) -> UnreadableError:
    return UnreadableError(
        f"{path}: the encoder's weights cannot be read ({error.strerror}). Nothing is downloaded: put the file there, "
        "or correct the path in the encoder's row."
    )


def _compare(path: Path, actual: str, expected: str) -> None:
    if actual != expected:
        raise UnreadableError(
            f"{path}: has the SHA-256 {actual[:16]}…, but the encoder's row says {expected[:16]}…. These are other "
            "weights: restore the file, or describe the new one in a row with a name of its own."
        )


def _converted(path: Path, sha256: str) -> State | None:
    """The tensors that an earlier load wrote; None if it did not, or they are damaged."""
    try:
        found = sorted(path.parent.glob(f"{sha256}-{'?' * 16}{SUFFIX}"))
        with open(open_regular(path), "rb") as stream:
            actual = hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise _missing(path, error) from error
    _compare(path, actual, sha256)
    for copy in found:
        with suppress(OSError, UnreadableError):
            content = read_regular(copy, max_bytes=MAX_WEIGHTS_BYTES)
            if copy == _converted_path(path, sha256, hashlib.sha256(content).hexdigest()):
                return _from_safetensors(content, copy)
    return None


def _converted_path(path: Path, sha256: str, own_sha256: str) -> Path:
    return path.with_name(f"{sha256}-{own_sha256[:16]}{SUFFIX}")


def _from_safetensors(data: bytes, path: Path) -> State:
    try:
        return load(data)
    except (SafetensorError, RuntimeError, ValueError, KeyError) as error:
        raise UnreadableError(f"{path}: not safetensors, or damaged ({error!s:.200}). Copy it again.") from error


def _from_pickle(data: bytes, path: Path) -> State:
    _check_archive(data, path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's about TorchScript files, which are refused
            content = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, *_SIGNS_OF_DAMAGE) as error:
        # The message of torch advises against its own protection: only what it names is passed on.
        if named := re.search(r"GLOBAL ([\w.]+)", str(error)):
            raise UnreadableError(
                f"{path}: holds more than tensors: reading it would run {named[1]:.200}. Nothing of it was run: ask "
                "its authors for a safetensors file."
            ) from error
        detail = " ".join(str(error).split())
        reason = "" if isinstance(error, pickle.UnpicklingError) else f" ({detail:.200})"
        raise UnreadableError(
            f"{path}: not a file of weights, or damaged{reason}. Weights are .safetensors, or a state dict that "
            "torch.save wrote."
        ) from error
    return _plain_tensors(content, path, len(data))


def _check_archive(data: bytes, path: Path) -> None:
    """Refuse a compressed archive: torch writes none, and it would unpack one of any size."""
    if not zipfile.is_zipfile(io.BytesIO(data)):
        return
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            unpacked = sum(entry.file_size for entry in archive.infolist())
    except (zipfile.BadZipFile, ValueError, EOFError, struct.error) as error:
        raise UnreadableError(f"{path}: a damaged archive ({error!s:.200}). Copy it again.") from error
    if unpacked > len(data):
        raise DecompressionBombError(
            f"{path}: unpacks from {len(data)} to {unpacked} bytes; weights are not compressed. Do not use it."
        )


def _plain_tensors(content: Any, path: Path, file_bytes: int) -> State:
    """The weights among the content of a pickle, each tensor with memory of its own."""
    for wrapper in _WRAPPERS:
        if isinstance(content, Mapping) and isinstance(content.get(wrapper), Mapping):
            content = content[wrapper]
    if not isinstance(content, Mapping) or not content:
        raise UnreadableError(f"{path}: contains a {type(content).__name__}, not named tensors. Export a state dict.")
    for name, tensor in content.items():
        if not isinstance(name, str) or not _is_plain(tensor):
            raise UnreadableError(
                f"{path}: {name!r:.80} is a {type(tensor).__name__}, not an ordinary tensor. Export a state dict."
            )
    if sum(tensor.nbytes for tensor in content.values()) > 2 * file_bytes:  # twice: some tensors share memory
        raise DecompressionBombError(
            f"{path}: its {counted(len(content), 'tensor')} would take more than twice the file's {file_bytes} bytes. "
            "It is damaged or malicious: do not use it."
        )
    return {name: tensor.detach().clone(memory_format=torch.contiguous_format) for name, tensor in content.items()}


def _is_plain(value: object) -> bool:
    return (
        type(value) in (Tensor, torch.nn.Parameter)
        and isinstance(value, Tensor)
        and value.layout == torch.strided
        and value.device.type == "cpu"
        and not value.is_quantized
        and not value.is_complex()
    )


def _as_float32(state: State, path: Path) -> State:
    if not state:
        raise UnreadableError(f"{path}: contains no tensors. Copy it again.")
    return {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in state.items()}
