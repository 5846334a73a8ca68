"""Treatment of the tensors that autograd saves for backward: kept, recomputed from others, or offloaded.

"norm" saves no output of a normalisation that a ReLU follows. A convolution saves its input, so a chain conv - norm -
ReLU - conv keeps every activation twice: as the input of the normalisation and as that of the next convolution. The
second follows from the first by two cheap operations, which run again, once, when backward needs it. Such tensors
are recognised in autograd's graph, so any network with such chains halves its activations, whatever its source. The
same operations on the same numbers give the same bits.

"offload" moves what is saved to (pinned) host memory. While a block is in backward, what the block before it saved is
copied back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Literal
from weakref import ref

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import functional

from training.engine.memory import LiveBytes

Kept = Literal["keep", "norm", "offload"]
"""Treatment of activations that are not recomputed as a whole."""
LEAST_OFFLOADED_BYTES = 1 << 16
"""Smaller tensors stay where they are."""


class Saver:
    """Stores what autograd saves of one segment and micro-batch, and returns it in backward."""

    def __init__(self, kept: Kept, counter: LiveBytes) -> None:
        self._kept = kept
        self._counter = counter
        self._again: dict[object, RecomputedNorm] = {}
        self._away: dict[tuple[int, int], OffloadedTensor] = {}
        self._groups: list[list[OffloadedTensor]] = [[]]

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Handle all that autograd saves inside."""
        if self._kept == "keep" and not self._counter.enabled:
            yield
            return
        with torch.autograd.graph.saved_tensors_hooks(self._pack, lambda saved: saved.take()):
            yield
        self._again.clear()  # autograd holds this saver, and through these would hold itself
        self._away.clear()

    def start_block(self) -> None:
        """Count what is saved from now on as the next block's."""
        if self._kept == "offload":
            self._groups.append([])

    def fetch(self, block: int = -1) -> None:
        """Start copying back what a block, by default the last, has offloaded."""
        for tensor in self._groups[block]:
            tensor.fetch()

    def _pack(self, tensor: Tensor) -> Any:
        if self._kept == "norm":
            node = _norm_before(tensor)
            if node is not None:
                return _Use(self._again.setdefault(node, RecomputedNorm(node, self._counter)))
        if self._kept == "offload" and self._is_worth_moving(tensor):
            return _View(self._moved(tensor), tensor)
        return _Held(tensor, self._counter)

    def _is_worth_moving(self, tensor: Tensor) -> bool:
        return tensor.untyped_storage().nbytes() >= LEAST_OFFLOADED_BYTES and not self._counter.is_excluded(tensor)

    def _moved(self, tensor: Tensor) -> OffloadedTensor:
        # A unique address: `OffloadedTensor` prevents its reuse. A tensor changed in place counts as another.
        key = tensor.untyped_storage()._cdata, tensor._version
        if key not in self._away:
            block = len(self._groups) - 1
            self._away[key] = OffloadedTensor(tensor, self._counter, _fetching(ref(self), max(block - 1, 0)))
            self._groups[block].append(self._away[key])
        return self._away[key]


def _fetching(saver: ref[Saver], block: int) -> Callable[[], None]:
    """`Saver.fetch` of a block. What a saver holds must not hold it, or memory waits for the garbage collector."""

    def fetch() -> None:
        if (own := saver()) is not None:
            own.fetch(block)

    return fetch


def check_unchanged(tensor: Tensor, version: int) -> None:
    """Check that a tensor is unchanged, which autograd itself does only without hooks on what it saves.

    Raises:
        ValueError: the tensor has changed since it had this version.
    """
    if tensor._version != version:
        raise ValueError(
            f"a tensor of shape {tuple(tensor.shape)} that backward needs was changed in place after its forward: an "
            "input that the batch refilled, or an in-place operation. Give each micro-batch its own tensor, and make "
            "the operation out-of-place"
        )


class _Held:
    """A tensor that stays, counted until autograd has released it."""

    def __init__(self, tensor: Tensor, counter: LiveBytes):
        # Without its history: an operation that keeps its own output would otherwise keep itself alive forever.
        self._tensor = tensor if tensor.grad_fn is None else tensor.detach()
        self._version = tensor._version
        self._counter = counter
        counter.hold([self._tensor])

    def take(self) -> Tensor:
        check_unchanged(self._tensor, self._version)
        return self._tensor

    def __del__(self) -> None:
        self._counter.release([self._tensor])


class RecomputedNorm:
    """The output of a normalisation and ReLU that is recomputed, once for all its uses."""

    def __init__(self, norm: Any, counter: LiveBytes):
        self._norm, self._counter = norm, counter
        self.num_uses = 0
        self._output: Tensor | None = None

    def take(self) -> Tensor:
        if self._output is None:
            self._output = self._compute()
            self._counter.hold([self._output])
        output = self._output
        self.num_uses -= 1
        if self.num_uses <= 0:
            self._counter.release([output])
            self._output = None
        return output

    def _compute(self) -> Tensor:
        norm = self._norm
        x = norm._saved_input
        with torch.no_grad(), torch.autocast(x.device.type, enabled=False):
            weight, bias = norm._saved_weight, _norm_bias(norm)
            if norm.name() == "NativeGroupNormBackward0":
                output = functional.group_norm(x, norm._saved_group, weight, bias, norm._saved_eps)
            elif norm.name() == "NativeBatchNormBackward0" and x.device.type == "cpu":
                output = _scaled_as_before(x, norm._saved_result1, norm._saved_result2, weight, bias)
            else:
                eps = norm._saved_eps if hasattr(norm, "_saved_eps") else norm._saved_epsilon
                # Their type decides in which precision half-precision inputs are normalised.
                mean, var = (
                    None if kept is None else torch.zeros_like(kept)
                    for kept in (norm._saved_running_mean, norm._saved_running_var)
                )
                output = functional.batch_norm(x, mean, var, weight, bias, training=True, momentum=0.0, eps=eps)
            return output.relu_()


