"""Starting modules of training as separate processes; a run has one process per rank."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.errors import BY_CODE, ProcessFailedError
from training.foundation.errors import BadRecipeError
from training.foundation.process import die_with_parent
from training.foundation.recipe_file import find_recipe, is_auto, ranks_of_recipe
from training.foundation.words.counts import counted

MAX_RANKS_UNASKED = 64
GRACE_S = 40.0
"""Grace period; `training.local_ranks` itself waits 30 s for its ranks before it kills them."""


@dataclass(frozen=True)
class TrainingResult:
    """Model ids of a finished run; best and last are the same if the last epoch was the best."""

    best: str
    last: str


def train(
    recipe: Path, project: Path, num_ranks: int | None = None, *, threads: int | None = None, fresh: bool = False
) -> TrainingResult:
    """Train a recipe and wait for it; its progress goes to this process's standard error.

    Args:
        num_ranks: ranks to start here; None: as many as the recipe requests.
        threads: threads of each rank, within an operation; None: as in the recipe.
        fresh: start from scratch, ignoring checkpoints of this run.

    Raises:
        GemslideError: with the code of the fault that the ranks found before they started.
        ProcessFailedError: the run itself failed; its output is above.
    """
    num_ranks = num_ranks or ranks_here(recipe)
    options = [] if threads is None else [f"--threads={threads}"]
    options += ["--fresh"] if fresh else []
    before = _records(project)
    code, outcome = _run_ranks("training.train", num_ranks, [str(recipe), "--project", str(project), *options])
    if refused := outcome.get("refused"):
        raise BY_CODE.get(refused["code"], BadRecipeError)(refused["message"])
    if code or not outcome:
        record = ", ".join(sorted(_records(project) - before)) or "none, the run ended before it could write one"
        raise ProcessFailedError(
            f"training {recipe.name} on {counted(num_ranks, 'rank')} "
            f"{_describe_exit(code)}. Its output is above; run record: {record}. No model package was written."
        )
    return TrainingResult(**outcome)


def ranks_here(recipe: Path) -> int:
    """Number of ranks that a recipe requests, if they may be started on this machine without confirmation.

    Args:
        recipe: a file, or the name of a shipped recipe.

    Raises:
        BadRecipeError: no such recipe, or it requests more than 64: a typo must not start a thousand processes.
    """
    requested = ranks_of_recipe(find_recipe(recipe))
    if requested > MAX_RANKS_UNASKED:
        raise BadRecipeError(
            f"{recipe.name}: requests {requested} ranks; by default at most {MAX_RANKS_UNASKED} are started on one "
            f"machine. Use `--nproc {requested}`, or start it on several machines with torchrun."
        )
    return requested


def _records(project: Path) -> set[str]:
    return {str(path) for path in (project / "runs").glob("[!.]*.json")}


def _run_ranks(module: str, num_ranks: int, arguments: list[str]) -> tuple[int, dict[str, Any]]:
    """Run a module on ranks of this machine and wait. Returns its exit code and outcome; empty if it wrote none."""
    with tempfile.TemporaryDirectory(prefix="gemslide-") as folder:
        outcome_json = Path(folder) / "outcome.json"
        launcher = ["-m", "training.local_ranks", f"--nproc-per-node={num_ranks}"]
        command = [sys.executable, *launcher, "-m", module, *arguments, f"--outcome-json={outcome_json}"]
        # Until a rank has read its recipe, libraries that check this would otherwise take every core of the machine.
        code = _run(command, {**os.environ, "OMP_NUM_THREADS": "1"})
        return code, json.loads(outcome_json.read_text("utf-8")) if outcome_json.exists() else {}


def _run(command: list[str], environment: dict[str, str]) -> int:
    """Run the ranks and wait. They end if this process does (Ctrl+C, SIGTERM, a crash)."""
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    process = subprocess.Popen(command, env=environment, start_new_session=True, preexec_fn=die_with_parent)
    try:
        return process.wait()
    finally:
        signal.signal(signal.SIGTERM, previous)
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    process.terminate()  # local_ranks passes it on to its ranks and waits for them
    try:
        process.wait(timeout=GRACE_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@dataclass(frozen=True)
class PlanRequest:
    """What a plan should show."""

    tile_px: int | None = None
    """Side of a tile; None: that of the recipe's tile set in the project."""
    svg: bool = False
    """Also the drawing for a page, in "svg"."""
    num_ranks: int | None = None
    """Also the fastest plans on so many ranks, in "search"."""
    cap_bytes: int | None = None
    """Also the fastest plans within this memory of a rank, in "search"."""
    cluster: Path | None = None
    """Plan for this cluster and not for this machine: a file, or the name of a shipped one."""


def show_plan(recipe: Path, project: Path, request: PlanRequest) -> dict[str, Any]:
    """Show a recipe's plan without training: see training/tools/show_plan.py.

    Raises:
        GemslideError: with the code of the fault in the recipe or the tile set.
    """
    world = request.num_ranks
    if world is None and request.cluster is None and is_auto(find_recipe(recipe)):
        world = ranks_here(recipe)
    options: dict[str, object] = {"tile-px": request.tile_px, "world": world, "memory-bytes": request.cap_bytes}
    options["cluster"] = request.cluster
    given = [f"--{name}={value}" for name, value in options.items() if value is not None]
    arguments = [str(recipe), "--project", str(project), *given, *(["--svg"] if request.svg else [])]
    return ask("training.tools.show_plan", arguments, "planning")


