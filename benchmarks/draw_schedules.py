"""Drawings of docs/images/engine: each strategy with four equal stages, four micro-batches, backward = 2 forwards.

    .venv/bin/python -m benchmarks.draw_schedules

All are drawn to one scale, so that a shorter drawing is a shorter step. Memory is counted in micro-batches of one
stage. A test (tests/docs/test_engine_drawings.py) compares the committed files with this code.
"""

from __future__ import annotations

from pathlib import Path

from training.engine.strategies import STRATEGIES, build_schedule
from training.oracle.simulation.costs import BACKWARD_PER_FORWARD, Costs, StageCost
from training.oracle.simulation.draw import draw_svg
from training.oracle.simulation.simulate import simulate

FOLDER = Path(__file__).parents[1] / "docs/images/engine"
NUM_STAGES, NUM_MICROBATCHES = 4, 4
EQUAL = StageCost(forward_s=1.0, backward_s=BACKWARD_PER_FORWARD, kept_bytes=1)


def drawings() -> dict[str, str]:
    """SVG documents by file name."""
    longest_s = NUM_STAGES * NUM_MICROBATCHES * (EQUAL.forward_s + EQUAL.backward_s)
    documents = {}
    for strategy in (name for name in STRATEGIES if name != "single"):
        schedule = build_schedule(strategy, num_stages=NUM_STAGES, num_microbatches=NUM_MICROBATCHES)
        documents[f"{strategy}.svg"] = draw_svg(
            simulate(schedule, Costs([EQUAL] * NUM_STAGES)),
            schedule,
            title=f"{strategy}: S = {NUM_STAGES} stages, N = {NUM_MICROBATCHES} micro-batches",
            full_s=longest_s,
            amount=lambda count: f"{count} micro-batch{'' if count == 1 else 'es'}",
        )
    return documents


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, svg in drawings().items():
        (FOLDER / name).write_text(svg, encoding="utf-8")
        print(FOLDER / name)


if __name__ == "__main__":
    main()
