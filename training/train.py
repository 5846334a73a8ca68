"""A rank of a training run: `torchrun --nproc-per-node N -m training.train RECIPE.toml --project DIR`.

Every rank checks the same recipe against the same tiles before any of them communicates, so that a mistake causes one
message and not a hang.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from pathlib import Path

from training.engine.ranks import LostPeerError, MixedRanksError
from training.foundation.errors import BadRecipeError, GemslideError, ImplausibleOutputError
from training.foundation.leftovers import recover_folder
from training.foundation.process import die_with_parent
from training.foundation.run_record import own_run_id
from training.foundation.words.class_order import order_warning
from training.local_ranks import INTERRUPTED, REFUSED
from training.machine.allocator import keep_for_training
from training.machine.rank_log import RankLog, last_words, log_path
from training.machine.threads import use_threads
from training.run.joining import join_ranks
from training.run.preflight import Checked
from training.run.slides.any_run import check_any_run, data_error, make_trainer
from training.run.slides.preflight import SlideChecked
from training.run.state import CHECKPOINTS

CLASS_ORDER = "the order in the [tile] section of gemslide.toml, and in the recipe's [data] section if it names classes"
MOST_NAMED = 8
"""Most ranks named in an error."""


def main() -> int:
    arguments = _arguments()
    rank = int(os.environ.get("RANK", "0"))
    _stop_on_request()
    try:
        return _outcome(arguments, rank, int(os.environ.get("WORLD_SIZE", "1")))
    except KeyboardInterrupt:
        if rank == 0:
            sys.stderr.write("interrupted; no model package was written\n")
        return INTERRUPTED
    finally:
        # It is exiting by itself. Code that runs while Python exits would turn a signal into a traceback.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)


def _outcome(arguments: argparse.Namespace, rank: int, world_size: int) -> int:
    """Check and run it, report the outcome to people and return the exit code."""
    user_errors = (GemslideError, data_error(arguments.recipe))
    try:
        if arguments.fresh and "TORCHELASTIC_RUN_ID" in os.environ:
            raise BadRecipeError(
                "--fresh under torchrun: ranks that it restarts would start from scratch, too. Remove the run's "
                f"folder in {arguments.project / CHECKPOINTS} instead."
            )
        checked = check_any_run(arguments.recipe, arguments.project, world_size, threads=arguments.threads)
    except user_errors as error:
        if os.environ.get("LOCAL_RANK", "0") == "0":  # the others on this machine found the same
            _refuse(error, arguments.outcome_json)
        return REFUSED
    if rank == 0:
        _warn(checked)
    try:
        models = _run(checked, arguments, rank, world_size)
    except user_errors as error:
        if rank == 0 or not isinstance(error, ImplausibleOutputError | MixedRanksError):  # every rank found the same
            _report(error, rank if world_size > 1 else None)
        return 1
    except OSError as error:  # a disk that fails or is disconnected
        where = error.filename or arguments.project
        sys.stderr.write(f"error [unreadable]: {where}: {error.strerror or error}. No model package was written.\n")
        return 1
    if rank == 0 and arguments.outcome_json:
        arguments.outcome_json.write_text(json.dumps(models), encoding="utf-8")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m training.train")
    parser.add_argument("recipe", type=Path, help="recipe file, or the name of a shipped one")
    parser.add_argument("--project", type=Path, default=Path(), help="project folder (default: this one)")
    parser.add_argument("--threads", type=int, help="threads of each rank within an operation (default: the recipe's)")
    parser.add_argument(
        "--outcome-json",
        type=Path,
        help="write the outcome to this file: {best, last} model ids, or {refused: {code, message}}",
    )
    parser.add_argument(
        "--fresh", action="store_true", help="start from scratch, removing checkpoints of this run; not under torchrun"
    )
    return parser.parse_args()


def _run(checked: Checked | SlideChecked, arguments: argparse.Namespace, rank: int, world_size: int) -> dict[str, str]:
    if rank == 0:
        project: Path = arguments.project
        for folder in (project / "models", project / "runs", *(project / CHECKPOINTS).glob("*")):
            recover_folder(folder)
    return _train(checked, arguments.project, world_size, fresh=arguments.fresh)


def _stop_on_request() -> None:
    """Treat SIGTERM like Ctrl+C, and under torchrun end together with it: ranks must not continue alone."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if "TORCHELASTIC_RUN_ID" in os.environ:
        die_with_parent()


def _warn(checked: Checked | SlideChecked) -> None:
    """Warn about settings that are valid but rarely intended."""
    if isinstance(checked, SlideChecked):
        for complaint in checked.source.warnings():
            sys.stderr.write(f"warning: {checked.recipe_path.name}: {complaint}\n")
        return
    odd_order = order_warning(checked.source.classes, setting=CLASS_ORDER)
    if odd_order:
        sys.stderr.write(f"warning: {checked.recipe_path.name}: {odd_order}\n")
    warnings = getattr(checked.source, "warnings", None)
    for complaint in warnings() if warnings else ():
        sys.stderr.write(f"warning: tile set {checked.recipe.data.tile_set!r}: {complaint}\n")


def _refuse(error: Exception, outcome_json: Path | None) -> None:
    """Report why nothing starts: to the process that started this rank if it asked for it, otherwise to people."""
    if outcome_json is None:
        _report(error)
    else:
        refused = {"code": getattr(error, "code", "bad_recipe"), "message": str(error)}
        outcome_json.write_text(json.dumps({"refused": refused}), encoding="utf-8")


def _report(error: Exception, rank: int | None = None) -> None:
    where = "" if rank is None or isinstance(error, LostPeerError) else f"rank {rank}: "
    sys.stderr.write(f"error [{getattr(error, 'code', 'bad_recipe')}]: {where}{error}\n")


def _train(checked: Checked | SlideChecked, project_dir: Path, world_size: int, *, fresh: bool) -> dict[str, str]:
    keep_for_training()
    use_threads(checked.recipe.train.threads)
    ranks, device = join_ranks(world_size, timeout_s=checked.recipe.parallel.timeout_s)
    run_id = ranks.broadcast_from_first(own_run_id())
    log = RankLog(project_dir / "runs", run_id, ranks.rank)
    ended_well = False
    try:
        models = make_trainer(checked, project_dir, ranks, device, log).run(run_id, fresh=fresh)
        ended_well = True
        return models
    except LostPeerError as error:
        others = [error.peer] if error.peer >= 0 else [rank for rank in range(world_size) if rank != ranks.rank]
        raise type(error)(f"{error} {_last_actions(project_dir, run_id, others)}") from error
    finally:
        log.close(ended_well=ended_well)
        ranks.close()


def _last_actions(project_dir: Path, run_id: str, ranks: list[int]) -> str:
    """Name the last actions that other ranks began, from their logs, for people."""
    paths = {rank: log_path(project_dir / "runs", run_id, rank) for rank in ranks[:MOST_NAMED]}
    return " ".join(
        f"Rank {rank} was last in: {last_words(path) or 'nothing yet'} (its log: {path})."
        for rank, path in paths.items()
    )


if __name__ == "__main__":
    sys.exit(main())
