"""A machine as it was measured: seconds of blocks, links between its ranks, sums and updates; one JSON file.

A file holds for one kind of processor and one way of computing on it. Read anywhere else, it is refused.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Annotated

import torch
from pydantic import Field
from torch import nn

from training.engine.partition import BlockCost, BlockTimes
from training.engine.placement import Placement
from training.engine.schedule import Schedule
from training.engine.sums.tree_sum import nodes_of
from training.foundation.errors import BadRecipeError, NotCalibratedError
from training.foundation.publish import write_bytes_atomic
from training.foundation.reading import read_json_file
from training.foundation.settings import Section, parse_section
from training.foundation.words.counts import counted
from training.machine.threads import instruction_set
from training.oracle.calibration.block_inputs import Setting, fingerprints
from training.oracle.simulation.costs import Costs, StageCost
from training.oracle.simulation.links import Link, Network, instant, pairs, swap_s
from training.parallel.division import Division

FOLDER = "machines"
"""Folder of the files in a project."""
MOST_BLOCKS = 100_000
Seconds = Annotated[float, Field(ge=0)]


class Identity(Section):
    """What measured seconds hold for."""

    processor: str
    device: str
    """"cpu" or "cuda"."""
    backend: str
    """Transport of messages: "gloo" or "nccl"; "none" for a rank on its own."""
    torch: str
    instruction_set: str
    threads: int = Field(ge=1)
    """Of each rank, within an operation."""
    precision: str
    channels_last: bool
    num_ranks: int = Field(ge=1)
    """Ranks that computed at the same time."""


class MeasuredBlock(Section):
    """Seconds of a block (`BlockTimes`)."""

    forward_s: Seconds
    backward_s: Seconds
    norm_s: Seconds
    offload_s: Seconds
    alone: Annotated[float, Field(gt=0, le=1)]


class MeasuredLink(Section):
    """Link between two ranks."""

    alpha_s: Seconds
    beta_s_per_byte: Seconds
    both_ways_s_per_byte: Seconds
    """Per byte of each direction, if both are in use."""
    meeting_s: Seconds
    """Further time of a message if both ranks come to it at the same time, having computed."""


class MeasuredUpdate(Section):
    """Costs of REDUCE and STEP, messages not included."""

    sum_s_per_byte: Seconds
    """Per byte of the weights whose gradients a rank sums."""
    pack_s_per_byte: Seconds
    """Per byte that a rank gives away in REDUCE."""
    step_s_per_byte: Seconds
    """Per byte of the weights that a rank updates."""
    share_s_per_byte: Seconds
    """Per byte of updated weights that a rank takes from others."""
    agree_s: Seconds


class Machine(Section):
    """The file."""

    identity: Identity
    measured_utc: str
    blocks: Annotated[dict[str, MeasuredBlock], Field(max_length=MOST_BLOCKS)]
    """By fingerprint of a block and its input."""
    link: MeasuredLink | None
    """None if there was one rank only."""
    update: MeasuredUpdate

    @property
    def named(self) -> str:
        """For people."""
        return describe(self.identity)

    def network(self) -> Network:
        """Links between its ranks."""
        return network_of(self.link)

    def without_messages(self) -> Machine:
        """The same machine with messages that take no time."""
        return self.model_copy(update={"link": None})

    def with_times(self, blocks: Sequence[nn.Module], costs: Sequence[BlockCost], setting: Setting) -> list[BlockCost]:
        """Add the measured seconds to the costs of a network's blocks, or of their parts.

        Raises:
            NotCalibratedError: a block has not been measured.
        """
        names = fingerprints(blocks, setting)
        missing = [index for index, name in enumerate(names) if name not in self.blocks]
        if missing:
            raise NotCalibratedError(
                f"{len(missing)} of {len(names)} blocks, such as block {missing[0]}, have not been measured here with "
                f"inputs of {setting.input_shape}{_in_parts(setting.division)}. Measure them: `gemslide plan RECIPE "
                "--calibrate`."
            )
        times = [BlockTimes(**self.blocks[name].model_dump()) for name in names]
        return [replace(cost, times=own) for cost, own in zip(costs, times, strict=True)]

    def costs(self, stages: Sequence[StageCost], placement: Placement) -> Costs:
        """Costs of a step on this machine: those of its stages, with messages, sums and updates."""
        stages = [self._with_update(stage, stage.owned_bytes(placement, index)) for index, stage in enumerate(stages)]
        agree_s = self.update.agree_s if placement.num_ranks > 1 else 0.0
        return Costs(stages, self.network(), agree_s, meeting_s=self.link.meeting_s if self.link else 0.0)

    def group_costs(self, stages: Sequence[StageCost], schedule: Schedule, placement: Placement) -> Costs:
        """Costs of one group's schedule, where sums and updates are over all groups of a placement.

        All groups take the same time, so they meet at once: their messages are part of the sums and updates.
        """
        costs = self.costs(stages, placement)
        folded = [self._with_swaps(stage, index, schedule, placement) for index, stage in enumerate(costs.stages)]
        return replace(costs, stages=folded, groups=placement.num_ranks // schedule.placement.num_ranks)

    def _with_swaps(self, stage: StageCost, index: int, schedule: Schedule, placement: Placement) -> StageCost:
        # Every pair of ranks has a link of its own, so the first pair takes as long as all.
        swapped_s = sum(
            swap_s(self.network(), dict.fromkeys(permutations(holders[:2], 2), num_bytes / len(holders)))
            for num_bytes, holders in stage.held(placement, index)
        )
        sets = len(nodes_of(schedule.microbatches_on(schedule.placement.holders(index)[0], index)))
        return stage.with_swaps(sets, swapped_s)

    def _with_update(self, stage: StageCost, owned: float) -> StageCost:
        given = stage.weight_bytes - owned
        update = self.update
        reduce_s = owned * update.sum_s_per_byte + given * update.pack_s_per_byte
        step_s = owned * update.step_s_per_byte + given * update.share_s_per_byte
        return replace(stage, reduce_s=reduce_s, step_s=step_s)


def _in_parts(division: Division) -> str:
    return "" if division.parts == 1 else f" in {division.parts} parts, split = {division.split!r}"


def network_of(link: MeasuredLink | None) -> Network:
    """Links between ranks that were measured in pairs; instant without a measurement."""
    if link is None:
        return instant
    # Two messages at once take as long as was measured for both ways; one alone does not notice this link.
    common = Link("both ways", beta_s_per_byte=link.both_ways_s_per_byte / 2)
    return pairs(Link("link", link.alpha_s, link.beta_s_per_byte), common)


def identity_here(setting: Setting, *, threads: int, backend: str, num_ranks: int) -> Identity:
    """This machine and way of computing."""
    return Identity(
        processor=_processor(setting.device),
        device=setting.device.type,
        backend=backend,
        torch=torch.__version__,
        instruction_set=instruction_set(),
        threads=threads,
        precision=setting.precision,
        channels_last=setting.channels_last,
        num_ranks=num_ranks,
    )


def machine_path(project_dir: Path, identity: Identity) -> Path:
    """The file of a machine in a project."""
    name = hashlib.sha256(identity.model_dump_json().encode()).hexdigest()[:12]
    return project_dir / FOLDER / f"{identity.device}-{identity.precision}-{name}.json"


def load_machine(project_dir: Path, identity: Identity) -> Machine:
    """What was measured here.

    Raises:
        NotCalibratedError: nothing was, or the file is another machine's.
        BadRecipeError: the file is damaged.
    """
    path = machine_path(project_dir, identity)
    try:
        raw = read_json_file(path)
    except FileNotFoundError as error:
        raise NotCalibratedError(
            f"this machine has not been measured for {describe(identity)} (no {path}). Measure it: `gemslide plan "
            f'RECIPE --calibrate`; for strategy = "auto" with `--world {identity.num_ranks}`.'
        ) from error
    except (OSError, ValueError) as error:
        raise BadRecipeError(f"{path}: cannot be read ({error}). Remove it and calibrate again.") from error
    if not isinstance(raw, Mapping):
        raise BadRecipeError(f"{path}: holds no object. Remove it and calibrate again.")
    machine = parse_section(Machine, raw, where=str(path))
    if machine.identity != identity:
        here, there = identity.model_dump(), machine.identity.model_dump()
        keys = [key for key in here if here[key] != there[key]]
        different = ", ".join(f"{key} {there[key]!r} instead of {here[key]!r}" for key in keys)
        raise NotCalibratedError(f"{path}: measured elsewhere ({different}). Calibrate on this machine.")
    return machine


def save_machine(project_dir: Path, machine: Machine) -> Path:
    """Write what was measured, and keep what was measured before for other blocks."""
    path = machine_path(project_dir, machine.identity)
    path.parent.mkdir(exist_ok=True)
    if path.exists():
        known = load_machine(project_dir, machine.identity)
        machine = machine.model_copy(update={"blocks": {**known.blocks, **machine.blocks}})
    write_bytes_atomic(path, (json.dumps(machine.model_dump(), indent=1) + "\n").encode())
    return path


def describe(identity: Identity) -> str:
    """An identity for people."""
    ranks, threads = counted(identity.num_ranks, "rank"), counted(identity.threads, "thread")
    layout = ", channels last" if identity.channels_last else ""
    return f"{ranks} of {threads} on {identity.processor}, {identity.precision}{layout}"


def _processor(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8", errors="replace").splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.processor() or platform.machine()}, {os.cpu_count()} cores"
