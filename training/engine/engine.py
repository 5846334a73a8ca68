"""The public door of the engine: train one network whose blocks are spread over ranks.

    blocks = ...                                       # the same full list on every rank, from the same seed
    costs = [cost.flops for cost in block_costs(blocks, (1, 3, 1024, 1024))]
    plan = make_plan("master", num_stages=4, num_microbatches=8, costs=costs)
    engine = Engine(blocks, plan=plan, make_optimizer=lambda weights: torch.optim.SGD(weights, lr=0.1), ranks=ranks)
    total_loss = engine.train_step(inputs, loss)

Same seed and same micro-batches give the same weights, bit for bit, under every strategy and any cuts: on the CPU and
on GPUs with deterministic kernels, with the same number of threads, for a number of micro-batches that is a power of
two, and for networks that draw no random numbers in forward. Source: GEMS (SC20).
"""

import copy
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from training.engine.executor import Executor, Inputs, share_losses
from training.engine.partition import partition, stage_ranges
from training.engine.ranks import Ranks, alone
from training.engine.replica_sync import ReplicaSync, pack, packed_bytes, unpack
from training.engine.schedule import Op, Schedule, build_schedule, check_schedule, rank_of
from training.engine.stage import Loss, Precision, StageCopy
from training.engine.transport import Transport

MakeOptimizer = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]


@dataclass(frozen=True)
class Plan:
    """How one step is spread over ranks."""

    schedule: Schedule
    cuts: tuple[int, ...]
    """Block index at which each stage but the first starts."""


def make_plan(strategy: str, *, num_stages: int, num_microbatches: int, costs: Sequence[float]) -> Plan:
    """Choose cuts and the order of work.

    Args:
        strategy: see `build_schedule`.
        num_microbatches: of the whole step, over both replicas.
        costs: of each block, in whatever is to be balanced (`BlockCost.flops` or `.saved_bytes`).

    Raises:
        ValueError: the numbers do not fit the strategy, or there are fewer blocks than stages.
    """
    schedule = build_schedule(strategy, num_stages=num_stages, num_microbatches=num_microbatches)
    check_schedule(schedule)
    return Plan(schedule, partition(costs, num_stages))


