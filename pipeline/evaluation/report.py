"""The evaluation as files: one HTML page, one JSON file, one long CSV table, and CAMELYON16's files."""

from __future__ import annotations

import base64
import json
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from markupsafe import Markup

from pipeline.evaluation import figures
from pipeline.evaluation.camelyon17 import STAGES
from pipeline.evaluation.camelyon_files import write_candidates, write_slide_scores
from pipeline.evaluation.result import Evaluation
from pipeline.evaluation.statistics.bootstrap import CONFIDENCE, FEW_PATIENTS, FEWEST_PATIENTS, Estimate
from pipeline.evaluation.statistics.froc import FALSE_POSITIVES_PER_SLIDE
from pipeline.evaluation.statistics.level import Level
from pipeline.evaluation.statistics.one_class import AUROC, NamedCurve
from pipeline.evaluation.tidy import as_csv, as_json
from pipeline.files import new_folder, write_text_atomic
from pipeline.html_templates import templates_in
from pipeline.inference.results.files import heatmap_name
from pipeline.project import Project
from pipeline.units import RESEARCH_USE
from training.foundation.reading import read_regular
from training.foundation.words.counts import counted

MAX_IMAGE_BYTES = 64 * 2**20
MAX_IMAGES = 24
"""Heatmaps in one page: with more it is too large to send."""
SLIDE_SCORES = {
    "max": "the highest probability of its cells",
    "mean": "the mean probability of its cells",
    "top_decile": "the mean of the highest tenth of its cells' probabilities",
}


def write_report(project: Project, evaluation: Evaluation) -> Path:
    """Write the report with its figures and the slides' heatmaps embedded, and the data beside it.

    Returns:
        The HTML file. The JSON and CSV files have the same name; CAMELYON16's files are in a folder of that name.

    Raises:
        DiskFullError: no space, or not writable.
    """
    folder = project.model_results_dir(evaluation.model_id)
    versus = f"_against_{evaluation.against}" if evaluation.against else ""
    name = f"evaluation_{evaluation.tile_set}_{evaluation.split}{versus}"
    if evaluation.detections:
        _write_detections(folder / f"{name}_camelyon16", evaluation)
    write_text_atomic(folder / f"{name}.csv", as_csv(evaluation))
    write_text_atomic(folder / f"{name}.json", json.dumps(as_json(evaluation), indent=1, allow_nan=False) + "\n")
    write_text_atomic(folder / f"{name}.html", _page(project, evaluation))
    return folder / f"{name}.html"


def _write_detections(target: Path, evaluation: Evaluation) -> None:
    """Write a folder of candidates for each class, one file per slide, and beside it the slides' scores."""
    with new_folder(target) as folder:
        for class_name, detections in evaluation.detections.items():
            class_folder = folder / heatmap_name(class_name).removeprefix("heatmap_").removesuffix(".png")
            (class_folder / "candidates").mkdir(parents=True)
            for slide_id, candidates in detections.candidates.items():
                write_candidates(class_folder / "candidates" / f"{slide_id}.csv", candidates)
            write_slide_scores(class_folder / "slides.csv", detections.slide_scores)


def _page(project: Project, evaluation: Evaluation) -> str:
    environment = templates_in(Path(__file__).parent)
    environment.filters["counted"] = counted
    environment.filters["number"] = _number
    environment.filters["interval"] = _interval
    environment.filters["limits"] = _limits
    environment.filters["p_value"] = _p_value
    images, left_out = _images(project, evaluation)
    by_name = {level.name: level for level in evaluation.levels}
    one_slide_each = "slide" in by_name and by_name["slide"].items == by_name["patient"].items
    levels = [level for level in evaluation.levels if not (one_slide_each and level.name == "patient")]
    return environment.get_template("report.html.j2").render(
        e=evaluation,
        levels=[_shown(level) for level in levels],
        one_slide_each=one_slide_each,
        froc_figure=Markup(figures.froc_figure(evaluation.froc)) if evaluation.froc else None,
        rates=FALSE_POSITIVES_PER_SLIDE,
        stages=STAGES,
        images=images,
        images_left_out=left_out,
        slide_score=SLIDE_SCORES[evaluation.config.slide_score],
        confidence=f"{CONFIDENCE:.0%}",
        fewest_patients=FEWEST_PATIENTS,
        few_patients=FEW_PATIENTS,
        research_use=RESEARCH_USE,
        version=version("gemslide"),
        utc=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
    )


def _shown(level: Level) -> dict[str, Any]:
    """A level with its figures, as the page shows it."""
    drawn = [result for result in level.classes if result.roc]
    rocs = [NamedCurve(result.class_name, result.measures[AUROC].value, result.roc) for result in drawn]
    return {
        "level": level,
        "measures": list(level.classes[0].measures),
        "fewest_resamples": _fewest_resamples(level),
        "roc": Markup(figures.roc_figure(rocs)) if rocs else None,
        "precision_recall": Markup(figures.precision_recall_figure(drawn)) if drawn else None,
        "by_class": [
            {
                "result": result,
                "reliability": Markup(figures.reliability_figure(result.calibration)),
                "decision": Markup(figures.decision_figure(result)) if result.decision else None,
            }
            for result in level.classes
            if result.calibration and (result.roc or level.name == "tile")
        ],
    }


def _fewest_resamples(level: Level) -> int:
    """The least number of resamples behind an interval of a level's table; 0 if there are no intervals."""
    measures = [measured for result in level.classes for measured in result.measures.values()]
    return min((m.resamples for m in measures if m.low is not None and not m.is_exact), default=0)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _interval(measured: Estimate) -> str:
    """The value, and its interval if there is one."""
    if measured.low is None or measured.high is None:
        return _number(measured.value)
    exact = ", exact" if measured.is_exact else ""
    return f"{measured.value:.3f} ({measured.low:.3f} to {measured.high:.3f}{exact})"


def _limits(interval: tuple[float | None, float | None]) -> str:
    low, high = interval
    return "" if low is None or high is None else f" ({low:.3f} to {high:.3f})"


def _p_value(value: float | None) -> str:
    if value is None:
        return "–"
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def _images(project: Project, evaluation: Evaluation) -> tuple[list[tuple[str, str]], int]:
    """(caption, PNG in base64) of the slides' heatmaps, and the number left out."""
    paths = [
        (f"{slide['slide_id']}: probability of {class_name}",
         project.result_dir(slide["slide_id"], evaluation.model_id) / heatmap_name(class_name))
        for slide in evaluation.by_slide
        for class_name in evaluation.classes
    ]  # fmt: skip
    existing = [(caption, path) for caption, path in paths if path.is_file()]
    read = [(caption, _png(path)) for caption, path in existing[:MAX_IMAGES]]
    shown = [(caption, base64.b64encode(png).decode()) for caption, png in read if png is not None]
    return shown, max(0, len(existing) - MAX_IMAGES)


def _png(path: Path) -> bytes | None:
    """Content of a heatmap's file; None if it cannot be shown."""
    try:
        data = read_regular(path, max_bytes=MAX_IMAGE_BYTES)
    except OSError:
        return None
    return data if data.startswith(b"\x89PNG\r\n\x1a\n") else None
