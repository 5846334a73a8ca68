"""Bodies of requests about registrations: every field is checked."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pathology_app.slides.cache import BadLinkError
from training.foundation.reading import parse_json

MAX_BYTES = 2**14
_MAX_PX0 = 2**31
_MAX_PAIRS = 50

_Coordinate = Annotated[float, Field(strict=True, ge=-_MAX_PX0, le=_MAX_PX0, allow_inf_nan=False)]
_Point = tuple[_Coordinate, _Coordinate]


class PointsBody(BaseModel):
    """{"points": [[[x, y], [x, y]], …]}: the same place on the first and on the second slide, in level-0 pixels."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    points: Annotated[list[tuple[_Point, _Point]], Field(max_length=_MAX_PAIRS)]


class _Empty(BaseModel):
    model_config = ConfigDict(extra="forbid")


def points_of(body: bytes) -> PointsBody:
    """Raises BadLinkError: not such a body."""
    try:
        return PointsBody.model_validate(parse_json(body))
    except (ValidationError, ValueError, RecursionError) as error:
        raise _bad(error) from error


def check_empty(body: bytes) -> None:
    """Raises BadLinkError: not the body {}."""
    try:
        _Empty.model_validate(parse_json(body))
    except (ValidationError, ValueError, RecursionError) as error:
        raise _bad(error) from error


def _bad(error: Exception) -> BadLinkError:
    return BadLinkError(f"the request body cannot be read: {' '.join(str(error).split()):.200}")
