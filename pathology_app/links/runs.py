"""What the link of the runs pages names; anybody can write one, so what can mean nothing is taken for nothing said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Self, get_args

from training.foundation.run_record import is_run_id

RUNS_PER_PAGE = 50
PAGE = "runs"
_MAX_DIGITS = 6

NewRun = Literal["ingest", "train", "infer", "study"]


@dataclass(frozen=True)
class RunLink:
    """Where somebody is in the runs pages.

    Attributes:
        run: the one that is shown; None: the list.
        new: the form that is shown; None: none.
        number: page of the list, from 1.
    """

    run: str | None = None
    new: NewRun | None = None
    number: int = 1

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Self:
        """What a link's query names."""
        run, digits = query.get("run", ""), query.get("p", "")
        is_number = digits.isascii() and digits.isdecimal() and len(digits) <= _MAX_DIGITS
        return cls(
            run=run if is_run_id(run) else None,
            new=next((each for each in get_args(NewRun) if each == query.get("new")), None),
            number=max(1, int(digits)) if is_number else 1,
        )

    def query(self) -> dict[str, str]:
        """The query that names it."""
        said = {"run": self.run, "new": self.new, "p": None if self.number == 1 else str(self.number)}
        return {"page": PAGE, **{name: value for name, value in said.items() if value is not None}}
