"""Content of a study's report, section by section, before it becomes a page or a table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.evaluation.figures import reliability_figure, roc_figure
from pipeline.evaluation.statistics.bootstrap import CONFIDENCE, FEW_PATIENTS, FEWEST_PATIENTS, Draws
from pipeline.evaluation.statistics.calibration import calibration_of
from pipeline.evaluation.statistics.one_class import NamedCurve, auroc, roc_with_band
from pipeline.run_record import versions
from pipeline.study.references import MAX_SHOWN
from pipeline.study.report.cases import Cases, cases_of, groups_of
from pipeline.study.report.counts import count_tables
from pipeline.study.report.endpoints import EndpointResult, positive_index, result_of
from pipeline.study.report.facts import Facts, text_of
from pipeline.study.report.figures import flow_figure, forest_figure
from pipeline.study.report.flow import Flow, failure_tables, flow_of, quality_tables, state_table, time_tables
from pipeline.study.report.readers import reader_tables
from pipeline.study.report.table import Row, Table, interval
from pipeline.study.stages.registry import kind_of
from training.foundation.words.counts import counted, first_of

ENDPOINT_COLUMNS = (
    *("endpoint", "kind", "measure", "cases", "patients", "value", "95 % interval", "at least", "met"),
    "interval by",
)


@dataclass(frozen=True)
class Figure:
    """A drawing as an <svg> element, and its caption."""

    svg: str
    caption: str
    is_wide: bool = False


@dataclass(frozen=True)
class Section:
    """A heading and its content."""

    heading: str
    paragraphs: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()
    tables: tuple[Table, ...] = ()


def sections_of(facts: Facts, *, verified: str) -> list[Section]:
    """The whole report.

    Args:
        verified: the result of `verify` on the log.

    Raises:
        UnreadableError, BadRecipeError: an endpoint that cannot be computed from the data.
    """
    sections = [_flow(facts), _quality(facts), *_endpoints(facts), _failures(facts), _times(facts), _readers(facts)]
    sections += [_counts(facts), _amendments(facts), _origin(facts, verified)]
    return [section for section in sections if section.tables or section.figures or section.paragraphs]


def _flow(facts: Facts) -> Section:
    flow = flow_of(facts)
    excluded: list[Row] = list(flow.excluded.items())
    reasons = [Table("exclusions", "Excluded, by reason", ("reason", "slides"), excluded)] if excluded else []
    caption = "Slides and patients at each step. A slide without a patient in the manifest counts as its own."
    return Section(
        "Flow of the cohort",
        paragraphs=_labels(facts, flow),
        figures=(Figure(flow_figure(flow), caption, is_wide=True),),
        tables=(*reasons, state_table(facts)),
    )


def _labels(facts: Facts, flow: Flow) -> tuple[str, ...]:
    """What is wrong with the slides' labels."""
    if not flow.unusable:
        return tuple(facts.references.warnings)
    classes = "; ".join(", ".join(order) for order in facts.references.orders) or "no slide was predicted"
    shown = first_of([f"{label} ({number})" for label, number in flow.unusable.items()], MAX_SHOWN)
    are = counted(
        sum(flow.unusable.values()), "analysed slide has a label that is", "analysed slides have labels that are"
    )
    said = f"{are} none of the classes ({classes}), and no reference: {shown}."
    return (said, *facts.references.warnings)


def _quality(facts: Facts) -> Section:
    return Section("Quality", tables=tuple(quality_tables(facts)))


def _endpoints(facts: Facts) -> list[Section]:
    """Endpoints over all cases, then by site and scanner, then calibration."""
    protocol = facts.protocol
    if not protocol.endpoints:
        return [Section("Endpoints", ("The protocol names no endpoints.",))]
    by_endpoint = cases_of(facts, protocol.endpoints)
    draws = Draws(protocol.analysis.bootstrap, protocol.study.seed)
    results = [
        result_of(endpoint, by_endpoint[endpoint.name], protocol.analysis, draws) for endpoint in protocol.endpoints
    ]
    groups = [
        Section(f"Endpoints by {column}", figures=figures, tables=(table,))
        for column in ("site", "scanner")
        for table, figures in [_by_group(facts, by_endpoint, draws, column)]
        if table.rows
    ]
    whole = Section("Endpoints", _how(facts, by_endpoint), tables=(_endpoint_table(results), *_delong_table(results)))
    return [whole, *groups, *_calibration(facts, by_endpoint, draws)]


