"""`gemslide plan`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import Any

import tomli_w
import typer

from pipeline.files import write_text_atomic
from pipeline.models.launch import PlanRequest, show_plan
from pipeline.models.launch import calibrate as measure
from pipeline.project import open_project
from pipeline.verbs.cli_output import report_errors
from pipeline.verbs.plan.sizes import bytes_of
from pipeline.verbs.plan.tables import check_place, table
from training.foundation.errors import DiskFullError
from training.foundation.words.counts import counted

COLUMNS = 100
MOST_ROWS = 20
LIVE_BYTES = (
    "Live bytes are the activations, inputs, stage boundaries and messages in transit that a rank holds at the worst "
    "moment of a step; they come from simulating the step on tensors without storage, not from a rule of thumb. Add "
    "the weights above (those of both stages where there are two), their gradients (the same again, several times over "
    "while they are summed), the optimizer state of the stages a rank owns, and workspaces."
)
COUNTED = (
    "Time counts operations: a backward pass is two forward passes, messages take none. For seconds, measure this "
    "machine: `--calibrate`."
)
MEASURED = (
    "Seconds are those of the blocks, messages, sums and updates that were measured on this machine; time is relative "
    "to all blocks on one rank."
)
NOTES = (
    "Idle is the share of the ranks' time spent waiting. Kept is the most that autograd can keep on the fullest rank, "
    "without boundaries in transit. ddp is the whole network on each rank, with a share of the micro-batches."
)


@dataclass(frozen=True)
class PlanOptions:
    """What is asked for, as on the command line."""

    tile_px: int | None
    draw: Path | None
    calibrate: bool
    world: int | None
    memory: str | None
    cluster: Path | None


def run_plan(recipe: Path, project: Path, options: PlanOptions, *, as_json: bool) -> None:
    tile_px, draw = options.tile_px, options.draw
    with report_errors(as_json=as_json, name=recipe.stem):
        cap_bytes = None if options.memory is None else bytes_of(options.memory)
        if draw:
            check_place("--draw", draw)
        if options.calibrate:
            _calibrate(recipe, project, tile_px=tile_px, num_ranks=options.world, cap_bytes=cap_bytes)
        if not as_json:
            typer.echo("Simulating one step on tensors without storage; deep networks take a minute or more.", err=True)
        request = PlanRequest(tile_px, draw is not None, options.world, cap_bytes, options.cluster)
        report = show_plan(recipe, open_project(project).root, request)
        if draw:
            _write(draw, report.pop("svg"))
            report["drawn_in"] = str(draw)
    del report["ok"]
    typer.echo("\n".join(map(json.dumps, _lines(report)) if as_json else _explain(report)))


def _lines(report: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The rows of the table, and at the end the recipe's own plan."""
    search, comparison = report.pop("search", None), report.pop("comparison")
    if search is None:
        yield from comparison
    else:
        yield from (row for row in (*search.pop("rows"), search.pop("fsdp"), *search.pop("excluded")) if row)
        report["search"] = search
    yield report


def _calibrate(
    recipe: Path, project: Path, *, tile_px: int | None, num_ranks: int | None, cap_bytes: float | None
) -> None:
    typer.echo("Measuring this machine; do nothing else on it for a minute.", err=True)
    root = open_project(project).root
    outcome = measure(recipe, root, tile_px=tile_px, num_ranks=num_ranks, cap_bytes=cap_bytes)
    blocks = counted(outcome["num_blocks"], "block")
    typer.echo(
        f"measured {blocks} ({outcome['num_measured']} different) in {outcome['seconds']:.0f} s: {outcome['machine']}",
        err=True,
    )


def _write(draw: Path, svg: str) -> None:
    try:
        write_text_atomic(draw, svg)
    except DiskFullError as error:
        raise DiskFullError(
            f"--draw {draw}: cannot be written ({error.__cause__}). Free some space, or name a writable file."
        ) from error


