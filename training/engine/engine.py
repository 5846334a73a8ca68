"""The engine of one rank: its stages, their optimizer, and the steps it takes together with the other ranks.

Most callers want the three functions of `training.engine` instead, which keep an `Engine` per plan.
"""

import copy
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from training.engine.check import check_schedule
from training.engine.executor import Batch, Executor, Loss, Step
from training.engine.layout import pack, packed_bytes, unpack
from training.engine.memory import LiveBytes
from training.engine.partition import stage_ranges
from training.engine.plan import Plan
from training.engine.ranks import Ranks, alone
from training.engine.replica_sync import ReplicaSync, clip_factor
from training.engine.schedule import Op, Schedule, build_schedule
from training.engine.stage import StageCopy
from training.engine.transport import Transport


@dataclass(frozen=True)
class StepResult:
    """What every rank knows after a step."""

    loss: float
    """Mean over all samples of the step."""
    losses: tuple[float, ...]
    """Its parts, by micro-batch."""
    gradient_norm: float | None
    """Of all gradients together, before clipping; None where the plan clips nothing."""


class Engine:
    """This rank's part of the network and its training."""

    def __init__(
        self, blocks: Sequence[nn.Module], plan: Plan, *, ranks: Ranks | None = None, count_bytes: bool = False
    ):
        """Keep this rank's stages of the network and make the optimizer of the stage that it owns.

        Args:
            blocks: the full list, equal on every rank. The engine takes over those of this rank's normal stage and
                copies those of its mirrored stage; releases the others to free their memory.
            ranks: None for a process on its own.
            count_bytes: keep `live_bytes` up to date, from the start.

        Raises:
            ValueError: ranks, cuts and blocks do not fit each other, or two stages share a weight.
        """
        self.plan = plan
        self._ranks = ranks or alone()
        self._schedules: dict[tuple[int, bool], Schedule] = {}
        self.live_bytes = LiveBytes(enabled=count_bytes)
        stages = named_stages(blocks, plan, self._ranks)
        self._specs = [{name: tensor.to("meta") for name, tensor in stage.state_dict().items()} for stage in stages]
        self._num_weights = [sum(weight.requires_grad for weight in stage.parameters()) for stage in stages]
        self._copies = make_copies(
            plan,
            self._ranks.rank,
            lambda stage, mirrored: copy.deepcopy(stages[stage]) if mirrored else stages[stage],
            counter=self.live_bytes,
        )
        self._modes = [(m, m.training) for held in self._copies.values() for m in held.module.modules()]
        self._failed = False
        self._owned = self._copies.get(0)
        weights = self._owned.weights if self._owned else []
        self._optimizer = plan.make_optimizer(weights) if weights else None
        self._transport = Transport(self._ranks, plan.device, counter=self.live_bytes)
        self._sync = ReplicaSync(self._copies, self._optimizer, self._transport)
        self._executor = Executor(
            self._ranks.rank,
            copies=self._copies,
            transport=self._transport,
            sync=self._sync,
            place=plan.place,
            counter=self.live_bytes,
        )
        if self._ranks.num_ranks > 1:
            # Ranks that were seeded differently start with the weights of the owners, as with any data parallelism.
            self.load_full_state_dict(self.full_state_dict())

    # --- steps -------------------------------------------------------------------------------------

    def train_step(self, batch: Batch, loss: Loss) -> StepResult:
        """Run all micro-batches of one step and update the weights. Every rank calls it with an equal batch.

        The batch may have any number of micro-batches, of any shapes.

        The blocks do the step in the mode (training or evaluation) that they had when the engine took them over.

        Raises:
            LostPeerError: another rank is gone or too slow. The weights may then differ between ranks: start again
                from the last saved state.
            RuntimeError: an earlier step of this engine has failed.
        """
        schedule = self._schedule(len(batch.shapes), forward_only=False)
        with self._whole_step(training=True):
            step = self._executor.begin(schedule, batch, loss)
            first_update = next(i for i, action in enumerate(step.actions) if action.op is Op.STEP)
            for index in range(first_update):
                self._executor.do(step, index)
            result = self._agree(step)
            for index in range(first_update, len(step.actions)):
                self._executor.do(step, index)
            self._executor.finish()
        return result

    def forward_only(self, batch: Batch) -> list[Tensor]:
        """Outputs of the network for each micro-batch, on every rank; in evaluation mode, and nothing is kept.

        Returns:
            CPU tensors by micro-batch.

        Raises:
            LostPeerError: another rank is gone or too slow.
        """
        schedule = self._schedule(len(batch.shapes), forward_only=True)
        with self._whole_step(training=False):
            step = self._executor.begin(schedule, batch, None)
            for index in range(len(step.actions)):
                self._executor.do(step, index)
            self._executor.finish()
        outputs: dict[int, Tensor] = {}
        for source in range(self._ranks.num_ranks):
            mine = {k: output.cpu() for k, output in step.results.items()} if source == self._ranks.rank else None
            outputs |= self._transport.share(mine, source=source, during="sharing the outputs")
        return [outputs[microbatch] for microbatch in range(len(batch.shapes))]

    def set_lr(self, lr: float) -> None:
        """Set the learning rate of all following steps; every rank calls it."""
        for group in self._optimizer.param_groups if self._optimizer is not None else ():
            group["lr"] = lr

    def sum_over_ranks(self, values: Tensor, *, during: str) -> Tensor:
        """Add up tensors of one shape over all ranks; every rank calls it and gets the sum in CPU memory."""
        return self._transport.sum_over_ranks(values, during=during)

    @contextmanager
    def _whole_step(self, *, training: bool) -> Iterator[None]:
        """A step ends well or is the last: half of one lies in sums, graphs and channels."""
        if self._failed:
            raise RuntimeError("an earlier step of this engine failed; make a new one from the last saved state")
        before = [(module, module.training) for module, _ in self._modes]
        for module, mode in self._modes:
            module.training = mode and training
        self._failed = True
        try:
            yield
        finally:
            for module, mode in before:
                module.training = mode
        self._failed = False

    def peak_bytes(self) -> dict[str, list[int]]:
        """Of the last step, by rank; every rank calls it.

        Returns:
            "live": what `live_bytes` counted, 0 where it was switched off. On GPUs also "allocator": the most that the
            device's allocator had given out since the start, with weights, gradients and workspaces.
        """
        on_gpu = self.plan.device.type == "cuda"
        mine = {"live": self.live_bytes.peak}
        if on_gpu:
            mine["allocator"] = torch.cuda.max_memory_allocated(self.plan.device)
        peaks = {}
        for name, peak in mine.items():
            vector = torch.zeros(self._ranks.num_ranks, dtype=torch.int64)
            vector[self._ranks.rank] = peak
            peaks[name] = self._transport.sum_over_ranks(vector, during="sharing the memory used").tolist()
        return peaks

    def _schedule(self, num_microbatches: int, *, forward_only: bool) -> Schedule:
        key = (num_microbatches, forward_only)
        if key not in self._schedules:
            self._schedules[key] = build_schedule(
                self.plan.strategy,
                num_stages=self.plan.num_stages,
                num_microbatches=num_microbatches,
                data_parallel=self.plan.data_parallel,
                forward_only=forward_only,
            )
            check_schedule(self._schedules[key], forward_only=forward_only)
        return self._schedules[key]

    def _agree(self, step: Step) -> StepResult:
        """Losses and, for clipping, the norm of all gradients: the same numbers on every rank, exactly.

        Each number is known to one rank; they are added up in the order of micro-batches and of weights.
        """
        num_losses = len(step.shapes)
        numbers = torch.zeros(num_losses + sum(self._num_weights), dtype=torch.float64)
        for microbatch, value in step.results.items():
            numbers[microbatch] = value.item()
        if self.plan.clip_norm is not None and self._owned is not None:
            start = num_losses + sum(self._num_weights[: self._owned.stage])
            squares = self._sync.squared_norms()
            numbers[start : start + len(squares)] = torch.tensor(squares, dtype=torch.float64)
        shared = self._transport.sum_over_ranks(numbers, during="sharing the losses").tolist()
        losses = tuple(shared[:num_losses])
        if self.plan.clip_norm is None:
            return StepResult(sum(losses), losses, None)
        norm, factor = clip_factor(shared[num_losses:], self.plan.clip_norm)
        if factor < 1.0:
            self._sync.scale_gradients(factor)
        return StepResult(sum(losses), losses, norm)

    # --- state -------------------------------------------------------------------------------------

    def full_state_dict(self) -> dict[str, Tensor]:
        """Weights and buffers of the whole network, from their owners; every rank calls it and gets all.

        Returns:
            contiguous copies on this rank's device, named as `nn.Sequential(*blocks).state_dict()` names them.
        """
        full: dict[str, Tensor] = {}
        for stage, spec in enumerate(self._specs):
            tensors = list(spec.values())
            if self._owned is not None and stage == self._owned.stage:
                packed = pack(list(self._owned.module.state_dict().values())).to(self.plan.device)
            else:
                packed = torch.empty(packed_bytes(tensors), dtype=torch.uint8, device=self.plan.device)
            packed = self._transport.broadcast(packed, source=stage, during=f"weights of stage {stage}")
            full |= {name: tensor.clone() for name, tensor in zip(spec, unpack(packed, tensors), strict=True)}
        return full

    def load_full_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take weights and buffers from what `full_state_dict` gave, under whatever strategy; every rank calls it.

        Raises:
            ValueError: names or shapes are not those of this network; nothing is loaded then.
        """
        spec = {name: tensor for stage in self._specs for name, tensor in stage.items()}
        wrong = sorted(name for name in spec.keys() & state.keys() if spec[name].shape != state[name].shape)
        if wrong or spec.keys() != state.keys():
            raise ValueError(
                f"the state is not of this network: missing {sorted(spec.keys() - state.keys())}, "
                f"unknown {sorted(state.keys() - spec.keys())}, other shapes {wrong}; "
                "load it into a network with the same recipe"
            )
        for held in self._copies.values():
            held.module.load_state_dict({name: state[name] for name in self._specs[held.stage]})

    def full_optimizer_state(self) -> dict[str, Tensor]:
        """What the optimizers remember of the whole network (momentum and the like); every rank calls it and gets all.

        Returns:
            contiguous copies in CPU memory, named `<weight>/<slot>`, such as `3.conv1.weight/momentum_buffer`.

        Raises:
            TypeError: an optimizer remembers something that is no tensor.
        """
        full: dict[str, Tensor] = {}
        for stage in range(len(self._specs)):
            own = self._own_optimizer_state() if self._owned and stage == self._owned.stage else None
            full |= self._transport.share(own, source=stage, during=f"optimizer state of stage {stage}")
        return full

    def load_full_optimizer_state(self, state: Mapping[str, Tensor]) -> None:
        """Take what `full_optimizer_state` gave, under whatever strategy; every rank calls it, before the next step.

        Raises:
            ValueError: it remembers weights that this network has not; nothing is loaded then.
        """
        by_weight: dict[str, dict[str, Tensor]] = {}
        for key, kept in state.items():
            name, _, slot = key.rpartition("/")
            by_weight.setdefault(name, {})[slot] = kept
        unknown = sorted(by_weight.keys() - {name for stage in self._specs for name in stage})
        if unknown:
            raise ValueError(f"the optimizer state is of another network: it knows the weights {', '.join(unknown)}")
        if self._optimizer is None:
            return
        for name, weight in self._own_weights().items():
            slots = by_weight.get(name, {})
            self._optimizer.state[weight] = {
                # In the layout of the weight, as the optimizer itself would have made it.
                slot: torch.empty_like(weight).copy_(kept) if kept.shape == weight.shape else kept.clone()
                for slot, kept in slots.items()
            }

    def _own_weights(self) -> dict[str, nn.Parameter]:
        if self._owned is None:
            return {}
        return {name: weight for name, weight in self._owned.module.named_parameters() if weight.requires_grad}

    def _own_optimizer_state(self) -> dict[str, Tensor]:
        state: dict[str, Tensor] = {}
        remembered = {} if self._optimizer is None else self._optimizer.state
        for name, weight in self._own_weights().items():
            for slot, kept in remembered.get(weight, {}).items():
                if isinstance(kept, Tensor):
                    state[f"{name}/{slot}"] = kept.detach().cpu().contiguous().clone()
                elif kept is not None:
                    raise TypeError(
                        f"{type(self._optimizer).__name__} keeps {slot}={kept!r}, only tensors can be saved"
                    )
        return state


def named_stages(blocks: Sequence[nn.Module], plan: Plan, ranks: Ranks) -> list[nn.Sequential]:
    """The blocks of each stage, by their index in the whole network.

    Raises:
        ValueError: ranks, cuts and blocks do not fit each other, or two stages share a weight.
    """
    if ranks.num_ranks != plan.world_size:
        raise ValueError(
            f"{plan.strategy} with {plan.num_stages} stages and {plan.data_parallel} groups needs {plan.world_size} "
            f"ranks, got {ranks.num_ranks}; start {plan.world_size} processes or change num_stages"
        )
    ranges = stage_ranges(plan.cuts, len(blocks))
    stages = [nn.Sequential(OrderedDict((str(i), blocks[i]) for i in indices)) for indices in ranges]
    home: dict[int, int] = {}
    for stage, module in enumerate(stages):
        for name, weight in (*module.named_parameters(), *module.named_buffers()):
            if home.setdefault(id(weight), stage) != stage:
                raise ValueError(f"stages {home[id(weight)]} and {stage} share the weight {name}; give each its own")
    return stages


def make_copies(
    plan: Plan, rank: int, module_of: Callable[[int, bool], nn.Sequential], *, counter: LiveBytes
) -> dict[int, StageCopy]:
    """The stages that a rank holds, by replica; `module_of` takes (stage, is mirrored)."""
    copies: dict[int, StageCopy] = {}
    for replica, stage in plan.held_by(rank):
        module = plan.place_module(module_of(stage, bool(copies)))
        copies[replica] = StageCopy(
            module,
            replica=replica,
            stage=stage,
            device=plan.device,
            precision=plan.precision,
            segments=plan.recompute.segments(stage, len(module)),
            counter=counter,
            is_last=stage == plan.num_stages - 1,
        )
    return copies
