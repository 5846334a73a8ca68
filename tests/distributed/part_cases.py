"""Ways of cutting stages into parts, and a small set of them that covers every two choices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.distributed.networks import (
    dropout_resnet,
    group_norm_resnet,
    odd_norms_network,
    small_resnet,
    unet_like_network,
    vgg_like_network,
)
from tests.distributed.pairwise import cover
from tests.distributed.problem import Case, evenly
from training.engine.recompute import Recompute

LAYOUTS = (
    ("single", 1, (2,)),
    ("single", 1, (3,)),
    ("single", 2, (2,)),
    ("mp-basic", 1, (2, 2)),
    ("master", 1, (2, 2)),
    ("1f1b", 1, (2, 1)),
    ("gpipe", 1, (1, 3)),
    ("1f1b", 1, (2, 2)),
    ("gpipe", 1, (1, 2)),
    ("gpipe", 1, (3, 1)),
)
"""(strategy, D, parts of the stages): two to four ranks."""
HOW: Mapping[str, tuple[Any, ...]] = {
    "recompute": (Recompute(), Recompute(1), Recompute(2, rest="keep")),
    "channels_last": (False, True),
    "batches": (evenly(2), evenly(3, 1), ((2, 2, 1), (2,), (1, 1, 1, 1, 1))),
    "mixed_shapes": (False, True),
    "then_infer": (False, True),
    "strict": (False, True),
    "clip_norm": (None, 0.5),
}
"""How a step runs, however its stages are cut."""
FACTORS: Mapping[str, tuple[Any, ...]] = {
    "layout": LAYOUTS,
    "split": ("rows", "filter", "channel"),
    "network": (
        small_resnet,
        dropout_resnet,
        group_norm_resnet,
        odd_norms_network,
        vgg_like_network,
        unet_like_network,
    ),
    **HOW,
}


def case_of(*, layout: tuple[str, int, tuple[int, ...]], split: str, **others: Any) -> Case:
    strategy, data_parallel, parts = layout
    return Case(strategy, len(parts), data_parallel=data_parallel, parts=parts, split=(split,) * len(parts), **others)  # type: ignore[arg-type]


def part_cases() -> list[Case]:
    """Every two choices together at least once."""
    return [case_of(**chosen) for chosen in cover(FACTORS, lambda _: True)]
