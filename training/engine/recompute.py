"""Which blocks of a stage are run a second time in backward, instead of keeping their activations.

The executor does it itself (stage.py), so the bytes are counted and BatchNorm does not see a micro-batch twice.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Segment:
    """Consecutive blocks of a stage that are kept, or recomputed, as one."""

    blocks: range
    """Indices within the stage."""
    recomputed: bool


@dataclass(frozen=True)
class Recompute:
    """None, every k blocks, or a prefix of each stage.

    With `every` = k only the input of every k-th block is kept from forward to backward; in backward the activations
    of one such segment are alive at a time. It costs one more forward of the blocks concerned.
    """

    every: int = 0
    """Blocks per segment; 0 recomputes nothing."""
    prefix: tuple[int, ...] | None = None
    """Of each stage, how many blocks from its start are recomputed; None is all."""

    def __post_init__(self) -> None:
        if self.every < 0 or (self.prefix is not None and (self.every == 0 or min(self.prefix, default=0) < 0)):
            raise ValueError(f"recompute needs segments of 1 block or more and prefixes of 0 or more, got {self}")

    def segments(self, stage: int, num_blocks: int) -> list[Segment]:
        """Cut a stage of `num_blocks` blocks into segments, in order; the rest behind the prefix is one segment.

        Raises:
            ValueError: the prefix has no entry for the stage, or one that is longer than the stage.
        """
        if self.prefix is not None and stage >= len(self.prefix):
            raise ValueError(f"recompute prefix {self.prefix} has no entry for stage {stage}; give one per stage")
        limit = num_blocks if self.prefix is None else self.prefix[stage]
        if limit > num_blocks:
            raise ValueError(f"recompute prefix {self.prefix}: stage {stage} has {num_blocks} blocks only")
        limit = limit if self.every else 0
        starts = range(0, limit, self.every or 1)
        recomputed = [Segment(range(start, min(start + self.every, limit)), True) for start in starts]
        kept = [Segment(range(limit, num_blocks), False)] if limit < num_blocks else []
        return recomputed + kept