def _explain(report: dict[str, Any]) -> Iterator[str]:
    yield f"{Path(report['recipe']).name}: {report['network']}, {counted(report['num_blocks'], 'block')}"
    yield ""
    yield from _facts(report)
    yield ""
    if report["data_parallel"] > 1:
        yield "First group; the others are identical:"
    yield from _ranks(report["ranks"])
    yield ""
    yield fill(LIVE_BYTES, COLUMNS)
    yield ""
    yield from _comparison(report)
    yield ""
    times = COUNTED if report["machine"] is None else MEASURED
    yield fill(f"{times} {NOTES} {_when_not(report)}", COLUMNS)
    yield ""
    if "search" in report:
        yield from _search(report["search"])
        yield ""
    yield from _drawing(report)
    if "drawn_in" in report:
        yield ""
        yield f"drawing: {report['drawn_in']}"


def _facts(report: dict[str, Any]) -> Iterator[str]:
    groups, stages = report["data_parallel"], report["num_stages"]
    named = "" if report["named"] == report["strategy"] else f" ({report['named']} in the recipe)"
    yield f"strategy       {report['strategy']}{named}"
    yield f"stages         S = {stages}{_where_cut(report) if stages > 1 else ''}"
    yield f"micro-batches  N = {report['num_microbatches']}, each {_microbatch(report)}"
    yield f"groups         D = {groups}"
    of_batch = report["bag"]["unit"] if "bag" in report else "tile"
    yield f"batch          {counted(report['batch_size'], of_batch)} per optimizer step (D × N × micro-batch)"
    if report["parts"]:
        split = ", ".join(dict.fromkeys(report["split"]))
        yield f"parts          P = {', '.join(map(str, report['parts']))} of the stages, by {split}"
    product = "D × the parts of all stages" if report["parts"] else "D × S"
    yield f"ranks          {report['world_size']} ({product}): `gemslide train … --nproc {report['world_size']}`"
    yield f"recompute      {report['recompute']}"
    yield f"precision      {report['precision']}"
    if report["choice"] is not None:
        cap_bytes = report["choice"]["cap_bytes"]
        within = "" if cap_bytes is None else f" within {cap_bytes / 1e9:.3g} GB"
        fullest = f"{report['choice']['predicted_bytes'] / 1e9:.3g} GB on its fullest rank"
        yield f"chosen         the fastest plan{within}: {fullest}"
    if report["machine"] is not None and report["step_s"] is not None:
        yield f"step           {report['step_s']:.3g} s predicted for {report['machine']}"


def _microbatch(report: dict[str, Any]) -> str:
    if "bag" in report:
        return f"one {report['bag']['unit']}, here of {report['bag']['max_tiles']} tiles, the most the recipe allows"
    return f"of {counted(report['microbatch_size'], 'tile')} of {report['tile_px']} px"


def _where_cut(report: dict[str, Any]) -> str:
    if report["balance"] is None:
        return f", cut before blocks {', '.join(map(str, report['cuts']))}"
    return f", cut by {report['balance']}"


def _ranks(ranks: Sequence[dict[str, Any]]) -> Iterator[str]:
    rows = [("rank", "stage", "blocks", "forward GFLOP", "weights MB", "live GB, peak")]
    for rank in ranks:
        memory = (f"{rank['weight_bytes'] / 1e6:.1f}", f"{rank['peak_live_bytes'] / 1e9:.3f}")
        for index, stage in enumerate(rank["stages"]):
            first, last = stage["blocks"]
            name = f"{stage['stage']}{_mark(stage['is_mirrored'])}"
            blocks = str(first) if first == last else f"{first}–{last}"
            gflop = f"{stage['forward_flops'] / 1e9:.1f}"
            rows.append(("" if index else str(rank["rank"]), name, blocks, gflop, *(("", "") if index else memory)))
    yield from table(rows, left=(1, 2))
    mirrored = any(stage["is_mirrored"] for rank in ranks for stage in rank["stages"])
    yield "GFLOP are per micro-batch." + (" A prime (') marks the mirrored replica." if mirrored else "")


def _mark(is_mirrored: bool) -> str:
    return "'" if is_mirrored else ""


