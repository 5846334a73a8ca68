"""Live bytes: the memory that activations take on a rank, counted, not estimated.

    live = storages that autograd keeps for backward
         + storages that the executor holds: inputs, received boundaries and gradients, sends in flight
         - weights and buffers

Every storage counts once, however many tensors share it: two views, an in-place ReLU and its input, a boundary that
is also an input kept for backward. The same counter runs on real tensors, where it measures, and on fake ones without
memory, where it predicts (predict.py); the two agree to the byte.

Not counted: what is never kept (a convolution's workspace, what flows from one operation to the next forward and
backward: a few tensors at a time), the gradients of weights (one set per node of sums/tree_sum.py) and optimizer state.
"""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor


class LiveBytes:
    """Counter of one rank. Switched off it costs nothing."""

    def __init__(self, *, enabled: bool = False) -> None:
        self.enabled = enabled
        self.now = 0
        self.peak = 0
        """Maximum since the last `start`."""
        self._holders: dict[int, int] = {}
        self._excluded: set[int] = set()

    def exclude(self, tensors: Iterable[Tensor]) -> None:
        """Leave out the storages of weights and buffers."""
        self._excluded |= {_key(tensor) for tensor in tensors}

    def start(self) -> None:
        """Begin a new peak."""
        self.peak = self.now

    def hold(self, tensors: Iterable[Tensor]) -> None:
        """Count tensors until `release`; both must come while the tensors live."""
        for tensor in tensors if self.enabled else ():
            key = _key(tensor)
            if key in self._excluded:
                continue
            if key not in self._holders:
                self.now += tensor.untyped_storage().nbytes()
                self.peak = max(self.peak, self.now)
            self._holders[key] = self._holders.get(key, 0) + 1

    def release(self, tensors: Iterable[Tensor]) -> None:
        """The opposite of `hold`, with the same tensors."""
        for tensor in tensors if self.enabled else ():
            key = _key(tensor)
            if key in self._excluded:
                continue
            self._holders[key] -= 1
            if not self._holders[key]:
                del self._holders[key]
                self.now -= tensor.untyped_storage().nbytes()

    def is_excluded(self, tensor: Tensor) -> bool:
        """Whether this is a weight or a buffer."""
        return _key(tensor) in self._excluded


def _key(tensor: Tensor) -> int:
    """Address of the storage, which is unique among those alive."""
    return int(tensor.untyped_storage()._cdata)
