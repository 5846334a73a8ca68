"""`[parallel]` of a recipe: how one model is spread over ranks."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Discriminator, Field, Tag, model_validator

from training.engine.plan import spell_out
from training.engine.recompute import Recompute
from training.engine.schedule import check_request
from training.foundation.settings import Section

MAX_RANKS, MAX_TILES = 1024, 4096
"""Of one dimension of a run, and of a micro-batch: schedules are played step by step before anything starts."""


class RecomputeConfig(Section):
    """`[parallel] recompute = {every = 2}` or `{every = 6, prefix = [23, 0]}`."""

    every: int = Field(1, ge=1, le=10_000)
    """Blocks of which only the first input is kept; they run again in backward."""
    prefix: tuple[int, ...] | None = None
    """How many blocks of each stage, from its start; all if left out."""
    rest: Literal["keep", "norm", "offload"] = "keep"
    """What becomes of the activations of the other blocks."""


def _word_or_table(value: object) -> str | None:
    """Which of its two forms a value of `recompute` has."""
    if isinstance(value, str):
        return "as a word" if value in ("none", "norm", "offload") else None
    return "as a table" if isinstance(value, dict | RecomputeConfig) else None


class ParallelConfig(Section):
    """`[parallel]`: how one model is spread over ranks. World size = data_parallel · num_stages."""

    strategy: Literal[
        "single", "mp-basic", "master", "gpipe", "1f1b", "chimera", "mast", "hybrid", "ddp"
    ] = "single"  # fmt: skip
    """`mast` is `master` with two micro-batches, `hybrid` is `master` and `ddp` is `single` with several groups."""
    num_stages: int = Field(1, ge=1, le=MAX_RANKS)
    """S: ranks that together hold one model."""
    num_microbatches: int = Field(1, ge=1, le=MAX_TILES)
    """N (the paper's η): slices of a group's share of a batch."""
    microbatch_size: int = Field(1, ge=1, le=MAX_TILES)
    """Tiles per micro-batch."""
    data_parallel: int = Field(1, ge=1, le=MAX_RANKS)
    """D: groups of num_stages ranks, each with a share of the batch."""
    recompute: Annotated[
        Annotated[Literal["none", "norm", "offload"], Tag("as a word")] | Annotated[RecomputeConfig, Tag("as a table")],
        Discriminator(
            _word_or_table,
            custom_error_type="word_or_table",
            custom_error_message='use "none", "norm", "offload", or a table such as {every = 2}',
        ),
    ] = "none"
    """"norm": outputs of normalisation and ReLU are computed again, which halves the activations for some time;
    "offload": activations wait in host memory; a table: whole blocks are computed again."""
    balance: Literal["flops", "bytes"] = "flops"
    """What the cut into stages evens out: time, or activation memory."""
    elastic: bool = False
    """Take as many ranks as are started, where a run of the same result fits them: the same micro-batches and batch."""
    timeout_s: float = Field(600.0, gt=0, le=1e6)
    """A rank silent for longer counts as lost."""

    @model_validator(mode="after")
    def numbers_fit_the_strategy(self) -> Self:
        check_request(
            self.resolved_strategy,
            num_stages=self.num_stages,
            num_microbatches=self.num_microbatches,
            data_parallel=self.data_parallel,
        )
        prefix = self.recompute_rule.prefix
        if prefix is not None and len(prefix) != self.num_stages:
            raise ValueError(f"recompute prefix {list(prefix)} needs one entry for each of {self.num_stages} stages")
        if prefix is not None and self.elastic:
            raise ValueError("recompute with a prefix names stages, and with elastic their number may change")
        return self

    @property
    def resolved_strategy(self) -> str:
        """The strategy behind an alias."""
        return spell_out(self.strategy, num_microbatches=self.num_microbatches, data_parallel=self.data_parallel)

    @property
    def recompute_rule(self) -> Recompute:
        if isinstance(self.recompute, str):
            return Recompute(rest="keep" if self.recompute == "none" else self.recompute)
        return Recompute(self.recompute.every, self.recompute.prefix, self.recompute.rest)

    @property
    def world_size(self) -> int:
        return self.data_parallel * self.num_stages

    @property
    def batch_size(self) -> int:
        """Tiles per optimizer step."""
        return self.data_parallel * self.num_microbatches * self.microbatch_size
