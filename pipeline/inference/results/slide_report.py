"""A slide's results on one page: what was found where, on what slide, by which model, and how far to trust it."""

from __future__ import annotations

import base64
import re
import time
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from jinja2 import Template

from pipeline.codecs.types import Pixels
from pipeline.export.cells import fingerprint
from pipeline.files import write_text_atomic
from pipeline.html_templates import templates_in
from pipeline.inference.heatmap import heatmap_png
from pipeline.inference.hotspots import Hotspot
from pipeline.inference.model_essentials import read_essentials
from pipeline.inference.slide_facts import CROP_UM, class_counts, hotspot_rows, quality_of, tissue_mm2
from pipeline.store.overlays import Predictions
from pipeline.store.reader import StoreReader
from pipeline.units import RESEARCH_USE
from training.foundation.reading import read_regular

MAX_REPORT_BYTES = 64 * 2**20
_PICTURE_IN = 5.2
"""Of the slide's longer side: half a page."""
_STEPS = ("read", "decode", "transfer", "compute", "write", "waiting")
"""Of the time breakdown, in the order in which a tile passes them; others follow."""
BESIDE_DAMAGE = "tiles_beside_damage"
"""The fact, also in run records, of how many tiles of the grid were left out since they touch damage."""
_FINGERPRINT = re.compile(rb'<meta name="predictions-sha256" content="([0-9a-f]{64})">')


def write_slide_report(
    path: Path,
    reader: StoreReader,
    image: Pixels,
    predictions: Predictions,
    hotspots: Sequence[Hotspot],
    *,
    class_name: str,
    threshold: float,
    package: Path | None,
    seconds: Mapping[str, float],
    facts: Mapping[str, object],
) -> None:
    """Write the page: one HTML file, with its images inside.

    Args:
        image: the slide's thumbnail.
        class_name: whose probability the picture shows.
        threshold: of the hotspots and the counts.
        package: the model's folder; None: nothing is said of the model but its id.
        seconds: time breakdown.
        facts: what inference found out, as `tiles`, `tiles_beside_damage`, `colour_distance`, `flags` (sentences).

    Raises:
        DiskFullError: no space, or not writable.
    """
    shown = hotspot_rows(reader, hotspots)
    marks_xy0 = [(row.spot["x_px0"], row.spot["y_px0"]) for row in shown]
    picture = heatmap_png(
        reader, image, predictions, class_name, long_in=_PICTURE_IN, with_title=False, marks_xy0=marks_xy0
    )
    html = _template().render(
        **_of_slide(reader),
        **_of_predictions(predictions, threshold, reader.mpp0),
        class_name=class_name,
        picture=base64.b64encode(picture).decode(),
        hotspots=shown,
        num_hotspots=len(hotspots),
        crop_um=CROP_UM,
        model=read_essentials(package),
        steps=_breakdown(seconds),
        facts={key: value for key, value in facts.items() if key != "flags" and isinstance(value, str | int | float)},
        flags=_flags(facts),
        research_use=RESEARCH_USE,
        version=version("gemslide"),
        utc=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
    )
    write_text_atomic(path, html)


@cache
def _template() -> Template:
    return templates_in(Path(__file__).parent).get_template("slide_report.html.j2")


def _of_slide(reader: StoreReader) -> dict[str, Any]:
    return {
        "reader": reader,
        "about": reader.attributes,
        "size_mm": [side * reader.mpp0 / 1000 for side in reader.size_wh_px0],
        "tissue_mm2": tissue_mm2(reader),
        "quality": quality_of(reader),
    }


def _of_predictions(predictions: Predictions, threshold: float, mpp0: float) -> dict[str, Any]:
    counts = class_counts(predictions, threshold, mpp0)
    return {
        "predictions": predictions,
        "threshold": threshold,
        "counts": counts,
        "num_cells": sum(count["likeliest"] for count in counts),
        "cell_um": predictions.stride_px0 * mpp0,
        "tile_um": predictions.side_px0 * mpp0,
        "fingerprint": fingerprint(predictions),
        "versions": _versions(predictions),
    }


def reported_fingerprint(path: Path) -> str | None:
    """Which array a report says it is about (`pipeline.export.cells.fingerprint`); None: it does not say.

    Raises:
        OSError: it cannot be read.
    """
    found = _FINGERPRINT.search(read_regular(path, max_bytes=MAX_REPORT_BYTES))
    return found.group(1).decode() if found else None


def _breakdown(seconds: Mapping[str, float]) -> list[tuple[str, float, float]]:
    """(step, seconds, share of their sum)."""
    whole = sum(seconds.values())
    ordered = [name for name in _STEPS if name in seconds] + sorted(set(seconds) - set(_STEPS))
    return [(name, seconds[name], seconds[name] / whole if whole else 0.0) for name in ordered]


def _flags(facts: Mapping[str, object]) -> list[str]:
    said = facts.get("flags", ())
    flags = [_sentence(str(flag)) for flag in (said if isinstance(said, list | tuple) else [said])]
    left_out = facts.get(BESIDE_DAMAGE)
    if isinstance(left_out, int) and left_out > 0:
        flags.append(f"{left_out} tiles were left out: they touch damage in the slide's file (hatched in the picture).")
    return flags


def _sentence(clause: str) -> str:
    return clause[:1].upper() + clause[1:].rstrip(".") + "."


def _versions(predictions: Predictions) -> dict[str, str]:
    """Of the programs that made the predictions, as these say."""
    said: Any = predictions.attributes.get("versions")
    return {str(name)[:40]: str(number)[:40] for name, number in said.items()} if isinstance(said, dict) else {}