def _scaled_as_before(x: Tensor, mean: Tensor, invstd: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """Normalise a batch with the statistics of its forward; computing them takes three quarters of the time.

    On a CPU, torch scales by `invstd * weight`, rounded, in training as in evaluation. So evaluation gives the bits of
    training if that product is its weight and its own inverse deviation is 1.
    """
    scale = invstd if weight is None else invstd * weight
    return functional.batch_norm(x, mean, torch.ones_like(mean), scale, bias, training=False, eps=0.0)


class _Use:
    """One use of an output that is recomputed."""

    def __init__(self, norm: RecomputedNorm):
        norm.num_uses += 1
        self.take: Callable[[], Tensor] = norm.take


_NORMS = ("NativeBatchNormBackward0", "CudnnBatchNormBackward0", "MiopenBatchNormBackward0", "NativeGroupNormBackward0")


def _norm_before(tensor: Tensor) -> Any:
    """The node of the normalisation whose output, through a ReLU, this tensor is; None if it is anything else."""
    relu = tensor.grad_fn
    if relu is None or relu.name() != "ReluBackward0":
        return None
    norm: Any = relu.next_functions[0][0]
    if norm is None or norm.name() not in _NORMS or not getattr(norm, "_saved_training", True):
        return None
    has_both = norm._saved_weight is None or _norm_bias(norm) is not None
    return norm if has_both else None


def _norm_bias(norm: Any) -> Tensor | None:
    """Autograd saves no bias; it is the weight that the third edge of the node leads to."""
    node = norm.next_functions[2][0]
    bias: Tensor | None = getattr(node, "variable", None)
    return bias


class OffloadedTensor:
    """A storage in host memory."""

    def __init__(self, tensor: Tensor, counter: LiveBytes, fetch_before: Callable[[], None]):
        storage = tensor.untyped_storage()
        self._fetch_before = fetch_before
        self._origin = StorageWeakRef(storage)  # type: ignore[no-untyped-call]  # torch ships no types for it
        self._device, self._counter = tensor.device, counter
        self._stream = _side_stream(tensor.device)
        whole = _storage_bytes(tensor)
        self._host = torch.empty(len(whole), dtype=torch.uint8, pin_memory=self._stream is not None)
        with _on(self._stream, tensor.device):
            self._host.copy_(whole, non_blocking=True)
        if self._stream is not None:
            whole.record_stream(self._stream)
        self._back: Tensor | None = None
        self.num_views = 0

    def fetch(self) -> None:
        """Start copying the storage back."""
        if self._back is None and self.num_views > 0:
            with _on(self._stream, self._device):
                self._back = torch.empty(len(self._host), dtype=torch.uint8, device=self._device)
                self._back.copy_(self._host, non_blocking=True)
            self._counter.hold([self._back])

    def take(self) -> Tensor:
        """All bytes, on the device again; released after the last view."""
        self.fetch()
        self._fetch_before()
        back = self._back
        assert back is not None
        if self._stream is not None:
            torch.cuda.current_stream(self._device).wait_stream(self._stream)
            back.record_stream(torch.cuda.current_stream(self._device))
        self.num_views -= 1
        if self.num_views <= 0:
            self._counter.release([back])
            self._back = None
        return back


class _View:
    """A tensor in an offloaded storage."""

    def __init__(self, storage: OffloadedTensor, tensor: Tensor):
        storage.num_views += 1
        self._away = storage
        self._dtype, self._shape, self._strides = tensor.dtype, tensor.shape, tensor.stride()
        self._offset = tensor.storage_offset()

    def take(self) -> Tensor:
        return self._away.take().view(self._dtype).as_strided(self._shape, self._strides, self._offset)


def _storage_bytes(tensor: Tensor) -> Tensor:
    """The whole storage of a tensor as one row."""
    plain = tensor.detach()
    size = plain.dtype.itemsize
    return plain.as_strided((plain.untyped_storage().nbytes() // size,), (1,), 0).view(torch.uint8)


_streams: dict[torch.device, torch.cuda.Stream] = {}


def _side_stream(device: torch.device) -> torch.cuda.Stream | None:
    """A stream for copies alongside the computation; None on a CPU."""
    if device.type != "cuda":
        return None
    if device not in _streams:
        _streams[device] = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    return _streams[device]


def _on(stream: torch.cuda.Stream | None, device: torch.device) -> AbstractContextManager[object]:
    if stream is None:
        return nullcontext()
    stream.wait_stream(torch.cuda.current_stream(device))
    return torch.cuda.stream(stream)
