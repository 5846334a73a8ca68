"""Columns of the tile table: type, range, meaning and version of each. Checks and docs/store.md derive from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd
import pyarrow as pa

from pipeline.store.format.metadata import MAX_LEVELS
from pipeline.store.layers.qc_scores import SCORE_NAMES
from pipeline.units import MAX_MPP, MIN_MPP

SPLITS = ("train", "val", "test")
MAX_SIDE_PX = 2**24
_ROUNDING = 1e-5
"""Amount by which a share may exceed 1: it is a sum of float32."""


@dataclass(frozen=True)
class Column:
    """One column.

    Attributes:
        since: first version of the table that has it.
        low, high: bounds of its numbers; None: it holds text.
        one_of: its allowed texts; (): not listed here.
        may_be_null: a row need not have a value.
        is_constant: all rows have the same value.
        is_optional: a table need not have the column.
    """

    name: str
    type: pa.DataType
    meaning: str
    since: int = 1
    low: float | None = None
    high: float | None = None
    one_of: tuple[str, ...] = ()
    may_be_null: bool = False
    is_constant: bool = False
    is_optional: bool = False

    @property
    def range(self) -> str:
        """Its range, for people to read."""
        if self.one_of:
            text = ", ".join(self.one_of)
        else:
            text = "" if self.low is None or self.high is None else f"{_number(self.low)} to {_number(self.high)}"
        extra = [*(["the same in all rows"] if self.is_constant else []), *(["or null"] if self.may_be_null else [])]
        return ", ".join(filter(None, [text, *extra]))

    def wrong(self, values: pd.Series[Any]) -> pd.Series[bool]:
        """Mask of the rows whose value is not allowed."""
        wrong = pd.Series(False, values.index)
        if self.low is not None and self.high is not None:
            wrong = ~values.between(self.low, self.high + (_ROUNDING if pa.types.is_floating(self.type) else 0))
        elif self.one_of:
            wrong = ~values.isin(self.one_of)
        if self.may_be_null:
            wrong &= values.notna()
        if self.is_constant:
            wrong |= values != values.iloc[0]
        return wrong


_TYPE_NAMES = {"float": "float32", "double": "float64"}
_TEXT, _PX, _SHARE = pa.string(), pa.int32(), pa.float32()
SCHEMA: tuple[Column, ...] = (
    Column("slide_id", _TEXT, "the tile's slide"),
    Column("patient_id", _TEXT, "the slide's patient; null counts the slide as one", may_be_null=True),
    Column("x_px0", _PX, "left edge, level-0 pixels; a multiple of the slide's stride", low=0, high=MAX_SIDE_PX),
    Column("y_px0", _PX, "top edge, level-0 pixels; a multiple of the slide's stride", low=0, high=MAX_SIDE_PX),
    Column("side_px0", _PX, "side, level-0 pixels; the same within a slide", low=1, high=MAX_SIDE_PX),
    Column("tile_px", _PX, "side of the finished tile", low=8, high=2**14, is_constant=True),
    Column("mpp", pa.float64(), "µm/px of the finished tile", low=MIN_MPP, high=MAX_MPP, is_constant=True),
    Column(
        "level", pa.int8(), 'level that the tile is read from; 0 with `read = "finest"`', low=0, high=MAX_LEVELS - 1
    ),
    Column("tissue", _SHARE, "share of the tile that is tissue", low=0, high=1),
    Column("label", _TEXT, "one of `class_order`; null: never trained on, still inferred", may_be_null=True),
    Column("label_fraction", _SHARE, "share of the tile that has its label", low=0, high=1),
    Column("split", _TEXT, "the patient's split", one_of=SPLITS, may_be_null=True),
    *(
        Column(
            f"qc_{name}",
            _SHARE,
            f"mean {name} score under the tile; null where the slide was not checked",
            low=0,
            high=1,
            may_be_null=True,
            is_optional=True,
        )
        for name in SCORE_NAMES
    ),
)
BY_NAME = {column.name: column for column in SCHEMA}
ARROW_SCHEMA = pa.schema([(column.name, column.type) for column in SCHEMA])


def differing_columns(found: pa.Schema) -> str:
    """Differences between a table's columns and those of a tile table; "" where they are as they must be.

    Optional columns may be missing; they come after the others, in any order.
    """
    required = [(column.name, column.type) for column in SCHEMA if not column.is_optional]
    optional = [(column.name, column.type) for column in SCHEMA if column.is_optional]
    columns = [(field.name, field.type) for field in found]
    own = columns[len(required) :]
    if columns[: len(required)] == required and all(column in optional for column in own) and len(set(own)) == len(own):
        return ""
    missing = [name for name, _ in required if name not in found.names]
    unknown = [name for name, _ in columns if name not in BY_NAME]
    other = [f"{name} as {type_}" for name, type_ in columns if name in BY_NAME and BY_NAME[name].type != type_]
    differences = {"missing": missing, "unknown": unknown, "of another type": other}
    return (
        "; ".join(f"{what}: {', '.join(names)}" for what, names in differences.items() if names) or "in another order"
    )


def as_markdown() -> str:
    """The table of docs/store.md."""
    return "\n".join(
        ["| column | type | range | meaning | since version |", "|---|---|---|---|---|", *map(_row, SCHEMA)]
    )


def _row(column: Column) -> str:
    type_ = _TYPE_NAMES.get(str(column.type), str(column.type))
    since = f"{column.since}, optional" if column.is_optional else str(column.since)
    return f"| {' | '.join((f'`{column.name}`', type_, column.range, column.meaning, since))} |"


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"
