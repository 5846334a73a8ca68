"""A slide's results on one page: findings and their positions, the slide, the model, and how far to trust them."""

from __future__ import annotations

import base64
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from jinja2 import Template

from pipeline.codecs.types import Pixels
from pipeline.export.common.cells import fingerprint
from pipeline.files import write_text_atomic
from pipeline.html_templates import templates_in
from pipeline.inference.results.heatmap import heatmap_png
from pipeline.inference.results.hotspots import Hotspot
from pipeline.inference.results.model_essentials import read_essentials
from pipeline.inference.results.slide_facts import CROP_UM, class_counts, hotspot_rows, quality_of, tissue_mm2
from pipeline.store.layers.overlays import Predictions
from pipeline.store.reading.reader import StoreReader
from pipeline.units import RESEARCH_USE, height_text
from training.foundation.reading import read_regular
from training.foundation.tile_read import described_read
from training.foundation.words.counts import counted

MAX_REPORT_BYTES = 64 * 2**20
_IMAGE_IN = 5.2
"""Inches of the slide's longer side: half a page."""
_STEPS = ("read", "decode", "transfer", "compute", "write", "waiting")
"""Steps of the time breakdown, in the order in which a tile passes them; others follow."""
BESIDE_DAMAGE = "tiles_beside_damage"
"""Key, also in run records, of the number of the grid's tiles left out because they touch damage."""
_FINGERPRINT = re.compile(rb'<meta name="predictions-sha256" content="([0-9a-f]{64})">')


@dataclass(frozen=True)
class About:
    """Origin of predictions, as far as it is known.

    Attributes:
        package: the model's folder; None: the report gives nothing of the model but its id.
        source: the slide file that the store was made from, if available; DICOM results refer to it.
        seconds: time breakdown.
        facts: findings of inference, such as `tiles`, `tiles_beside_damage`, `colour_distance`, `flags` (sentences).
    """

    package: Path | None = None
    source: Path | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    facts: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Shown:
    """The class whose probability a report's image shows, and the threshold of its hotspots and counts."""

    class_name: str
    threshold: float
    hotspots: Sequence[Hotspot]


def write_slide_report(
    path: Path, reader: StoreReader, image: Pixels, predictions: Predictions, shown: Shown, about: About
) -> None:
    """Write the page: one HTML file, with its images embedded.

    Args:
        image: the slide's thumbnail.

    Raises:
        DiskFullError: no space, or not writable.
    """
    rows = hotspot_rows(reader, shown.hotspots)
    marks_xy0 = [(row.spot["x_px0"], row.spot["y_px0"]) for row in rows]
    heatmap = heatmap_png(
        reader, image, predictions, shown.class_name, long_in=_IMAGE_IN, with_title=False, marks_xy0=marks_xy0
    )
    facts = {key: value for key, value in about.facts.items() if isinstance(value, str | int | float)}
    html = _template().render(
        **_slide_facts(reader),
        **_prediction_facts(predictions, shown.threshold, reader.mpp0),
        class_name=shown.class_name,
        picture=base64.b64encode(heatmap).decode(),
        hotspots=rows,
        num_hotspots=len(shown.hotspots),
        crop_um=CROP_UM,
        model=read_essentials(about.package),
        steps=_breakdown(about.seconds),
        facts=facts,
        flags=_flags(about.facts),
        research_use=RESEARCH_USE,
        version=version("gemslide"),
        utc=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
    )
    write_text_atomic(path, html)


@cache
def _template() -> Template:
    return templates_in(Path(__file__).parent).get_template("slide_report.html.j2")


def _slide_facts(reader: StoreReader) -> dict[str, Any]:
    return {
        "reader": reader,
        "about": reader.attributes,
        "size_mm": [side * reader.mpp0 / 1000 for side in reader.size_wh_px0],
        "tissue_mm2": tissue_mm2(reader),
        "quality": quality_of(reader),
    }


def _prediction_facts(predictions: Predictions, threshold: float, mpp0: float) -> dict[str, Any]:
    counts = class_counts(predictions, threshold, mpp0)
    return {
        "predictions": predictions,
        "threshold": threshold,
        "counts": counts,
        "num_cells": sum(count["likeliest"] for count in counts),
        "cell_um": predictions.stride_px0 * mpp0,
        "tile_um": predictions.side_px0 * mpp0,
        "fingerprint": fingerprint(predictions),
        "tile_read": described_read(predictions.tile_read) + _at_plane(predictions.plane_um),
        "versions": _versions(predictions),
    }


def _at_plane(plane_um: float | None) -> str:
    return "" if plane_um is None else f", at the focal plane at {height_text(plane_um)}"


def reported_fingerprint(path: Path) -> str | None:
    """Fingerprint of a report's array (`pipeline.export.common.cells.fingerprint`); None: not stated.

    Raises:
        OSError: it cannot be read.
    """
    match = _FINGERPRINT.search(read_regular(path, max_bytes=MAX_REPORT_BYTES))
    return match.group(1).decode() if match else None


def _breakdown(seconds: Mapping[str, float]) -> list[tuple[str, float, float]]:
    """(step, seconds, share of their sum)."""
    whole = sum(seconds.values())
    ordered = [name for name in _STEPS if name in seconds] + sorted(set(seconds) - set(_STEPS))
    return [(name, seconds[name], seconds[name] / whole if whole else 0.0) for name in ordered]


def _flags(facts: Mapping[str, object]) -> list[str]:
    clauses = facts.get("flags", ())
    flags = [_sentence(str(flag)) for flag in (clauses if isinstance(clauses, list | tuple) else [clauses])]
    left_out = facts.get(BESIDE_DAMAGE)
    if isinstance(left_out, int) and left_out > 0:
        tiles = counted(left_out, "tile was", "tiles were")
        flags.append(f"{tiles} left out for touching damage in the slide's file (hatched in the image).")
    return flags


def _sentence(clause: str) -> str:
    return clause[:1].upper() + clause[1:].rstrip(".") + "."


def _versions(predictions: Predictions) -> dict[str, str]:
    """Versions of the programs that made the predictions, as stored with them."""
    stored: Any = predictions.attributes.get("versions")
    return {str(name)[:40]: str(number)[:40] for name, number in stored.items()} if isinstance(stored, dict) else {}
