"""Figure of docs/explanation/oracle.md, from benchmarks/results/scaling.jsonl.

.venv/bin/python -m benchmarks.draw_scaling
"""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks/results/scaling.jsonl"
OUT = ROOT / "docs/images/oracle"
PAPER = 0.9732
COLOURS = {0.0: "#0072b2", 0.01: "#e69f00", 0.03: "#a0307a"}
"""By jitter; of Okabe and Ito, distinct to colour-blind readers."""


def main() -> None:
    lines = [json.loads(line) for line in RESULTS.read_text().splitlines()]
    points = [line for line in lines if line["part"] == "efficiency"]
    OUT.mkdir(parents=True, exist_ok=True)
    plt.rcParams.update({"svg.hashsalt": "gemslide", "font.size": 10})
    figure, axes = plt.subplots(figsize=(7.2, 4.2))
    for jitter, colour in COLOURS.items():
        for sharing, style in ((4, "-o"), (1, "--^")):
            own = [line for line in points if line["jitter"] == jitter and line["GPUs that share a card"] == sharing]
            numbers = [line["micro-batches in a group"] for line in own]
            label = f"{jitter:.0%} jitter, " + ("4 GPUs share a card" if sharing == 4 else "a card for each GPU")
            axes.plot(numbers, [line["efficiency"] for line in own], style, color=colour, label=label, markersize=4)
    axes.axhline(PAPER, color="black", linewidth=0.8)
    axes.annotate("the paper's 97.32 %", (1.02, PAPER), va="bottom", fontsize=9)
    axes.set(xscale="log", xlabel="micro-batches in a group (N)", ylabel="time of 1 group / time of 128 groups")
    ticks = sorted({line["micro-batches in a group"] for line in points})
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.minorticks_off()
    axes.set_ylim(top=1.005)
    axes.grid(alpha=0.3)
    figure.legend(fontsize=8, loc="lower center", ncols=3)
    figure.tight_layout(rect=(0, 0.11, 1, 1))
    figure.savefig(OUT / "scaling.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
