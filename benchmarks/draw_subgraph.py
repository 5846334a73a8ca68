"""Figure of docs/explanation/sub_graphs.md, from benchmarks/results/subgraph.jsonl and t5_cluster.jsonl.

.venv/bin/python -m benchmarks.draw_subgraph
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks/results"
OUT = ROOT / "docs/images/oracle"
COLOURS = {2: "#0072b2", 4: "#e69f00", 8: "#a0307a"}
"""By number of sub-graphs; of Okabe and Ito, distinct to colour-blind readers."""
LINES = {64: "-o", 512: "--^"}
"""By tokens."""
RATIO = "time of data parallelism / time with sub-graphs"


def main() -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    plt.rcParams.update({"svg.hashsalt": "gemslide", "font.size": 10})
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 4.4))
    _measured(left, _read("subgraph.jsonl"))
    _computed(right, _read("t5_cluster.jsonl"))
    for axes in (left, right):
        axes.axhline(1.0, color="black", linewidth=0.8)
        axes.minorticks_off()
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(OUT / "subgraph.svg", metadata={"Date": None})


def _read(name: str) -> list[dict[str, Any]]:
    lines = (json.loads(line) for line in (RESULTS / name).read_text().splitlines())
    return sorted(lines, key=lambda line: line["tokens"])


def _measured(axes: Axes, lines: list[dict[str, Any]]) -> None:
    """Two ranks: what was measured, and what the oracle predicts from seconds of blocks and messages."""
    for samples, colour in ((1, COLOURS[2]), (2, COLOURS[4])):
        own = [line for line in lines if line["samples"] == samples]
        tokens = [line["tokens"] for line in own]
        predicted = [line["predicted s of ddp"] / line["predicted s of subgraph"] for line in own]
        batch = "one sample" if samples == 1 else "two samples"
        axes.plot(tokens, [line["ddp / subgraph"] for line in own], "-o", color=colour, label=f"{batch}, measured")
        axes.plot(tokens, predicted, "--x", color=colour, label=f"{batch}, predicted")
    ticks = sorted({line["tokens"] for line in lines})
    axes.set(xscale="log", xlabel="tokens of a sample", ylabel=RATIO, title="two layers of T5-Large, two CPU ranks")
    axes.set_xticks(ticks, [str(tick) for tick in ticks])


def _computed(axes: Axes, lines: list[dict[str, Any]]) -> None:
    """1,024 V100."""
    for tokens, style in LINES.items():
        for parts, colour in COLOURS.items():
            own = [
                line
                for line in lines
                if (line["tokens"], line["sub-graphs"], line["precision"]) == (tokens, parts, "fp16")
            ]
            samples = [line["samples of each GPU"] for line in own]
            ratios = [line["dp / (dp and sub-graphs)"] for line in own]
            axes.plot(samples, ratios, style, color=colour, label=f"{parts} sub-graphs, {tokens} tokens", markersize=4)
    ticks = sorted({line["samples of each GPU"] for line in lines})
    axes.axhline(3.05, color="grey", linewidth=0.8, linestyle=":")
    axes.annotate("3.05, as reported", (4, 3.07), va="bottom", ha="center", fontsize=8)
    axes.set(
        xscale="log",
        xlabel="samples of each GPU",
        title="T5-Large, 1,024 V100, fp16 (computed)",
        ylim=(0, 3.4),
    )
    axes.set_xticks(ticks, [str(tick) for tick in ticks])


if __name__ == "__main__":
    main()