def _how(facts: Facts, by_endpoint: dict[str, Cases]) -> tuple[str, ...]:
    analysis = facts.protocol.analysis
    fewest = min(len(set(cases.patients.tolist())) for cases in by_endpoint.values())
    paragraphs = [
        f"Intervals are {CONFIDENCE:.0%} percentile intervals of {analysis.bootstrap} bootstrap resamples in which "
        f"patients are drawn with replacement, with all their slides and tiles (seed {facts.protocol.study.seed}). A "
        "hypothesis is met if the lower end of the interval reaches it, and is not determined without an interval. "
        "If all resamples agree, as they do at 0 and at 100 %, the interval is exact (Clopper and Pearson) and "
        "counts patients, not slides or tiles: each patient whose cases are all right, or all wrong, counts once. "
        "No interval of such a measure has an end better than that of a result of 0 or 100 % over as many patients. "
        "Cases are finished slides with a reference: a label in the manifest, or labelled tiles."
    ]
    if fewest < FEWEST_PATIENTS:
        paragraphs.append(
            f"With fewer than {FEWEST_PATIENTS} patients there are no resamples, and only exact intervals."
        )
    elif fewest < FEW_PATIENTS:
        paragraphs.append(f"With fewer than {FEW_PATIENTS} patients, such intervals are usually too narrow.")
    return tuple(paragraphs)


def _endpoint_table(results: Sequence[EndpointResult]) -> Table:
    rows: list[Row] = [
        (
            result.endpoint.name,
            result.endpoint.kind,
            _measure(result),
            result.cases,
            result.patients,
            result.estimate.value,
            interval(result.estimate.low, result.estimate.high),
            result.endpoint.at_least,
            result.verdict,
            result.basis,
        )
        for result in results
    ]
    return Table("endpoints", "All endpoints", ENDPOINT_COLUMNS, rows)


def _measure(result: EndpointResult) -> str:
    name = "AUC" if result.endpoint.measure == "auc" else result.endpoint.measure.replace("_", " ")
    if result.endpoint.measure == "kappa":
        name += f", {result.endpoint.weights} weights" if result.endpoint.weights else ", unweighted"
    of_class = f" of {result.class_name}" if result.class_name else ""
    of_target = f", {result.endpoint.target}" if result.endpoint.target else ""
    return f"{name}{of_class}, by {result.endpoint.level}, {result.endpoint.model}{of_target}"


def _delong_table(results: Sequence[EndpointResult]) -> list[Table]:
    rows: list[Row] = [
        (
            result.endpoint.name,
            result.delong.auc,
            result.delong.standard_error,
            interval(result.delong.low, result.delong.high),
        )
        for result in results
        if result.delong is not None
    ]
    note = "For independent cases: if patients have several slides, use the result by patient."
    columns = ("endpoint", "AUC", "standard error", "95 % interval")
    return [Table("delong", "Areas by DeLong’s method", columns, rows, note=note)] if rows else []


def _by_group(
    facts: Facts, by_endpoint: dict[str, Cases], draws: Draws, column: str
) -> tuple[Table, tuple[Figure, ...]]:
    groups = {name: groups_of(facts, cases, column) for name, cases in by_endpoint.items()}
    results: dict[str, dict[str, EndpointResult]] = {name: {} for name in by_endpoint}
    for group in sorted(
        {group for masks in groups.values() for group in masks}
    ):  # one after the other: `draws` is kept
        for endpoint in facts.protocol.endpoints:
            chosen = groups[endpoint.name].get(group)
            if chosen is not None:
                cases = by_endpoint[endpoint.name].only(chosen)
                results[endpoint.name][group] = result_of(endpoint, cases, facts.protocol.analysis, draws)
    rows: list[Row] = []
    figures = []
    for endpoint in facts.protocol.endpoints:
        for name, result in results[endpoint.name].items():
            limits = interval(result.estimate.low, result.estimate.high)
            rows.append((endpoint.name, name, result.cases, result.patients, result.estimate.value, limits))
        estimates = {name: result.estimate for name, result in results[endpoint.name].items()}
        if any(estimate.low is not None for estimate in estimates.values()):
            figures.append(Figure(forest_figure(estimates, endpoint.at_least), f"{endpoint.name} by {column}"))
    columns = ("endpoint", column, "cases", "patients", "value", "95 % interval")
    return Table(f"endpoints_by_{column}", f"Endpoints by {column}", columns, rows), tuple(figures)


