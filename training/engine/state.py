"""Weights, buffers and optimizer state, under the names of the whole network."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from training.engine.layout import pack, packed_bytes, unpack
from training.engine.plan import Plan
from training.engine.replica_sync import StageSync
from training.engine.sums.weight_group import part_of_names
from training.engine.transport import Transport


class Spec(NamedTuple):
    """Weights and buffers that the same ranks hold."""

    stage: int
    first_holder: int
    """The rank that provides them."""
    tensors: dict[str, Tensor]
    """By name, on the meta device."""


def specs_of(stages: Sequence[nn.Module], plan: Plan) -> list[Spec]:
    """Everything of a network, stage by stage, and within a stage by the parts that have it.

    Args:
        stages: whole, with all branches.

    Raises:
        ValueError: more parts than branches, or branches that share weights.
    """
    specs = []
    for stage, module in enumerate(stages):
        part_of = part_of_names(module, plan.divisions[stage].num_sub_graphs)
        tensors = {name: tensor.to("meta") for name, tensor in module.state_dict().items()}
        for part in (None, *sorted(set(part_of.values()))):
            own = {name: tensor for name, tensor in tensors.items() if part_of.get(name) == part}
            specs.append(Spec(stage, plan.placement.holders(stage, part)[0], own))
    return specs


def own_state(specs: Sequence[Spec], modules: Mapping[int, nn.Module], rank: int) -> dict[str, Tensor]:
    """The live weights and buffers of which a rank is the first holder: over all ranks, each once."""
    live = {name: tensor for stage in sorted(modules) for name, tensor in modules[stage].state_dict().items()}
    return {name: live[name] for spec in specs if spec.first_holder == rank for name in spec.tensors}


def gather_state(specs: Sequence[Spec], own: Mapping[str, Tensor], transport: Transport) -> dict[str, Tensor]:
    """Combine all ranks' `own_state`; copies in CPU memory on every rank."""
    full: dict[str, Tensor] = {}
    for stage, first_holder, spec in specs:
        tensors = list(spec.values())
        mine = spec.keys() <= own.keys()
        packed = pack([own[name] for name in spec]).cpu() if mine else _empty(packed_bytes(tensors))
        packed = transport.broadcast(packed, source=first_holder, during=f"weights of stage {stage}")
        full |= {name: tensor.clone() for name, tensor in zip(spec, unpack(packed, tensors), strict=True)}
    return full


def load_state(specs: Sequence[Spec], modules: Mapping[int, nn.Module], state: Mapping[str, Tensor]) -> None:
    """Copy a whole network's state into the stages held here.

    Raises:
        ValueError: names or shapes are not those of the network; nothing is loaded then.
    """
    spec = {name: tensor for own in specs for name, tensor in own.tensors.items()}
    wrong = sorted(name for name in spec.keys() & state.keys() if spec[name].shape != state[name].shape)
    if wrong or spec.keys() != state.keys():
        raise ValueError(
            f"the state is not of this network: missing {sorted(spec.keys() - state.keys())}, "
            f"unknown {sorted(state.keys() - spec.keys())}, other shapes {wrong}; "
            "load it into a network with the same recipe"
        )
    for module in modules.values():
        module.load_state_dict({name: state[name] for name in module.state_dict()})


def optimizer_state(stages: Iterable[StageSync]) -> dict[str, Tensor]:
    """State of this rank's optimizers, as `<weight>/<slot>`, in CPU memory.

    Raises:
        TypeError: the state holds something other than tensors.
    """
    state: dict[str, Tensor] = {}
    for stage in stages:
        remembered: Mapping[Any, Any] = {} if stage.optimizer is None else stage.optimizer.state
        for name, weight in stage.owned.items():
            for slot, kept in remembered.get(weight, {}).items():
                if isinstance(kept, Tensor):
                    state[f"{name}/{slot}"] = kept.detach().cpu().contiguous().clone()
                elif kept is not None:
                    raise TypeError(
                        f"{type(stage.optimizer).__name__} keeps {slot}={kept!r}; only tensors can be saved"
                    )
    return state


def load_optimizer_state(specs: Sequence[Spec], stages: Sequence[StageSync], state: Mapping[str, Tensor]) -> None:
    """Restore the state of this rank's optimizers.

    Raises:
        ValueError: the state is of another network or another kind of optimizer; nothing is loaded then.
    """
    by_weight: dict[str, dict[str, Tensor]] = {}
    for key, kept in state.items():
        name, _, slot = key.rpartition("/")
        by_weight.setdefault(name, {})[slot] = kept
    unknown = sorted(by_weight.keys() - {name for spec in specs for name in spec.tensors})
    if unknown:
        raise ValueError(f"the optimizer state is of another network: it has the weights {', '.join(unknown)}")
    for stage in stages:
        _check_slots(stage, by_weight)
    for stage in stages:
        for name, weight in stage.owned.items():
            if stage.optimizer is not None:
                stage.optimizer.state[weight] = {
                    # In the layout of the weight, as the optimizer itself would have made it.
                    slot: torch.empty_like(weight).copy_(kept) if kept.shape == weight.shape else kept.clone()
                    for slot, kept in by_weight.get(name, {}).items()
                }


def _check_slots(stage: StageSync, by_weight: Mapping[str, Mapping[str, Tensor]]) -> None:
    """Refuse state that the optimizer did not write: it would fail in mid-step, or continue incorrectly."""
    for name, wanted in stage.slots().items():
        given = {slot: kept.shape for slot, kept in by_weight.get(name, {}).items()}
        if by_weight and wanted != given:
            raise ValueError(
                f"the optimizer state does not fit {type(stage.optimizer).__name__}: for {name} it has "
                f"{_slots(given)}, not {_slots(wanted)}; continue with the optimizer that wrote it"
            )


def _slots(shapes: Mapping[str, torch.Size]) -> str:
    return ", ".join(f"{slot} {tuple(shape)}" for slot, shape in sorted(shapes.items())) or "nothing"


def _empty(num_bytes: int) -> Tensor:
    return torch.empty(num_bytes, dtype=torch.uint8)