class Engine:
    """This rank's part of the network and its training."""

    def __init__(
        self,
        blocks: Sequence[nn.Module],
        *,
        plan: Plan,
        make_optimizer: MakeOptimizer,
        device: torch.device | None = None,
        precision: Precision = "fp32",
        channels_last: bool = False,
        ranks: Ranks | None = None,
    ):
        """Keep this rank's stages of the network and make the optimizer of its own stage.

        Args:
            blocks: the full list, equal on every rank. The engine takes over those of this rank's own stage and copies
                those of its mirrored stage; let go of the others to free their memory.
            make_optimizer: called with the weights of one stage; the rule must treat each weight on its own.
            precision: "bf16" runs forward and loss under autocast; weights and their gradients stay fp32.
            channels_last: memory format of 4-D weights, inputs and boundaries.
            ranks: None for the strategy `single`.

        Raises:
            ValueError: ranks, cuts and blocks do not fit each other, or two stages share a weight.
        """
        self.plan = plan
        self._ranks = ranks or alone()
        self._device = device or torch.device("cpu")
        self._channels_last = channels_last
        stages = self._named_stages(blocks)
        self._specs = [{name: tensor.to("meta") for name, tensor in stage.state_dict().items()} for stage in stages]
        self._copies = self._make_copies(stages, precision)
        own = self._copies[0]
        self._optimizer = make_optimizer(own.weights) if own.weights else None
        self._transport = Transport(self._ranks, self._device)
        self._executor = Executor(
            plan.schedule,
            ranks=self._ranks,
            copies=self._copies,
            transport=self._transport,
            sync=ReplicaSync(plan.schedule, self._copies, self._optimizer, self._transport),
        )

    def train_step(self, inputs: Inputs, loss: Loss) -> float:
        """Run all micro-batches of one step and update the weights.

        Args:
            inputs: micro-batch -> its input; called for `input_microbatches` only.
            loss: (output, micro-batch) -> scalar, divided by the number of samples of the whole step; called for
                `output_microbatches` only.

        Returns:
            sum of the losses in the order of the micro-batches, the same on every rank.

        Raises:
            LostPeerError: another rank is gone or too slow. The weights may then differ between ranks: start again
                from the last saved state.
        """
        losses = self._executor.run(lambda microbatch: self._place(inputs(microbatch)), loss)
        return share_losses(
            losses,
            num_microbatches=self.plan.schedule.num_microbatches,
            ranks=self._ranks,
            transport=self._transport,
        )

    @property
    def input_microbatches(self) -> tuple[int, ...]:
        """Micro-batches whose inputs this rank loads, in the order in which it asks for them."""
        return self._forwards_of_stage(0)

    @property
    def output_microbatches(self) -> tuple[int, ...]:
        """Micro-batches whose labels this rank loads, in the order in which it asks for them."""
        return self._forwards_of_stage(self.plan.schedule.num_stages - 1)

    def set_lr(self, lr: float) -> None:
        """Set the learning rate of all following steps; every rank calls it."""
        for group in self._optimizer.param_groups if self._optimizer is not None else ():
            group["lr"] = lr

    def full_state_dict(self) -> dict[str, Tensor]:
        """Weights and buffers of the whole network, from their owners; every rank calls it and gets all.

        Returns:
            contiguous copies on this rank's device, named as `nn.Sequential(*blocks).state_dict()` names them.
        """
        full: dict[str, Tensor] = {}
        for stage, spec in enumerate(self._specs):
            tensors = list(spec.values())
            if stage == self._copies[0].stage:
                packed = pack(list(self._copies[0].module.state_dict().values())).to(self._device)
            else:
                packed = torch.empty(packed_bytes(tensors), dtype=torch.uint8, device=self._device)
            if self._ranks.num_ranks > 1 and packed.numel():
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
            own = self._own_optimizer_state() if stage == self._copies[0].stage else None
            full |= self._transport.share(own, source=stage, during=f"optimizer state of stage {stage}")
        return full

    def load_full_optimizer_state(self, state: Mapping[str, Tensor]) -> None:
        """Take what `full_optimizer_state` gave, under whatever strategy; every rank calls it, before the next step."""
        if self._optimizer is None:
            return
        for name, weight in self._own_weights().items():
            slots = {key.rpartition("/")[2]: state[key] for key in state if key.rpartition("/")[0] == name}
            self._optimizer.state[weight] = {
                # In the layout of the weight, as the optimizer itself would have made it.
                slot: torch.empty_like(weight).copy_(kept) if kept.shape == weight.shape else kept.clone()
                for slot, kept in slots.items()
            }

    def _own_weights(self) -> dict[str, nn.Parameter]:
        return {name: weight for name, weight in self._copies[0].module.named_parameters() if weight.requires_grad}

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

    def _named_stages(self, blocks: Sequence[nn.Module]) -> list[nn.Sequential]:
        schedule = self.plan.schedule
        if self._ranks.num_ranks != schedule.num_stages:
            raise ValueError(
                f"{schedule.strategy} with {schedule.num_stages} stages needs as many ranks, "
                f"got {self._ranks.num_ranks}; start {schedule.num_stages} processes or change num_stages"
            )
        ranges = stage_ranges(self.plan.cuts, len(blocks))
        if len(ranges) != schedule.num_stages:
            raise ValueError(f"{len(self.plan.cuts)} cuts make {len(ranges)} stages, not {schedule.num_stages}")
        stages = [nn.Sequential(OrderedDict((str(i), blocks[i]) for i in indices)) for indices in ranges]
        home: dict[int, int] = {}
        for stage, module in enumerate(stages):
            for name, weight in module.named_parameters():
                if home.setdefault(id(weight), stage) != stage:
                    raise ValueError(
                        f"stages {home[id(weight)]} and {stage} share the weight {name}; give each its own"
                    )
        return stages

    def _make_copies(self, stages: list[nn.Sequential], precision: Precision) -> dict[int, StageCopy]:
        copies = {}
        for replica in range(self.plan.schedule.num_replicas):
            stage = rank_of(self._ranks.rank, replica=replica, num_stages=len(stages))
            module: nn.Module = stages[stage] if replica == 0 else copy.deepcopy(stages[stage])
            module = module.to(self._device)
            if self._channels_last:
                # torch's stubs know no `to` with only a memory format.
                module = module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            copies[replica] = StageCopy(module, replica=replica, stage=stage, device=self._device, precision=precision)
        return copies

    def _place(self, images: Tensor) -> Tensor:
        images = images.to(self._device)
        channels_last = self._channels_last and images.ndim == 4
        return images.contiguous(memory_format=torch.channels_last) if channels_last else images

    def _forwards_of_stage(self, stage: int) -> tuple[int, ...]:
        actions = self.plan.schedule.ranks[self._ranks.rank]
        return tuple(
            action.microbatch
            for action in actions
            if action.op is Op.F and action.stage == stage and action.microbatch is not None
        )
