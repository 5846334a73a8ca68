"""The evaluation as data: one long table (CSV), and everything as JSON."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
from pydantic import BaseModel

from pipeline.evaluation.result import Evaluation
from pipeline.evaluation.statistics.bootstrap import Estimate
from pipeline.evaluation.statistics.delong import DeLongAuc
from pipeline.evaluation.statistics.froc import FALSE_POSITIVES_PER_SLIDE
from pipeline.evaluation.statistics.level import Level
from pipeline.units import RESEARCH_USE

COLUMNS = ("level", "class", "method", "measure", "value", "low", "high", "interval", "resamples", "n", "patients")
BY_PATIENT, EXACT, DELONG = "bootstrap by patient", "exact by patient", "DeLong"
_NOT_IN_JSON = {"detections"}
"""Candidates have their own files, and there may be a million."""


def as_csv(evaluation: Evaluation) -> str:
    """One row per measure; missing limits and values are empty."""
    buffer = io.StringIO(newline="")
    writer = csv.DictWriter(buffer, COLUMNS, lineterminator="\n", restval="")
    writer.writeheader()
    for row in _rows(evaluation):
        writer.writerow({key: "" if value is None else value for key, value in row.items()})
    return buffer.getvalue()


def _rows(evaluation: Evaluation) -> Iterator[dict[str, object]]:
    tiles = evaluation.levels[0]
    for method, measures in evaluation.methods.items():
        common = {"level": "tile", "class": "all", "method": method, "n": tiles.items, "patients": tiles.patients}
        for name, measured in measures.items():
            yield _row(common, name, measured)
    for level in evaluation.levels:
        yield from _level_rows(level)
    for froc in evaluation.froc:
        common = {
            "level": "lesion", "class": froc.class_name, "method": "this model", "n": froc.lesions,
            "patients": froc.patients,
        }  # fmt: skip
        yield _row(common, "FROC score (CAMELYON16)", froc.score)
        for rate, at in zip(FALSE_POSITIVES_PER_SLIDE, froc.sensitivities, strict=True):
            yield _row(common, f"sensitivity at {rate:g} false positives per slide", at)
    if evaluation.staging:
        number = len(evaluation.staging.patients)
        common = {"level": "patient", "class": "pN stage", "method": "this model", "n": number, "patients": number}
        yield _row(common, "quadratic weighted kappa (CAMELYON17)", evaluation.staging.kappa)
    for difference in evaluation.differences:
        level = next(level for level in evaluation.levels if level.name == difference.level)
        common = {
            "level": difference.level, "class": difference.class_name,
            "method": f"this model minus {evaluation.against}", "n": level.items, "patients": level.patients,
        }  # fmt: skip
        yield _row(common, "AUROC difference", difference.bootstrap)
        if difference.delong:
            test = difference.delong
            yield {**common, "measure": "AUROC difference", "value": test.difference, "low": test.low,
                   "high": test.high, "interval": DELONG}  # fmt: skip
            yield {**common, "measure": "p-value of AUROC difference", "value": test.p_value, "interval": DELONG}


def _level_rows(level: Level) -> Iterator[dict[str, object]]:
    for result in level.classes:
        common = {
            "level": level.name, "class": result.class_name, "method": "this model", "n": level.items,
            "patients": level.patients,
        }  # fmt: skip
        for name, measured in result.measures.items():
            yield _row(common, name, measured)
        if result.delong:
            yield _delong_row(common, result.delong)


def _row(common: Mapping[str, object], measure: str, measured: Estimate) -> dict[str, object]:
    return {
        **common, "measure": measure, "value": measured.value, "low": measured.low, "high": measured.high,
        "interval": _method(measured), "resamples": measured.resamples,
    }  # fmt: skip


def _method(measured: Estimate) -> str:
    if measured.low is None:
        return ""
    return EXACT if measured.is_exact else BY_PATIENT


def _delong_row(common: Mapping[str, object], auc: DeLongAuc) -> dict[str, object]:
    return {**common, "measure": "AUROC", "value": auc.auc, "low": auc.low, "high": auc.high, "interval": DELONG}


def as_json(evaluation: Evaluation) -> dict[str, Any]:
    """Everything except the candidates, as JSON values; NaN and infinity become null."""
    content = {
        field.name: _plain(getattr(evaluation, field.name))
        for field in fields(evaluation)
        if field.name not in _NOT_IN_JSON
    }
    return {**content, "research_use": RESEARCH_USE}


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