def calibrate(
    recipe: Path,
    project: Path,
    *,
    tile_px: int | None,
    num_ranks: int | None = None,
    cap_bytes: float | None = None,
) -> dict[str, Any]:
    """Measure this machine for a recipe, with as many ranks as it needs: see training/tools/calibrate.py.

    Args:
        num_ranks: for `auto`; None for as many as there is room for.
        cap_bytes: memory of a rank: parts are measured, too, if a tile needs more; None for what there is.

    Raises:
        GemslideError: with the code of the fault in the recipe or the tile set; or other programs had the cores.
        ProcessFailedError: a rank died.
    """
    num_ranks = _ranks_measured(recipe, num_ranks)
    options = [f"--tile-px={tile_px}"] if tile_px else []
    options += [f"--cap-bytes={cap_bytes}"] if cap_bytes else []
    return _measure("training.tools.calibrate", num_ranks, [str(recipe), "--project", str(project), *options])


@dataclass(frozen=True)
class AuditRequest:
    """What an audit should run."""

    sample: int = 8
    """Number of plans."""
    tile_px: int | None = None
    """Side of a tile; None: that of the recipe's tile set in the project."""
    num_ranks: int | None = None
    """For `auto`; None for as many as there is room for."""
    cap_bytes: int | None = None
    """Most memory of a rank; None: what this machine has."""
    trace: Path | None = None
    """File for a Chrome trace."""


def audit(recipe: Path, project: Path, request: AuditRequest) -> dict[str, Any]:
    """Compare predicted plans of a recipe with real steps on this machine: see training/tools/audit.py.

    Raises:
        GemslideError: with the code of the fault in the recipe or the tile set; the machine has not been measured; or
            other programs had the cores.
        ProcessFailedError: a rank died.
    """
    num_ranks = _ranks_measured(recipe, request.num_ranks)
    options = [f"--sample={request.sample}"]
    options += [f"--tile-px={request.tile_px}"] if request.tile_px else []
    options += [f"--cap-bytes={request.cap_bytes}"] if request.cap_bytes else []
    options += [f"--trace={request.trace}"] if request.trace else []
    return _measure("training.tools.audit", num_ranks, [str(recipe), "--project", str(project), *options])


def _ranks_measured(recipe: Path, asked: int | None) -> int:
    """Ranks of a measurement: as many as were asked for if the recipe's strategy is `auto`, else the recipe's."""
    return asked if asked and is_auto(find_recipe(recipe)) else ranks_here(recipe)


def _measure(module: str, num_ranks: int, arguments: list[str]) -> dict[str, Any]:
    """Run a measurement on ranks of this machine and return its outcome."""
    code, outcome = _run_ranks(module, num_ranks, arguments)
    if code or not outcome:
        raise ProcessFailedError(
            f"measuring {Path(arguments[0]).name} on {counted(num_ranks, 'rank')} {_describe_exit(code)}. Its output "
            "is above; nothing was written."
        )
    if not outcome.pop("ok"):
        raise BY_CODE.get(outcome["code"], BadRecipeError)(outcome["message"])
    return outcome


@dataclass(frozen=True)
class LayersRequest:
    """What a table of layers is projected for."""

    cluster: Path
    """A file, or the name of a shipped one."""
    samples: int
    """Of an epoch."""
    batch: int
    """Samples of an iteration, over all ranks."""
    worlds: Sequence[int]
    """Numbers of ranks."""


def project_layers(layers: Path, request: LayersRequest) -> dict[str, Any]:
    """Project an epoch from a table of layers: see training/oracle/layers_table.py.

    Raises:
        GemslideError: with the code of the fault in the table or the cluster.
    """
    numbers = [f"--samples={request.samples}", f"--batch={request.batch}", "--world", *map(str, request.worlds)]
    return ask("training.tools.layers", [str(layers), f"--cluster={request.cluster}", *numbers], "projecting")


def ask(module: str, arguments: list[str], what: str) -> dict[str, Any]:
    """Run a module of training that answers in one JSON line.

    Args:
        what: subject of the message if it ends without an answer.

    Raises:
        GemslideError: with the code and the message of its answer.
        ProcessFailedError: it ended without an answer.
    """
    done = subprocess.run([sys.executable, "-m", module, *arguments], check=False, capture_output=True, text=True)
    try:
        report: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    except (IndexError, ValueError) as error:
        sys.stderr.write(done.stderr)
        last = next((line.strip() for line in reversed(done.stderr.splitlines()) if line.strip()), "no output")
        raise ProcessFailedError(
            f"{what} failed: `python -m {module}` {_describe_exit(done.returncode)}; its last line: {last:.300}. "
            "Its full output is above, on standard error."
        ) from error
    if not report["ok"]:
        raise BY_CODE.get(report["code"], BadRecipeError)(report["message"])
    return report


def _describe_exit(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    return f"was stopped by signal {-code} ({signal.strsignal(-code)})"
