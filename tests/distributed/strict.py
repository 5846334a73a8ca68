"""A wire on gloo with the weakest guarantees of any backend: a rank's groups run strictly one after the other.

A group returns only when every message in it has met its other end, in the group that the other rank is in at that
moment: the receiver acknowledges it, and the sender waits for that. Nothing is buffered, nothing runs ahead.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from training.engine.transport import GroupWire, Row, Work


class StrictWire(GroupWire):
    """Replacement for `Transport`'s own wire."""

    def group(self, sends: Sequence[Row], receives: Sequence[Row]) -> tuple[list[Work], list[Work]]:
        given, coming = super().group(sends, receives)
        receipts = [torch.zeros(1, dtype=torch.uint8) for _ in sends]
        waiting: list[Any] = [
            dist.irecv(receipt, peer, group=self._ranks.control, tag=1)
            for receipt, (_, peer) in zip(receipts, sends, strict=True)
        ]
        taken = torch.ones(1, dtype=torch.uint8)
        for work, (_, peer) in zip(coming, receives, strict=True):
            work.wait()
            waiting.append(dist.isend(taken, peer, group=self._ranks.control, tag=1))
        for work in (*given, *waiting):
            work.wait()
        assert all(receipts)
        return [_Over()] * len(sends), [_Over()] * len(receives)


class _Over:
    def wait(self) -> None:
        return
