"""The evaluation as one HTML file and one JSON file."""

from __future__ import annotations

import base64
import json
import time
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

from pipeline.evaluation.evaluate import Evaluation
from pipeline.files import write_text_atomic
from pipeline.inference.results import heatmap_name
from pipeline.project import Project
from pipeline.units import RESEARCH_USE
from training.foundation.reading import read_regular

MAX_IMAGE_BYTES = 64 * 2**20
TEMPLATES = Path(__file__).parent


def write_report(project: Project, evaluation: Evaluation) -> Path:
    """Write the report with the slides' heatmaps inside it. Returns the HTML file."""
    folder = project.model_results_dir(evaluation.model_id)
    name = f"evaluation_{evaluation.tile_set}_{evaluation.split}"
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=select_autoescape(["j2", "html"]), undefined=StrictUndefined
    )
    environment.filters["number"] = _number
    html = environment.get_template("report.html.j2").render(
        e=evaluation,
        images=_images(project, evaluation),
        research_use=RESEARCH_USE,
        version=version("gemslide"),
        utc=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
    )
    write_text_atomic(folder / f"{name}.html", html)
    content = {**asdict(evaluation), "confusion": evaluation.confusion.tolist(), "research_use": RESEARCH_USE}
    write_text_atomic(folder / f"{name}.json", json.dumps(content, indent=1) + "\n")
    return folder / f"{name}.html"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _images(project: Project, evaluation: Evaluation) -> list[tuple[str, str]]:
    found = []
    for slide in evaluation.by_slide:
        folder = project.result_dir(slide["slide_id"], evaluation.model_id)
        for class_name in evaluation.classes:
            path = folder / heatmap_name(class_name)
            png = _png(path)
            if png is not None:
                caption = f"{slide['slide_id']}: probability of {class_name}"
                found.append((caption, base64.b64encode(png).decode()))
    return found


def _png(path: Path) -> bytes | None:
    """A heatmap's file; None where there is none that can be shown."""
    try:
        data = read_regular(path, max_bytes=MAX_IMAGE_BYTES)
    except OSError:
        return None
    return data if data.startswith(b"\x89PNG\r\n\x1a\n") else None
