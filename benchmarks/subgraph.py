"""Sub-graphs against data parallelism on two ranks: layers of T5-Large's encoder on one sample and on two.

    .venv/bin/python -m benchmarks.subgraph [--tokens 256 512 1024 2048] [--layers 2]

Two gloo processes, one thread and one core each. The machine is measured as `gemslide plan --calibrate` does it; then
`ddp`, of layers as they are usually written, and two sub-graphs take turns in fresh processes, on a batch of one sample
(with which data parallelism has work for one rank only) and of two. Prints a JSON line for each number of tokens and
each batch: seconds of a step of both, their ratio, predicted over measured seconds, live bytes over predicted, and the
predicted step of four and eight sub-graphs on as many ranks of this kind. The committed ones are in
benchmarks/results/subgraph.jsonl. Takes about fifteen minutes on an idle machine.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from itertools import permutations
from typing import Any

import torch
from torch import nn

from benchmarks.engine import on_two_ranks
from benchmarks.machine import circumstances
from benchmarks.rounds import BUSY
from benchmarks.t5 import t5_large_encoder
from training.engine.batches import TensorBatch
from training.engine.plan import Plan, make_plan
from training.engine.predict import predict_memory
from training.engine.ranks import Ranks
from training.foundation.errors import BusyMachineError
from training.machine.allocator import keep_for_training
from training.oracle.audit.race import Raced, race
from training.oracle.calibration.block_inputs import Setting
from training.oracle.calibration.calibrate import calibrate
from training.oracle.calibration.machine import Machine, identity_here
from training.oracle.simulation.costs import plan_stage_costs
from training.oracle.simulation.divided import DividedCosts, divided_costs
from training.oracle.simulation.links import swap_s, swaps_s
from training.oracle.simulation.simulate import simulate
from training.parallel.division import WHOLE, Division
from training.recipe.optimisation import cross_entropy

NUM_RANKS, WIDTH = 2, 1024
DIVISIONS = tuple(Division(parts, "branches") for parts in (2, 4, 8))
BATCHES = (1, 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, nargs="*", default=[256, 512, 1024, 2048])
    parser.add_argument("--layers", type=int, default=2)
    arguments = parser.parse_args()
    for tokens in arguments.tokens:
        conditions = {
            "benchmark": "subgraph",
            "network": f"{arguments.layers} layers of T5-Large's encoder, {tokens} tokens, fp32, {NUM_RANKS} ranks",
            **circumstances("benchmarks.subgraph"),
        }
        for line in _lines(arguments.layers, tokens):
            print(json.dumps({**line, **conditions}), flush=True)


def _lines(layers: int, tokens: int) -> Iterator[dict[str, Any]]:
    costs: DividedCosts = {}
    for division in (WHOLE, *DIVISIONS):
        machine = Machine.model_validate_json(on_two_ranks(_calibrated, layers, tokens, division)[0])
        setting, blocks = Setting((1, tokens, WIDTH), division=division), _blocks(layers, division.parts)
        counted = divided_costs(blocks, setting.input_shape, [division])[division]
        costs[division] = machine.with_times(blocks, counted, setting)
    for samples in BATCHES:
        plans = {"ddp": _ddp(), "subgraph": _subgraph(NUM_RANKS, samples)}
        raced: dict[str, Raced] = on_two_ranks(_race, layers, tokens, samples, plans)[0]
        predicted = {name: _predicted_s(plan, costs, machine, samples) for name, plan in plans.items()}
        more = {
            f"predicted s of {parts} sub-graphs": round(
                _predicted_s(_subgraph(parts, samples), costs, machine, samples), 4
            )
            for parts in (4, 8)
        }
        line = {
            "tokens": tokens,
            "samples": samples,
            **{f"predicted s of {name}": round(s, 4) for name, s in predicted.items()},
            **more,
        }
        line |= _inequality(plans, costs, machine, samples)
        yield {**line, **_compared(raced, predicted, plans, layers, tokens, samples)} if raced else {**line, "s": BUSY}


def _inequality(plans: dict[str, Plan], costs: DividedCosts, machine: Machine, samples: int) -> dict[str, float]:
    """Seconds of messages that decide: what sub-graphs save on gradients and weights, and what they add in layers."""
    given_s = {}
    for name, plan in plans.items():
        (stage,) = plan_stage_costs(plan, costs)
        held = stage.held(plan.placement, 0)
        given_s[name] = 2 * sum(
            swap_s(machine.network(), dict.fromkeys(permutations(holders, 2), num_bytes / len(holders)))
            for num_bytes, holders in held
        )
    swaps = stage.forward_swaps + stage.backward_swaps  # of the sub-graphs, which come last
    inside_s = samples * swaps_s(machine.network(), swaps, range(NUM_RANKS), 0.0)
    return {
        "gradients and weights, ddp - subgraph, s": round(given_s["ddp"] - given_s["subgraph"], 4),
        "sums in layers s": round(inside_s, 4),
    }


def _compared(
    raced: dict[str, Raced], predicted: dict[str, float], plans: dict[str, Plan], layers: int, tokens: int, samples: int
) -> dict[str, Any]:
    batch = _batch(tokens, samples)
    blocks = _blocks(layers, NUM_RANKS)
    memory = predict_memory(blocks, cross_entropy, batch, plans["subgraph"])
    live = raced["subgraph"].live_bytes
    return {
        **{f"s of {name}": round(one.step_s, 4) for name, one in raced.items()},
        "ddp / subgraph": round(raced["ddp"].step_s / raced["subgraph"].step_s, 3),
        **{f"predicted / measured, {name}": round(predicted[name] / one.step_s, 3) for name, one in raced.items()},
        "live bytes / predicted": [own / part.peak_bytes for own, part in zip(live, memory, strict=True)],
        "weight bytes of a rank / all": round(
            memory[0].weight_bytes / sum(weight.nbytes for block in blocks for weight in block.parameters()), 4
        ),
        "good rounds": len(raced["ddp"].rounds_s),
    }


def _predicted_s(plan: Plan, costs: DividedCosts, machine: Machine, samples: int) -> float:
    """Seconds of a step on so many samples, each a micro-batch."""
    priced = machine.costs(plan_stage_costs(plan, costs), plan.placement)
    return simulate(plan.schedule(samples), priced).end_s


def _ddp() -> Plan:
    return make_plan("ddp", costs=[1.0], data_parallel=NUM_RANKS)


def _subgraph(parts: int, samples: int) -> Plan:
    return make_plan("subgraph", costs=[1.0], num_microbatches=samples, parts=(parts,), split=("branches",))


def _race(ranks: Ranks, layers: int, tokens: int, samples: int, plans: dict[str, Plan]) -> dict[str, Raced]:
    """What was measured of each plan; nothing if the machine was busy."""
    keep_for_training()
    networks = iter([1, 1, NUM_RANKS, NUM_RANKS])  # of one branch for `ddp`, which has no use for more
    try:
        return race(plans, lambda: _blocks(layers, next(networks)), _batch(tokens, samples), cross_entropy, ranks)
    except BusyMachineError:
        return {}


def _calibrated(ranks: Ranks, layers: int, tokens: int, division: Division) -> str:
    keep_for_training()
    blocks, setting = _blocks(layers, division.parts), Setting((1, tokens, WIDTH), division=division)
    identity = identity_here(setting, threads=1, backend="gloo", num_ranks=NUM_RANKS)
    targets = torch.zeros(1, dtype=torch.int64)
    return calibrate(blocks, cross_entropy, targets, _ddp(), [setting], ranks, identity).model_dump_json()


def _batch(tokens: int, samples: int) -> TensorBatch:
    generator = torch.Generator().manual_seed(0)
    return TensorBatch(
        tuple(
            (torch.randn(1, tokens, WIDTH, generator=generator), torch.zeros(1, dtype=torch.int64))
            for _ in range(samples)
        )
    )


def _blocks(layers: int, branches: int) -> list[nn.Module]:
    torch.manual_seed(0)
    return t5_large_encoder(layers, branches)


if __name__ == "__main__":
    main()
