"""Stages run on each slide, reported on the terminal and in the run record; shared by ingest, qc and infer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import typer

from pipeline.jobs.runner import run_overlapping, run_stages
from pipeline.jobs.stage import Stage, StageReport
from pipeline.project import Project
from pipeline.run_record import RunRecord, recorded
from pipeline.study.work.relied_on import keep_relied_on
from pipeline.verbs.cli_output import Reporter


def run_recorded(
    stages: Sequence[Stage],
    reporter: Reporter,
    record: RunRecord,
    project: Project,
    *,
    workers: int = 1,
    overlapping: bool = False,
) -> None:
    """Run the stages. An error in one slide does not stop the others.

    Args:
        workers, overlapping: slides at a time in processes, or each overlapping with the next in this process.

    Raises:
        GemslideError: the project's ledger is unavailable, so it is unknown which outputs studies rely on.
    """

    def done(report: StageReport) -> None:
        record.inputs += report.inputs
        record.outputs += [str(path.relative_to(project.root)) for path in report.outputs]
        for phase, seconds in report.seconds.items():
            record.add_seconds(phase, seconds)
        outcome = report.outcome
        for key, value in report.facts.items():
            record.extra.setdefault(key, {})[outcome.slide_id] = value
        if report.warning:
            typer.echo(reporter.explained(f"warning: slide {outcome.slide_id}: {report.warning}."), err=True)
            outcome = replace(outcome, message=f"{outcome.message}; {report.warning}")
        record.slides.append(reporter.add(outcome))

    stages = keep_relied_on(stages, project)
    with recorded(record, project.runs_dir), record.phase(record.verb):
        if overlapping:
            run_overlapping(stages, done)
        else:
            run_stages(stages, done, workers=workers)
