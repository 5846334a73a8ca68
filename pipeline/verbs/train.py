"""`gemslide train`."""

from __future__ import annotations

import time
from pathlib import Path

from pipeline.models.launch import train
from pipeline.project import open_project
from pipeline.run_record import SlideOutcome
from pipeline.verbs.cli_output import Reporter, report_errors


def run_train(
    recipe: Path, project: Path, *, nproc: int | None, threads: int | None, fresh: bool, as_json: bool
) -> None:
    start = time.perf_counter()
    with report_errors(as_json=as_json, name=recipe.stem):
        result = train(recipe, open_project(project).root, nproc, threads=threads, fresh=fresh)
    seconds = round(time.perf_counter() - start, 1)
    message = f"best model {result.best}, last {result.last}"
    output = str(project / "models" / result.best)
    Reporter(as_json=as_json).add(SlideOutcome(recipe.stem, "done", message=message, output=output, seconds=seconds))
