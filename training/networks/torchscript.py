"""A network in a TorchScript file. Loading runs its code, so it must be one whose SHA-256 the user trusts."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from training.foundation.errors import UnreadableError
from training.foundation.trusted import is_trusted


def load_torchscript(data: bytes, sha256: str, where: str) -> torch.nn.Module:
    """The network in a TorchScript file, on the CPU.

    Args:
        data: the whole file: what was hashed is what runs.
        where: name of the file in messages.

    Raises:
        UnreadableError: this user does not trust its SHA-256, or it is damaged.
    """
    if not is_trusted(sha256):
        raise UnreadableError(
            f"{where}: a TorchScript file runs code when it is loaded, and you have not marked this one as trusted. "
            "If it comes from someone you trust, compare its SHA-256 with the one they give, and then run `gemslide "
            f"model import` on its folder with `--trust {sha256}`. None of its code was run."
        )
    return run_torchscript(data, where)


def run_torchscript(data: bytes, where: str) -> torch.nn.Module:
    """`load_torchscript` for a file of certain origin: one that this process has just written.

    Raises:
        UnreadableError: damaged.
    """
    try:
        with deprecations_of_torchscript_ignored():
            network: torch.nn.Module = torch.jit.load(io.BytesIO(data), map_location="cpu")  # type: ignore[no-untyped-call]
    except (RuntimeError, ValueError, EOFError) as error:
        last = str(error).strip().splitlines()[-1:] or [""]
        raise UnreadableError(
            f"{where}: not a TorchScript file, or damaged ({last[0]:.200}). Copy it again."
        ) from error
    return network


@contextmanager
def deprecations_of_torchscript_ignored() -> Iterator[None]:
    """Silence torch's advice against TorchScript, which existing files and WSInfer's format still use."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"`torch\.jit\.\w+` is (deprecated|not supported)", DeprecationWarning)
        yield
