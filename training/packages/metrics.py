"""`metrics.json` of a model package: figures on the validation tiles, and their uncertainty."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from training.foundation.errors import UnreadableError
from training.foundation.reading import read_json_file
from training.packages.config import explained
from training.packages.intervals import Intervals

MAX_METRICS_BYTES = 2**20
INTERVALS = "intervals"

_Name = Annotated[str, Field(max_length=100)]
_Number = Annotated[float, Field(allow_inf_nan=False)]
_FIGURES: TypeAdapter[dict[str, float]] = TypeAdapter(
    Annotated[dict[_Name, _Number], Field(max_length=1000)], config=ConfigDict(strict=True)
)


class _Intervals(BaseModel):
    """The facts about the draws; every other key is a figure with its bounds."""

    model_config = ConfigDict(extra="allow", strict=True)
    __pydantic_extra__: dict[str, Annotated[list[_Number], Field(min_length=2, max_length=2)]]

    level: float
    draws: int
    by: Annotated[str, Field(max_length=20)]
    groups: Annotated[int, Field(ge=0)]


@dataclass(frozen=True)
class Metrics:
    """Figures, and the intervals of those that have one."""

    figures: Mapping[str, float]
    intervals: Intervals | None

    def as_json(self) -> bytes:
        """The file's content."""
        intervals = {INTERVALS: self.intervals.as_json()} if self.intervals else {}
        return json.dumps({**self.figures, **intervals}, indent=1).encode()


NO_METRICS = Metrics({}, None)


def read_metrics(path: Path) -> Metrics:
    """Read and check a metrics.json.

    Raises:
        UnreadableError: missing, or not as gemslide writes it.
    """
    try:
        raw = read_json_file(path, max_bytes=MAX_METRICS_BYTES)
        if not isinstance(raw, dict):
            raise ValueError("not a table")
        drawn = raw.pop(INTERVALS, None)
        figures = _FIGURES.validate_python(raw)
        checked = None if drawn is None else _Intervals.model_validate(drawn)
    except (ValidationError, OSError, ValueError) as error:
        reason = explained(error) if isinstance(error, ValidationError) else " ".join(str(error).split())
        raise UnreadableError(
            f"{path}: not the figures of a model package ({reason:.300}). Copy the package again."
        ) from error
    return Metrics(figures, _as_intervals(checked) if checked else None)


def _as_intervals(checked: _Intervals) -> Intervals:
    bounds = {name: (low, high) for name, (low, high) in checked.__pydantic_extra__.items()}
    return Intervals(checked.by, checked.groups, bounds)
