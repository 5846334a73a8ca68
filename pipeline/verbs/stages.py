"""A stage on each slide, said on the terminal and kept in the run record: what ingest, qc and infer share."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.cli_output import Reporter
from pipeline.jobs.runner import run_stages
from pipeline.jobs.stage import Stage, StageReport
from pipeline.project import Project
from pipeline.run_record import RunRecord, recorded


def run_recorded(
    stages: Sequence[Stage], reporter: Reporter, record: RunRecord, project: Project, *, workers: int = 1
) -> None:
    """Run the stages. What is wrong with one slide does not stop the others."""

    def done(report: StageReport) -> None:
        record.inputs += report.inputs
        record.outputs += [str(path.relative_to(project.root)) for path in report.outputs]
        for phase, seconds in report.seconds.items():
            record.add_seconds(phase, seconds)
        record.slides.append(reporter.add(report.outcome))

    with recorded(record, project.runs_dir), record.phase(record.verb):
        run_stages(stages, done, workers=workers)
