"""Link to the runs pages. Anybody can write one, so an invalid value counts as left out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Self, get_args

from pathology_app.links.link import Link, Query
from training.foundation.run_record import is_run_id
from training.foundation.words.names import is_name

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
        number: page of the list, or of the run's slides, from 1.
        again: the slide of the run that is to be tried again; None: none.
    """

    run: str | None = None
    new: NewRun | None = None
    number: int = 1
    again: str | None = None

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Self:
        """Parse a link's query."""
        values = Query(query)
        run, again = values.text("run"), values.text("again")
        return cls(
            run=run if is_run_id(run) else None,
            new=values.one_of("new", NEW_RUNS),
            number=values.number("p") or 1,
            again=again if is_name(again) else None,
        )

    def query(self) -> dict[str, str]:
        """The query that names it."""
        number = None if self.number == 1 else str(self.number)
        values = {"run": self.run, "new": self.new, "p": number, "again": self.again}
        return {"page": PAGE, **{name: value for name, value in values.items() if value is not None}}
