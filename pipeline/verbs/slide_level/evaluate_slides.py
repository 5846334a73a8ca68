"""`gemslide evaluate` with slide-level models: predictions from stored features against targets."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from pipeline.cohort.manifest import load_cohort
from pipeline.files import sha256_of
from pipeline.naming.models import find_package
from pipeline.naming.sources import SourceNames
from pipeline.project import Project, open_project
from pipeline.run_record import RunRecord, SlideOutcome, recorded
from pipeline.settings.config import EvaluateConfig, load_settings
from pipeline.slide_level.package_level import is_slide_model
from pipeline.verbs.cli_output import Reporter, report_errors
from pipeline.verbs.evaluate import Labelled, run_evaluate
from training.foundation.errors import BadRecipeError, GemslideError
from training.foundation.model_files import weights_file
from training.foundation.progress import bar
from training.foundation.settings import replace
from training.foundation.words.counts import counted

if TYPE_CHECKING:
    from pipeline.evaluation import Estimate, SlideEvaluation, TargetResult

LEFT, GAP = 28, 2


@dataclass(frozen=True)
class SlideOptions:
    """Options of `gemslide evaluate` that slide-level models take."""

    manifest: Path | None
    table: Path | None
    covariates: str | None
    baselines: bool
    as_json: bool


def run_any_evaluate(
    model: str, project_dir: Path, labelled: Labelled, *, against: str | None, baselines: bool, as_json: bool
) -> None:
    """Evaluate a model of tiles, or one or more slide-level models, as the packages say."""
    project = open_project(project_dir)
    if _is_of_slides(model, project):
        _run_slides(model.split(","), project, labelled, against=against, baselines=baselines, as_json=as_json)
    else:
        run_evaluate(model, project_dir, labelled, against=against, baselines=baselines, as_json=as_json)


def _is_of_slides(model: str, project: Project) -> bool:
    """Whether the first of one or several models is slide-level; False for one that is not found."""
    try:
        return is_slide_model(find_package(model.split(",")[0], project))
    except GemslideError:
        return False


def _run_slides(
    models: list[str], project: Project, labelled: Labelled, *, against: str | None, baselines: bool, as_json: bool
) -> None:
    reporter = Reporter(as_json=as_json, sources=SourceNames(project=project))
    if labelled.manifest is not None:
        reporter.sources.add_typed([str(labelled.manifest)], project)
    with report_errors(as_json=as_json, name=models[0], reporter=reporter):
        packages = [find_package(model, project) for model in models]
        if against is not None:
            raise BadRecipeError(
                f"--against {against}: compares models of tiles, and {models[0]} is slide-level. Leave it out; models "
                "of several folds are named together: MODEL,MODEL."
            )
        config = replace(load_settings(project.settings_path).evaluate, split=labelled.split)
        options = SlideOptions(
            labelled.manifest, labelled.table, labelled.covariates, baselines=baselines, as_json=as_json
        )
        run_evaluate_slides(packages, project, options, config, reporter)


def run_evaluate_slides(
    packages: Sequence[Path], project: Project, options: SlideOptions, config: EvaluateConfig, reporter: Reporter
) -> None:
    """Evaluate one model, or the models of several folds together.

    Raises:
        GemslideError: as `evaluate_slides` and `write_slides_report`.
    """
    if options.manifest is None:
        raise BadRecipeError(
            f"{packages[0].name}: is a slide-level model, which is evaluated on a cohort. Name the manifest: gemslide "
            f"evaluate {packages[0].name} COHORT.csv --table TABLE.csv"
        )
    start = time.perf_counter()
    # torch is slow to import: only once the names are known to be right
    from pipeline.evaluation import LabelledSlides, evaluate_slides, write_slides_report
    from pipeline.slide_level import load_clinical

    covariates = tuple(name for part in (options.covariates or "").split(",") if (name := part.strip()))
    clinical = load_clinical(options.table) if options.table else None
    labelled = LabelledSlides(load_cohort(options.manifest), clinical, covariates)
    names = [package.name for package in packages]
    record = RunRecord("evaluate", {"evaluate": config.model_dump(), "models": names, "covariates": list(covariates)})
    record.inputs += [{"id": package.name, "sha256": sha256_of(weights_file(package))} for package in packages]
    with recorded(record, project.runs_dir), record.phase("evaluate"), bar("evaluate") as advance:
        evaluation = evaluate_slides(project, packages, labelled, config, baselines=options.baselines, advance=advance)
        report = write_slides_report(project, evaluation)
        record.outputs.append(str(report.relative_to(project.root)))
    if not options.as_json:
        typer.echo("\n\n".join(target_table(target, evaluation.level) for target in evaluation.targets))
    _report(evaluation, report, reporter, seconds=round(time.perf_counter() - start, 1))


def _report(evaluation: SlideEvaluation, report: Path, reporter: Reporter, *, seconds: float) -> None:
    from pipeline.evaluation import explained_absence

    absence = explained_absence(evaluation)
    reporter.say_notes([*([absence] if absence else []), *evaluation.notes])
    message = "; ".join(map(_in_one_line, evaluation.targets))
    level = counted(evaluation.tested, f"tested {evaluation.level}")
    outcome = SlideOutcome(
        evaluation.models[0], "done", message=f"{message} ({level})", output=str(report), seconds=seconds
    )
    facts = {
        target.name: {
            method.name: {name: measured.value for name, measured in method.measures.items()}
            for method in target.methods
        }
        for target in evaluation.targets
    }
    reporter.add(outcome, metrics=facts)


def target_table(target: TargetResult, level: str) -> str:
    """One line per measure and one column per method; below them differences, groups and what is not available.

    Args:
        level: "patient" or "slide".
    """
    shown = [method for method in target.methods if not method.why_not]
    names = list(target.methods[0].measures)
    columns = [[method.name, *(_with_interval(method.measures.get(name)) for name in names)] for method in shown]
    lines = []
    for row, name in enumerate([f"{target.name}, {counted(target.units, level)}", *names]):
        cells = (f"{column[row]:>{max(map(len, column)) + GAP}}" for column in columns)
        lines.append(f"{name:<{LEFT}}{''.join(cells)}")
    lines += [
        f"minus {lead.against}: {lead.measure} difference {_with_interval(lead.difference)}" for lead in target.leads
    ]
    lines += [f"{method.name}: {method.why_not}" for method in target.methods if method.why_not]
    survival = target.survival
    if survival and survival.log_rank:
        p_value = survival.log_rank.p_value
        groups = ", ".join(f"{group.name} {group.patients}" for group in survival.groups)
        tested = "none" if p_value is None else f"p = {p_value:.3g}"
        lines.append(f"groups at the training median: {groups}; log-rank test: {tested}")
    lines += [f"note: {note}" for note in survival.notes] if survival else []
    return "\n".join(lines)


def _in_one_line(target: TargetResult) -> str:
    name, measured = next(iter(target.methods[0].measures.items()))
    return f"{target.name}: {name} {_with_interval(measured)}"


def _with_interval(measured: Estimate | None) -> str:
    """Text such as 0.912 (0.871 to 0.944); a dash if there is no value."""
    if measured is None or measured.value is None:
        return "–"
    if measured.low is None or measured.high is None:
        return f"{measured.value:.3f}"
    return f"{measured.value:.3f} ({measured.low:.3f} to {measured.high:.3f})"
