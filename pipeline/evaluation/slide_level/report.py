"""The evaluation of slide-level models as files: one HTML page, one JSON file, and one row per patient or slide."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from markupsafe import Markup

from pipeline.codecs import encode_jpeg
from pipeline.evaluation.slide_level.collect import AttendedTile
from pipeline.evaluation.slide_level.evaluate import explained_absence
from pipeline.evaluation.slide_level.result import SlideEvaluation, TargetResult
from pipeline.evaluation.statistics.bootstrap import CONFIDENCE, FEW_PATIENTS, FEWEST_PATIENTS, Estimate
from pipeline.files import new_folder, write_text_atomic
from pipeline.html_templates import templates_in
from pipeline.project import Project
from pipeline.spreadsheets import csv_line
from pipeline.store.reading.reader import StoreReader
from pipeline.store.view.render import for_screen
from pipeline.units import RESEARCH_USE
from training.foundation.words.counts import counted

FOLDER, PAGE = "evaluation-slides", "report.html"
THUMBNAIL_PX = 112
KINDS = {
    "class": "classes",
    "ordinal": "ordered classes",
    "number": "a number",
    "survival": "time to an event",
}


def write_slides_report(project: Project, evaluation: SlideEvaluation) -> Path:
    """Write `evaluation.json`, `units.csv` and `report.html` below the first model's results; all appear together.

    Returns:
        The HTML file.

    Raises:
        DiskFullError: no space, or not writable. UnreadableError: a tile that the page shows cannot be read.
    """
    several = f"-{len(evaluation.models)}-folds" if len(evaluation.models) > 1 else ""
    split = "" if evaluation.split == "test" else f"-{evaluation.split}"
    target = project.model_results_dir(evaluation.models[0]) / f"{FOLDER}{several}{split}"
    page = _page(project, evaluation)
    target.parent.mkdir(parents=True, exist_ok=True)
    with new_folder(target) as folder:
        content = json.dumps(evaluation.as_json(), indent=1, ensure_ascii=False, allow_nan=False)
        write_text_atomic(folder / "evaluation.json", content + "\n")
        write_text_atomic(folder / "units.csv", "".join(map(csv_line, (evaluation.header, *evaluation.rows))))
        write_text_atomic(folder / PAGE, page)
    return target / PAGE


def _page(project: Project, evaluation: SlideEvaluation) -> str:
    environment = templates_in(Path(__file__).parent)
    environment.filters |= {"counted": counted, "number": _number, "interval": _interval, "p_value": _p_value}
    return environment.get_template("slides_report.html.j2").render(
        e=evaluation,
        targets=[_shown(project, target) for target in evaluation.targets],
        absence=explained_absence(evaluation),
        kinds=KINDS,
        confidence=f"{CONFIDENCE:.0%}",
        fewest_patients=FEWEST_PATIENTS,
        few_patients=FEW_PATIENTS,
        research_use=RESEARCH_USE,
        version=version("gemslide"),
        utc=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
    )


def _shown(project: Project, target: TargetResult) -> dict[str, Any]:
    """A target with its figures and tiles, as the page shows it."""
    fewest = min(
        (
            m.resamples
            for method in target.methods
            for m in method.measures.values()
            if m.low is not None and not m.is_exact
        ),
        default=0,
    )
    return {
        "target": target,
        "measures": list(target.methods[0].measures),
        "fewest_resamples": fewest,
        "drawings": [(Markup(drawing.svg), drawing.caption) for drawing in target.drawings],
        "wrong": [(unit, _thumbnails(project, unit.tiles)) for unit in target.wrong],
    }


def _thumbnails(project: Project, tiles: Sequence[AttendedTile]) -> list[tuple[str, str]]:
    """(caption, JPEG in base64) of tiles, read from the slides' stores at the tiles' positions."""
    images = []
    for tile in tiles:
        reader = StoreReader(project.stored_at(tile.slide_id))
        level = reader.level_for_downsample(tile.side_px0 / THUMBNAIL_PX)
        pixels = reader.read_square(level, tile.x_px0, tile.y_px0, tile.side_px0, THUMBNAIL_PX)
        jpeg = encode_jpeg(for_screen(reader, pixels))
        caption = f"{tile.slide_id} at {tile.x_px0:,}, {tile.y_px0:,} px: {tile.attention:.2g} × average"
        images.append((caption, base64.b64encode(jpeg).decode()))
    return images


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _interval(measured: Estimate | None) -> str:
    """The value, and its interval if there is one."""
    if measured is None or measured.value is None:
        return "–"
    if measured.low is None or measured.high is None:
        return _number(measured.value)
    exact = ", exact" if measured.is_exact else ""
    return f"{measured.value:.3f} ({measured.low:.3f} to {measured.high:.3f}{exact})"


def _p_value(value: float | None) -> str:
    if value is None:
        return "–"
    return "< 0.001" if value < 0.001 else f"{value:.3f}"
