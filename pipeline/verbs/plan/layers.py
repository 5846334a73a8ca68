"""`gemslide plan --layers LAYERS.csv`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import typer

from pipeline.models.launch import LayersRequest, project_layers
from pipeline.verbs.cli_output import report_errors
from pipeline.verbs.plan.tables import table
from training.foundation.errors import BadRecipeError

MOST_RANKS = 10**6


def run_plan_layers(layers: Path, *, cluster: Path, samples: int, batch: int, world: str, as_json: bool) -> None:
    with report_errors(as_json=as_json, name=layers.stem):
        report = project_layers(layers, LayersRequest(cluster, samples, batch, _worlds(world)))
    rows: list[dict[str, Any]] = report["rows"]
    typer.echo("\n".join(map(json.dumps, rows) if as_json else _explain(rows, report["cluster"])))


def _worlds(text: str) -> list[int]:
    """Numbers of ranks, such as "4,16,64".

    Raises:
        BadRecipeError: not such numbers.
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and 1 <= int(part) <= MOST_RANKS for part in parts):
        raise BadRecipeError(f"--world {text!r:.60}: not numbers of ranks. Separate them by commas, such as 4,16,64.")
    return [int(part) for part in parts]


def _explain(rows: Sequence[dict[str, Any]], cluster: str) -> Iterator[str]:
    shown = [("strategy", "ranks", "computing s", "messages s", "epoch s", "GB", "")]
    for row in rows:
        if "refused" not in row:
            seconds = (f"{row[name]:,.1f}" for name in ("computing_s", "communication_s", "epoch_s"))
            remark = "" if row["fits"] else "does not fit"
            shown.append((row["strategy"], str(row["world"]), *seconds, f"{row['bytes'] / 1e9:.3g}", remark))
    yield f"Projected with ParaDL's formulas for {cluster}; nothing was measured:"
    yield from table(shown, left=(0, 6))
    for row in rows:
        if "refused" in row:
            yield f"without {row['strategy']} on {row['world']}: {row['refused']}"
