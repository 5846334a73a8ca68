"""One optimizer for the whole network, made in parts: the settings of each weight must not depend on the parts.

Each rank makes an optimizer of the weights that it owns, so a rule that looks at a weight's place in its list would set
something else under every strategy. The rule is asked once about all weights; that answer is compared by name with what
each part was given, and with the first rank's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from training.engine.ranks import Ranks, refuse_mixed
from training.engine.replica_sync import MakeOptimizer, StageSync

Settings = dict[str, dict[str, object]]
"""Settings of each weight, by its name in the whole network."""


def check_optimizers(
    make: MakeOptimizer,
    stages: Sequence[Mapping[str, Tensor]],
    syncs: Sequence[StageSync],
    ranks: Ranks,
    device: torch.device,
) -> None:
    """Check what `make` gave this rank's weights against its answer for all.

    Args:
        stages: trained weights of the whole network, by name; their values do not matter.
        syncs: of the stages held here.

    Raises:
        ValueError: a weight has other settings than it would have in one process.
        MixedRanksError: the rule of the first rank gives others.
    """
    wanted = _asked_about_all(make, stages, device)
    complaint = next(filter(None, (_complaint(sync, wanted) for sync in syncs)), None)
    # All ranks are refused if one is: the others would wait for it.
    by_rank = ranks.gather((_flat(wanted), complaint))
    refuse_mixed([{_told(key): value for key, value in flat.items()} for flat, _ in by_rank])
    for _, other in by_rank:
        if other is not None:
            raise ValueError(other)


def _complaint(sync: StageSync, wanted: Settings) -> str | None:
    given = {} if sync.optimizer is None else _settings(sync.optimizer, sync.owned)
    name = next((name for name in sync.owned if wanted.get(name) != given.get(name)), None)
    if name is None:
        return None
    in_part, in_all = given.get(name), wanted.get(name)
    key = next(key for key in {**(in_all or {}), **(in_part or {})} if _value(in_all, key) != _value(in_part, key))
    return (
        f"make_optimizer gives the weight {name} {key} = {_value(in_part, key)} when it is asked about some weights, "
        f"but {_value(in_all, key)} when it is asked about all; decide by a weight's name or shape, not by its place"
    )


def _value(settings: Mapping[str, object] | None, key: str) -> object:
    return "nothing" if settings is None else settings.get(key)


def _asked_about_all(make: MakeOptimizer, stages: Sequence[Mapping[str, Tensor]], device: torch.device) -> Settings:
    """The rule's answer for weights of the right names, shapes and types that take no memory."""
    weights = {
        name: nn.Parameter(torch.zeros((), dtype=weight.dtype, device=device).expand(weight.shape))
        for stage in stages
        for name, weight in stage.items()
    }
    return _settings(make(list(weights.items())), weights) if weights else {}


def _settings(optimizer: torch.optim.Optimizer, weights: Mapping[str, nn.Parameter]) -> Settings:
    names = {id(weight): name for name, weight in weights.items()}
    return {
        names[id(weight)]: {
            "optimizer": type(optimizer).__name__,
            **{key: _plain(value) for key, value in group.items() if key not in ("params", "param_names")},
        }
        for group in optimizer.param_groups
        for weight in group["params"]
    }


def _plain(value: Any) -> object:
    """A value that two ranks can compare."""
    return value.tolist() if isinstance(value, Tensor) else value


def _flat(settings: Settings) -> dict[tuple[str, str], object]:
    return {(name, key): value for name, keys in settings.items() for key, value in keys.items()}


def _told(key: tuple[str, str]) -> str:
    name, setting = key
    return f"the optimizer's {setting} of the weight {name}"
