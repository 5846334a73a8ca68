"""Link to the runs pages. Anybody can write one, so an invalid value counts as left out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Self, get_args

from pathology_app.links.link import Link, Query
from training.foundation.run_record import is_run_id

RUNS_PER_PAGE = 50
PAGE = "runs"

NewRun = Literal["ingest", "train", "infer", "study"]
NEW_RUNS: tuple[NewRun, ...] = get_args(NewRun)


@dataclass(frozen=True)
class RunLink(Link):
    """Position in the runs pages.

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
        """Parse a link's query."""
        values = Query(query)
        run = values.text("run")
        return cls(run if is_run_id(run) else None, values.one_of("new", NEW_RUNS), values.number("p") or 1)

    def query(self) -> dict[str, str]:
        """The query that names it."""
        values = {"run": self.run, "new": self.new, "p": None if self.number == 1 else str(self.number)}
        return {"page": PAGE, **{name: value for name, value in values.items() if value is not None}}