def _comparison(report: dict[str, Any]) -> Iterator[str]:
    yield f"One group's share of a step (N = {report['num_microbatches']}) under each strategy:"
    seconds = ("seconds",) if report["machine"] else ()
    rows = [("strategy", "recompute", "ranks", *seconds, "time", "idle", "kept GB", "weights MB", "")]
    own = [report[name] for name in ("strategy", "recompute", "parts")]
    for row in report["comparison"]:
        is_own = [row[name] for name in ("strategy", "recompute", "parts")] == own
        rows.append(
            (
                row["strategy"] + (", in parts" if row["parts"] else ""),
                row["recompute"],
                str(row["num_ranks"]),
                *(f"{row[name]:.3g}" for name in seconds),
                f"{row['time']:.2f}",
                f"{row['bubble']:.0%}",
                f"{row['kept_bytes'] / 1e9:.3f}",
                f"{row['weight_bytes'] / 1e6:.1f}",
                "<- this recipe" if is_own else "",
            )
        )
    yield from table(rows, left=(0, 1, len(rows[0]) - 1))


def _when_not(report: dict[str, Any]) -> str:
    """One sentence on when ddp is the better choice."""
    if "bag" in report:
        return (
            "In parts is in sub-graphs. They pay where a step has too few micro-batches to give every rank of ddp "
            "work, or where exchanging all gradients takes most of a step (docs/explanation/sub_graphs.md)."
        )
    ddp = [row for row in report["comparison"] if row["strategy"] == "ddp"]
    start = "When a tile fits on one device with recompute, ddp is "
    if not ddp:
        return f"{start}faster than any split into stages: no rank waits for another."
    named = [report["strategy"], report["parts"]]
    own = next(row for row in report["comparison"] if [row["strategy"], row["parts"]] == named)
    is_faster = ddp[-1]["time"] < own["time"]
    return (
        f"{start}{'faster' if is_faster else 'simpler, though not faster with these numbers'}: no rank waits for "
        f"another (here {ddp[-1]['time']:.2f} of the time of mp-basic, {ddp[-1]['kept_bytes'] / 1e9:.3f} GB kept)."
    )


def _search(search: dict[str, Any]) -> Iterator[str]:
    cap_bytes, rows = search["cap_bytes"], search["rows"]
    within = "" if cap_bytes is None else f" with {cap_bytes / 1e9:.3g} GB each"
    yield f"Fastest plans for the recipe's batch on {counted(search['num_ranks'], 'rank')}{within}:"
    shown = [("strategy", "S", "D", "P", "N", "recompute", "seconds", "tiles/s", "GB", "messages", "idle")]
    fsdp = [search["fsdp"]] if search["fsdp"] else []
    for row in [*rows[:MOST_ROWS], *fsdp]:
        messages = "" if row["communication"] is None else f"{row['communication']:.0%}"
        stages, groups, batches = (str(row[name]) for name in ("num_stages", "data_parallel", "num_microbatches"))
        numbers = (stages, groups, _parts(row), batches)
        costs = (f"{row['seconds']:.3g}", f"{row['tiles_per_s']:.3g}", f"{row['bytes'] / 1e9:.3g}")
        shown.append((row["strategy"], *numbers, row["recompute"], *costs, messages, f"{row['bubble']:.0%}"))
    yield from table(shown, left=(0, 5))
    if fsdp:
        yield "fsdp (ZeRO-3) is priced for comparison; the engine has no such strategy."
    if len(rows) > MOST_ROWS:
        yield f"and {len(rows) - MOST_ROWS} more in the output of --json"
    yield "The first as a recipe's section; that of others is in the output of --json:"
    yield tomli_w.dumps({"parallel": rows[0]["parallel"]}, multiline_strings=False).rstrip()
    out = search["excluded"]
    if out:
        yield "Without a plan:"
    for each in out:
        parts = f", P = {_parts(each)}" if each["parts"] else ""
        yield f"  {each['strategy']}, S = {each['num_stages']}, D = {each['data_parallel']}{parts}: {each['refused']}"


def _parts(row: dict[str, Any]) -> str:
    """Parts of the stages: one number if all have as many."""
    return " ".join(map(str, dict.fromkeys(row["parts"]) if len(set(row["parts"])) == 1 else row["parts"])) or "1"


def _drawing(report: dict[str, Any]) -> Iterator[str]:
    drawn, wanted = report["drawn_microbatches"], report["num_microbatches"]
    shortened = f", drawn with {drawn} of the {wanted} micro-batches" if drawn < wanted else ""
    yield f"Order of work of one group{shortened}:"
    yield fill("F forward, B backward, with their micro-batch; R gradient sum, S update, with their stage.", COLUMNS)
    yield report["drawing"]