def _calibration(facts: Facts, by_endpoint: dict[str, Cases], draws: Draws) -> list[Section]:
    """Curves and calibration of each model, level and positive class of an endpoint."""
    figures, rows, seen = [], list[Row](), set[tuple[str, str, str]]()
    for endpoint in facts.protocol.endpoints:
        cases = by_endpoint[endpoint.name]
        if endpoint.measure not in ("auc", "sensitivity", "specificity") or not len(cases):
            continue
        index = positive_index(endpoint, cases.class_names)
        of_target = f"{endpoint.target}: " if endpoint.target else ""
        key = (endpoint.model, endpoint.level, of_target + cases.class_names[index])
        if key in seen:
            continue
        seen.add(key)
        drawn, row = _class(
            cases, index, facts.protocol.analysis.calibration_bins, draws, "{2}, by {1}, {0}".format(*key)
        )
        figures += drawn
        rows.append((*key, *row))
    columns = ("model", "level", "class", "ECE", "95 % interval", "Brier score")
    table = Table("calibration", "Calibration", columns, rows)
    return [Section("Curves and calibration", figures=tuple(figures), tables=(table,))] if rows else []


def _class(cases: Cases, index: int, bins: int, draws: Draws, of: str) -> tuple[list[Figure], Row]:
    """Figures of a class, and its row of the table without its name."""
    truth, scores = cases.truth_nk[:, index], np.clip(cases.scores_nk[:, index], 0, 1)
    resamples = draws.of(cases.patients)
    curve = roc_with_band(truth, scores, resamples)
    calibrated = calibration_of(truth, scores, resamples, bins=bins)
    figures = [Figure(reliability_figure(calibrated), f"Calibration of {of}.")]
    if curve is not None:
        named = NamedCurve(cases.class_names[index], auroc(truth, scores), curve)
        figures.insert(0, Figure(roc_figure([named]), f"ROC curve of {of}; the band is pointwise."))
    ece = calibrated.ece
    return figures, (ece.value, interval(ece.low, ece.high), calibrated.brier.value)


def _failures(facts: Facts) -> Section:
    return Section("Slides without a result", tables=tuple(failure_tables(facts)))


def _times(facts: Facts) -> Section:
    return Section("Time and cost", tables=tuple(time_tables(facts)))


def _readers(facts: Facts) -> Section:
    return Section("Readers", tables=tuple(reader_tables(facts)))


def _counts(facts: Facts) -> Section:
    tables, missing = count_tables(facts)
    return Section("Counts", tuple(missing), tables=tuple(tables))


def _amendments(facts: Facts) -> Section:
    rows: list[Row] = [
        (int(seq), utc[:19].replace("T", " "), actor, action, why)
        for seq, utc, actor, action, _, why in facts.entries.itertuples(index=False)
    ]
    table = Table("decisions", "What people decided", ("entry", "UTC", "who", "what", "why"), rows)
    return Section("Decisions and amendments", tables=(table,))


def _origin(facts: Facts, verified: str) -> Section:
    row = facts.row
    hashes: list[Row] = [
        ("protocol", f"version {row.version}", row.protocol_sha256),
        ("manifest", "cohort", row.manifest_sha256),
        *(("model", model.id, model.sha256) for model in facts.protocol.models),
        *(("model's config.json", model.id, model.config_sha256) for model in facts.protocol.models),
        *(("encoder", encoder.id, encoder.sha256) for encoder in facts.protocol.encoders),
        *(("encoder's row", encoder.id, encoder.row_sha256) for encoder in facts.protocol.encoders),
        *(("tile set", name, sha256) for name, sha256 in facts.tile_sets.items()),
        ("log", f"entry {facts.head[0]}", facts.head[1]),
    ]
    packages: list[Row] = list(versions().items())
    stages = dict.fromkeys(kind_of(task).section for task in facts.protocol.stages)
    settings: list[Row] = [
        (section, key, json.dumps(value))
        for section in (*stages, "analysis")
        for key, value in facts.row_protocol[section].items()
    ]
    again = (
        f"To reproduce: `gemslide study reproduce {row.study_id} --slides 5%` reruns a sample from the slide files "
        f"and compares hashes; `gemslide study verify {row.study_id}` checks the log and, with `--anchor` and "
        "`--trust`, that nobody has rewritten it."
    )
    return Section(
        "Versions, hashes, and how to reproduce",
        (verified, again),
        tables=(
            Table("hashes", "SHA-256", ("what", "which", "SHA-256"), hashes),
            Table("versions", "Versions", ("package", "version"), packages),
            Table("settings", "Frozen settings", ("section", "setting", "value"), settings, shown=200),
            _slides(facts),
        ),
    )


def _slides(facts: Facts) -> Table:
    """One row per slide; the page refers to the file."""
    columns = ("slide_id", "state", "code", "site", "scanner", "label", "source_sha256")
    cells = [[text_of(value) for value in facts.slides[name]] for name in columns]
    return Table("slides", "Slides", columns, list(zip(*cells, strict=True)), shown=0)
