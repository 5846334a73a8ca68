"""The engine of one rank: its stages, their optimizers, and the steps it takes together with the other ranks.

    from training import engine

    ranks = engine.connect_ranks(timeout_s=600)                # under torchrun; engine.alone() for one process
    blocks = [...]                                             # run one after the other; tuples may pass between them
    plan = engine.make_plan("master", num_stages=2, num_microbatches=4, costs=[1.0] * len(blocks))
    trained = engine.Engine(blocks, plan, ranks=ranks)
    for images, labels in data:
        batch = engine.split(images, labels, microbatch_size=8)
        print(trained.train_step(batch, loss).loss)            # loss: (output, labels) -> sum over the samples
    outputs = trained.forward_only(batch)                      # evaluation mode; on every rank
    state = trained.full_state_dict()                          # weights of the whole network, on every rank
    ranks.close()

Every rank runs the same lines. The same seed and micro-batches give the same weights, bit for bit, under every
strategy, any cuts and any number of ranks: on the CPU with the same number of threads per rank, on GPUs with
deterministic kernels. docs/explanation/engine.md says how it works and when not to use it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from training.engine import state as states
from training.engine.agreement import Agreement, Fault, NonFiniteError, agree
from training.engine.check import check_schedule
from training.engine.executor import Batch, Executor, Loss, Meter, Step, Watch, unwatched
from training.engine.feed import Feed
from training.engine.loss_scale import LossScale
from training.engine.memory import LiveBytes
from training.engine.numerics import deterministic_kernels
from training.engine.optimizer_settings import check_optimizers
from training.engine.parts import StageLink
from training.engine.placement import Held
from training.engine.plan import Plan
from training.engine.random_numbers import random_numbers_kept
from training.engine.ranks import Ranks, alone
from training.engine.replica_sync import StageSync, clip_factor
from training.engine.schedule import Schedule
from training.engine.stage import StageCopy
from training.engine.stages import make_copies, named_stages
from training.engine.transport import Transport

FP16_SCALE = 2.0**16


@dataclass(frozen=True)
class StepResult:
    """Result of a step, known to every rank."""

    loss: float
    """Mean over all samples of the step."""
    losses: tuple[float, ...]
    """Its parts, by micro-batch."""
    gradient_norm: float
    """Norm of all gradients together, before clipping."""
    skipped: bool = False
    """The gradients overflowed in fp16: no weight has changed, and the loss scale is lower from now on."""


class Engine:
    """This rank's part of the network and its training."""

    def __init__(
        self,
        blocks: Sequence[nn.Module],
        plan: Plan,
        *,
        ranks: Ranks | None = None,
        prepare: Callable[[Tensor], Tensor] | None = None,
        count_bytes: bool = False,
        watch: Watch = unwatched,
        meter: Meter | None = None,
    ):
        """Take over this rank's stages of the network and make the optimizers of the weights that it owns.

        Args:
            blocks: the full list, equal on every rank. Those of this rank are trained in place; release the others to
                free their memory.
            ranks: None for a process on its own.
            prepare: turns what a batch returns (such as uint8 tiles) into the network's input, on the device.
            count_bytes: keep `live_bytes` up to date, from the start.
            watch: called before each action with the number of the step and what this rank does next.
            meter: times what this rank computes, for measurements.

        Raises:
            ValueError: ranks, cuts and blocks do not match, two stages share a weight, or the settings of a weight in
                its optimizer depend on which others are asked about.
            MixedRanksError: ranks make other optimizers.
        """
        self.plan, self._watch = plan, watch
        self._ranks = ranks or alone()
        self._schedules: dict[tuple[int, bool], Schedule] = {}
        self.steps_done = 0
        """Steps since the start of the training; set it when resuming: random numbers depend on it."""
        self.loss_scale = LossScale(FP16_SCALE, is_on=True) if plan.precision == "fp16" else LossScale()
        self.live_bytes = LiveBytes(enabled=count_bytes)
        stages = named_stages(blocks, plan, self._ranks)
        self._specs = states.specs_of(stages, plan)
        trained = [{n: w.to("meta") for n, w in stage.named_parameters() if w.requires_grad} for stage in stages]
        self._trained = [list(weights) for weights in trained]
        """Names of the trained weights of every stage."""
        self._transport = Transport(self._ranks, plan.device, counter=self.live_bytes)
        self._copies = self._make_copies(stages)
        self._stages = self._make_syncs()
        check_optimizers(plan.make_optimizer, trained, list(self._stages.values()), self._ranks, plan.device)
        self._first_lr = [(group, group["lr"]) for o in self._optimizers() for group in o.param_groups]
        self._feed = Feed(plan.prefetch, pinned=plan.device.type == "cuda")
        self._failed = False
        self._executor = Executor(
            copies=self._copies,
            transport=self._transport,
            syncs=self._stages,
            place=lambda value: plan.place(value, prepare),
            feed=self._feed,
            counter=self.live_bytes,
            watch=watch,
        )
        self._executor.meter = meter
        if self._ranks.num_ranks > 1:
            # Ranks that were seeded differently start with the weights of the first, as with any data parallelism.
            self.load_full_state_dict(self.full_state_dict())

    def _make_copies(self, stages: Sequence[nn.Sequential]) -> dict[Held, StageCopy]:
        return make_copies(
            self.plan,
            self._ranks.rank,
            stages,
            counter=self.live_bytes,
            link=lambda ranks: StageLink(self._transport, ranks),
        )

    def _make_syncs(self) -> dict[int, StageSync]:
        return {
            copy.stage: StageSync(
                copy,
                rank=self._ranks.rank,
                holders=partial(self.plan.placement.holders, copy.stage),
                transport=self._transport,
                make=self.plan.make_optimizer,
            )
            for copy in self._copies.values()
        }

    @property
    def rank(self) -> int:
        """Rank of this process."""
        return self._ranks.rank

    # --- steps -------------------------------------------------------------------------------------

    def train_step(self, batch: Batch, loss: Loss, *, upcoming: Batch | None = None) -> StepResult:
        """Run all micro-batches of one step and update the weights. Every rank calls it with an equal batch.

        The batch may have any number of micro-batches, of any shapes. The blocks run in the mode (training or
        evaluation) in which the engine took them over.

        Args:
            loss: (output, targets) -> the sum of the loss over the samples of a micro-batch; the engine divides it by
                the samples of the whole batch.
            upcoming: the batch of the next step, so that its first inputs are read while this one computes.

        Raises:
            NonFiniteError: a loss or a gradient is not finite; no weight has changed, and the next step may follow.
            LostPeerError: another rank is gone or too slow. The weights may then differ between ranks: start again
                from the last saved state.
            ValueError: a mode or `requires_grad` changed since the engine was made, or the network does not fit.
            RuntimeError: an earlier step of this engine has failed.
        """
        schedule = self._schedule(len(batch.shapes), forward_only=False)
        after = (self._schedule(len(upcoming.shapes), forward_only=False), upcoming) if upcoming else None
        for stage in self._stages.values():
            stage.copy.check_modes()
        with self._whole_step():
            step = self._executor.begin(
                schedule, batch, loss,
                number=self.steps_done, seed=self.plan.seed, loss_scale=self.loss_scale.value, upcoming=after,
            )  # fmt: skip
            with ExitStack() as stack:
                for stage in self._stages.values():
                    stack.enter_context(stage.copy.recording())
                self._executor.run(step, range(step.first_update))
            self._watch(step.number, "sharing the losses")
            agreed = agree(step, self._stages, self._trained, self._transport)
            fault = agreed.loss_fault() or agreed.gradient_fault()
            if fault is None:
                self._update(step, agreed)
            else:
                self._drop(step)
        return self._result(agreed, fault)

    def forward_only(self, batch: Batch) -> list[Tensor]:
        """Outputs of the network for each micro-batch, on every rank; in evaluation mode, keeping no activations.

        Returns:
            CPU tensors by micro-batch.

        Raises:
            LostPeerError: another rank is gone or too slow.
        """
        schedule = self._schedule(len(batch.shapes), forward_only=True)
        with self._whole_step(), ExitStack() as stack:
            for stage in self._stages.values():
                stack.enter_context(stage.copy.evaluating())
            step = self._executor.begin(schedule, batch, None, number=self.steps_done, seed=self.plan.seed)
            self._executor.run(step, range(len(step.actions)))
            self._executor.finish(step)
            mine = {k: output.cpu() for k, output in step.results.items()}
            by_rank = self._transport.share(mine, during="sharing the outputs")
        outputs = {k: output for part in by_rank for k, output in part.items()}
        return [outputs[microbatch] for microbatch in range(len(batch.shapes))]

    def scale_lr(self, factor: float) -> None:
        """Set every group's learning rate to `factor` times its initial one; every rank calls it."""
        for group, lr in self._first_lr:
            group["lr"] = lr * factor

    def share(self, value: Any, *, during: str) -> list[Any]:
        """Every rank's object, by rank; every rank calls it and gets all."""
        return self._transport.share(value, during=during)

    @property
    def between_parts_s(self) -> float:
        """Seconds that this rank has spent in messages between parts of its stages, and waiting for them."""
        return self._transport.between_parts_s

    def peak_bytes(self) -> dict[str, list[int]]:
        """Peak memory of the last step, by rank; every rank calls it.

        Returns:
            "live": as counted by `live_bytes`, 0 where it is switched off. On GPUs also "allocator": the most that the
            device's allocator has handed out since the start, with weights, gradients and workspaces.
        """
        mine = {"live": self.live_bytes.peak}
        if self.plan.device.type == "cuda":
            mine["allocator"] = torch.cuda.max_memory_allocated(self.plan.device)
        by_rank = self._transport.share(mine, during="sharing the memory used")
        return {name: [peaks[name] for peaks in by_rank] for name in mine}

    @property
    def at(self) -> str | None:
        """The last thing this rank began, such as a block of the network, to report where something failed."""
        return self._executor.at

    def close(self) -> None:
        """Stop reading ahead; the last call, not needed at the end of a program."""
        self._feed.close()

    @contextmanager
    def _whole_step(self) -> Iterator[None]:
        """Allow no step after a failed one, which leaves partial results in sums, graphs and channels."""
        if self._failed:
            raise RuntimeError("an earlier step of this engine failed; make a new one from the last saved state")
        self._failed = True
        with ExitStack() as stack:
            stack.enter_context(random_numbers_kept(self.plan.device))
            stack.enter_context(deterministic_kernels(self.plan.device, wanted=self.plan.deterministic))
            yield
        self._failed = False

    def _update(self, step: Step, agreed: Agreement) -> None:
        if self.plan.clip_norm is not None:
            factor = clip_factor(agreed.norm, self.plan.clip_norm)
            for stage in self._stages.values() if factor < 1.0 else ():
                stage.scale_gradients(factor)
        self._executor.run(step, range(step.first_update, len(step.actions)))
        self._executor.finish(step)
        self.loss_scale.note_good_step()
        self.steps_done += 1

    def _drop(self, step: Step) -> None:
        for stage in self._stages.values():
            stage.forget()
        self._transport.flush()
        self.steps_done += 1

    def _result(self, agreed: Agreement, fault: Fault | None) -> StepResult:
        skipped = fault is not None
        if fault and (agreed.loss_fault() or not self.loss_scale.lower()):
            error = NonFiniteError(f"step {self.steps_done - 1}: {fault}. No weight has changed.")
            error.microbatch = fault.microbatch
            raise error
        return StepResult(sum(agreed.losses), agreed.losses, agreed.norm, skipped)

    def _schedule(self, num_microbatches: int, *, forward_only: bool) -> Schedule:
        key = (num_microbatches, forward_only)
        if key not in self._schedules:
            self._schedules[key] = self.plan.schedule(num_microbatches, forward_only=forward_only)
            check_schedule(self._schedules[key], forward_only=forward_only)
        return self._schedules[key]

    # --- state -------------------------------------------------------------------------------------

    def full_state_dict(self) -> dict[str, Tensor]:
        """Weights and buffers of the whole network; every rank calls it and gets all.

        Returns:
            contiguous copies in CPU memory, named as `nn.Sequential(*blocks).state_dict()` names them.
        """
        return self.share_state(self.own_state())

    def own_state(self) -> dict[str, Tensor]:
        """The live weights and buffers that this rank provides: over all ranks, each of the network's once."""
        return states.own_state(self._specs, self._modules(), self._ranks.rank)

    def share_state(self, own: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """All ranks' tensors like those of `own_state`, together; every rank calls it and gets all.

        Returns:
            contiguous copies in CPU memory.
        """
        return states.gather_state(self._specs, own, self._transport)

    def load_full_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Load weights and buffers that `full_state_dict` returned, under any strategy; every rank calls it.

        Raises:
            ValueError: names or shapes are not those of this network; nothing is loaded then.
        """
        states.load_state(self._specs, self._modules(), state)

    def full_optimizer_state(self) -> dict[str, Tensor]:
        """State of the optimizers for the whole network (momentum and the like); every rank calls it and gets all.

        Returns:
            contiguous copies in CPU memory, named `<weight>/<slot>`, such as `3.conv1.weight/momentum_buffer`.

        Raises:
            TypeError: an optimizer's state holds something other than tensors.
        """
        by_rank = self.share(self.own_optimizer_state(), during="sharing the state of the optimizers")
        return {name: slot for state in by_rank for name, slot in sorted(state.items())}

    def own_optimizer_state(self) -> dict[str, Tensor]:
        """The part of `full_optimizer_state` that this rank holds: over all ranks, each slot once.

        Raises:
            TypeError: an optimizer's state holds something other than tensors.
        """
        return states.optimizer_state(self._stages.values())

    def load_full_optimizer_state(self, state: Mapping[str, Tensor]) -> None:
        """Load what `full_optimizer_state` returned, under any strategy; every rank calls it, before the next step.

        Raises:
            ValueError: the state is of another network or another kind of optimizer; nothing is loaded then.
        """
        states.load_optimizer_state(self._specs, list(self._stages.values()), state)

    def _modules(self) -> dict[int, nn.Sequential]:
        return {stage: sync.copy.module for stage, sync in self._stages.items()}

    def _optimizers(self) -> list[torch.optim.Optimizer]:
        return [sync.optimizer for sync in self._stages.values() if sync.optimizer is not None]
