"""Policies for what a stage keeps of a micro-batch from forward to backward, one for each segment of its blocks.

The executor recomputes by itself (stage.py, saved.py): bytes are counted, and BatchNorm sees no micro-batch twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from training.engine.saved import Kept
from training.foundation.words.counts import counted

Policy = Literal["recompute"] | Kept


@dataclass(frozen=True)
class Segment:
    """Consecutive blocks of a stage that are treated as one."""

    blocks: range
    """Indices within the stage."""
    policy: Policy


@dataclass(frozen=True)
class Recompute:
    """Recomputation of no blocks, every k blocks, or a prefix of each stage; and the treatment of the rest.

    With `every` = k only the input of every k-th block is kept from forward to backward; in backward the activations
    of one such segment are alive at a time. It costs one more forward of the blocks concerned.
    """

    every: int = 0
    """Blocks per segment; 0 recomputes nothing."""
    prefix: tuple[int, ...] | None = None
    """Number of blocks recomputed from the start of each stage; None for all."""
    rest: Kept = "keep"
    """Treatment of the other blocks: "norm" keeps no outputs of normalisations, "offload" keeps all in host memory."""

    def __post_init__(self) -> None:
        if self.every < 0 or (self.prefix is not None and (self.every == 0 or min(self.prefix, default=0) < 0)):
            raise ValueError(f"recompute needs segments of 1 block or more and prefixes of 0 or more, got {self}")
        if self.rest not in get_args(Kept):
            raise ValueError(f"rest must be one of {', '.join(get_args(Kept))}, got {self.rest!r}")

    def segments(self, stage: int, num_blocks: int) -> list[Segment]:
        """Cut a stage of `num_blocks` blocks into segments, in order.

        The rest after the prefix is one segment.

        Raises:
            ValueError: the prefix has no entry for the stage, or is longer than the stage.
        """
        if self.prefix is not None and stage >= len(self.prefix):
            raise ValueError(f"recompute prefix {self.prefix} has no entry for stage {stage}; give one per stage")
        limit = num_blocks if self.prefix is None else self.prefix[stage]
        if limit > num_blocks:
            raise ValueError(f"recompute prefix {self.prefix}: stage {stage} has only {counted(num_blocks, 'block')}")
        limit = limit if self.every else 0
        starts = range(0, limit, self.every or 1)
        recomputed = [Segment(range(start, min(start + self.every, limit)), "recompute") for start in starts]
        rest = [Segment(range(limit, num_blocks), self.rest)] if limit < num_blocks else []
        return recomputed + rest
