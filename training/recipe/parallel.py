"""`[parallel]` of a recipe: how one model is spread over ranks."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator
from pydantic_core import PydanticKnownError

from training.engine.partition import check_cuts
from training.engine.recompute import Recompute
from training.engine.strategies import ALIASES, STRATEGIES, check_parts, check_request, resolve_alias
from training.foundation.recipe_file import AUTO, MAX_RANKS, SUBGRAPH
from training.foundation.settings import Section
from training.foundation.words.counts import counted
from training.parallel.parted import Split

MAX_TILES = 4096
"""Limit of micro-batches and their tiles: schedules are played step by step before anything starts."""


GIVEN_WITH_AUTO = {"strategy", "num_microbatches", "microbatch_size", "timeout_s"}


def _known_strategy(value: object) -> object:
    names = [*STRATEGIES, *ALIASES, AUTO]
    if value not in names:
        *others, last = map(repr, names)
        raise PydanticKnownError("literal_error", {"expected": f"{', '.join(others)} or {last}"})
    return value


class RecomputeConfig(Section):
    """`[parallel] recompute = {every = 2}` or `{every = 6, prefix = [23, 0]}`."""

    every: int = Field(1, ge=1, le=10_000)
    """Blocks per segment, of which only the first input is kept; they run again in backward."""
    prefix: tuple[int, ...] | None = None
    """Number of blocks in each stage, from its start; all if omitted."""
    rest: Literal["keep", "norm", "offload"] = "keep"
    """Treatment of the activations of the other blocks."""


def _word_or_table(value: object) -> str | None:
    """Form of a value of `recompute`: one of two."""
    if isinstance(value, str):
        return "as a word" if value in ("none", "norm", "offload") else None
    return "as a table" if isinstance(value, dict | RecomputeConfig) else None


class ParallelConfig(Section):
    """`[parallel]`: how one model is spread over ranks. World size = data_parallel · the parts of all stages."""

    strategy: Annotated[str, BeforeValidator(_known_strategy)] = "single"
    """`mast` is `master` with two micro-batches, `hybrid` is `master` and `ddp` is `single` with several groups;
    `subgraph` is `single` with the branches of each block on `num_subgraphs` ranks; `auto` is the fastest plan that
    fits, for `num_microbatches` of the whole batch."""
    num_stages: int = Field(1, ge=1, le=MAX_RANKS)
    """S: ranks that together hold one model."""
    num_microbatches: int = Field(1, ge=1, le=MAX_TILES)
    """N (the paper's η): slices of a group's share of a batch; with `auto` of the batch."""
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
    """"norm": outputs of normalisation and ReLU are recomputed, which halves the activations for some time;
    "offload": activations wait in host memory; a table: whole blocks are recomputed."""
    balance: Literal["flops", "bytes"] = "flops"
    """Quantity that the cut into stages balances: time, or activation memory."""
    cuts: tuple[Annotated[int, Field(ge=1)], ...] | None = Field(None, max_length=MAX_RANKS)
    """First block of each stage but the first, as `gemslide plan` lists them; None for those that balance."""
    parts: Annotated[int, Field(ge=1, le=MAX_RANKS)] | tuple[Annotated[int, Field(ge=1, le=MAX_RANKS)], ...] = 1
    """P: ranks that share each stage's work on every tile; a list gives each stage its own number."""
    num_subgraphs: int = Field(1, ge=1, le=MAX_RANKS)
    """P of `subgraph`: ranks that share the branches of every block, such as heads of attention."""
    split: Split | tuple[Split, ...] = "rows"
    """What parts share: rows of the tile, filters of the layers, the channels that they take, or branches; a list by
    stage."""
    virtual_parts: bool = False
    """Compute all parts of the one stage on one rank: the same numbers as on several, bit for bit."""
    elastic: bool = False
    """Accept any number of ranks on which a run gives the same result: the same micro-batches and batch."""
    timeout_s: float = Field(600.0, gt=0, le=1e6)
    """A rank silent for longer counts as lost."""

    @model_validator(mode="after")
    def numbers_fit_the_strategy(self) -> Self:
        if self.is_auto:
            self._check_left_to_the_oracle()
            return self
        self._check_sub_graphs()
        check_request(
            self.resolved_strategy,
            num_stages=self.num_stages,
            num_microbatches=self.num_microbatches,
            data_parallel=self.data_parallel,
        )
        self._check_parts()
        prefix = self.recompute_rule.prefix
        if prefix is not None and len(prefix) != self.num_stages:
            raise ValueError(
                f"recompute prefix {list(prefix)} needs one entry for each of {counted(self.num_stages, 'stage')}"
            )
        if prefix is not None and self.elastic:
            raise ValueError("recompute with a prefix names stages, but with elastic their number may change")
        if self.cuts is not None:
            check_cuts(self.cuts, self.num_stages)
            if self.elastic:
                raise ValueError("cuts name stages, but with elastic their number may change")
            if self.balance != "flops":
                raise ValueError("cuts and balance both say where the stages begin; give one of them")
        return self

    def _check_sub_graphs(self) -> None:
        if self.strategy != SUBGRAPH:
            if self.num_subgraphs > 1:
                raise ValueError(f'num_subgraphs is for strategy = "{SUBGRAPH}", not {self.strategy!r}')
            return
        if self.num_subgraphs < 2:
            raise ValueError(f"{SUBGRAPH} needs num_subgraphs of 2 or more, got {self.num_subgraphs}")
        if self.parts != 1 or self.split != "rows":
            raise ValueError(f"{SUBGRAPH} says itself how blocks are shared out; leave parts and split out")

    def _check_parts(self) -> None:
        if not self.is_in_parts:
            if self.virtual_parts:
                raise ValueError("virtual_parts needs parts of 2 or more")
            return
        check_parts(
            self.resolved_strategy,
            self.parts_of_stages,
            self.split_of_stages,
            num_stages=self.num_stages,
            virtual=self.virtual_parts,
        )
        if self.recompute_rule.rest == "norm":
            raise ValueError('recompute = "norm" cannot be used in parts; recompute = {every = 1} can')
        kinds = set(zip(self.parts_of_stages, self.split_of_stages, strict=True))
        if self.elastic and len(kinds) > 1:
            raise ValueError("parts that differ between stages name these, but with elastic their number may change")

    def _check_left_to_the_oracle(self) -> None:
        if chosen := sorted(self.model_dump(exclude_defaults=True).keys() - GIVEN_WITH_AUTO):
            raise ValueError(
                f'strategy = "auto" chooses {", ".join(chosen)} itself, for the ranks that are started; leave '
                f"{'it' if len(chosen) == 1 else 'them'} out"
            )

    @property
    def is_auto(self) -> bool:
        """Whether the oracle is still to choose: `choose` in training/recipe/choice.py does."""
        return self.strategy == AUTO

    @property
    def resolved_strategy(self) -> str:
        """The strategy behind an alias."""
        return resolve_alias(self.strategy, num_microbatches=self.num_microbatches, data_parallel=self.data_parallel)

    @property
    def recompute_rule(self) -> Recompute:
        if isinstance(self.recompute, str):
            return Recompute(rest="keep" if self.recompute == "none" else self.recompute)
        return Recompute(self.recompute.every, self.recompute.prefix, self.recompute.rest)

    @property
    def parts_of_stages(self) -> tuple[int, ...]:
        """Parts of each stage."""
        if self.strategy == SUBGRAPH:
            return (self.num_subgraphs,) * self.num_stages
        return (self.parts,) * self.num_stages if isinstance(self.parts, int) else self.parts

    @property
    def split_of_stages(self) -> tuple[Split, ...]:
        """What the parts of each stage share."""
        if self.strategy == SUBGRAPH:
            return tuple[Split, ...](["branches"] * self.num_stages)
        return (self.split,) * self.num_stages if isinstance(self.split, str) else self.split

    @property
    def is_in_parts(self) -> bool:
        """Whether a stage has more than one part."""
        return max(self.parts_of_stages, default=1) > 1

    @property
    def group_size(self) -> int:
        """Ranks that together hold one model."""
        return self.num_stages if self.virtual_parts or not self.is_in_parts else sum(self.parts_of_stages)

    @property
    def world_size(self) -> int:
        return self.data_parallel * self.group_size

    @property
    def batch_size(self) -> int:
        """Tiles per optimizer step."""
        return self.data_parallel * self.num_microbatches * self.microbatch_size
