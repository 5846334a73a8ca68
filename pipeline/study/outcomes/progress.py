"""Progress of a study: rate and time left, from the time that its tasks have taken so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import func, select

from pipeline.ledger.chain import utc_now
from pipeline.ledger.ledger import Counts, Ledger
from pipeline.ledger.tables import task


@dataclass(frozen=True)
class Progress:
    """Figures for people."""

    counts: Counts
    mean_s: Mapping[str, float]
    """Per finished task, by stage."""
    workers: int
    """Tasks that are held now."""
    left_s: float | None
    """At this pace; None if nothing is known yet, or nobody is working."""
    utc: str
    """Time of these figures."""

    @property
    def slides_per_hour(self) -> float | None:
        """Of all workers together, through all stages."""
        whole_s = sum(self.mean_s.values())
        return 3600 * self.workers / whole_s if whole_s and len(self.mean_s) == len(self.counts.tasks) else None


def progress_of(ledger: Ledger, study_id: str) -> Progress:
    """Progress of a study; raises BadManifestError if there is no such study."""
    utc, counts = utc_now(), ledger.counts(study_id)
    means = (
        select(task.c.stage, func.avg(task.c.seconds))
        .where(task.c.study_id == study_id, task.c.state == "done")
        .group_by(task.c.stage)
    )
    with ledger.database.read() as connection:
        mean_s = {stage: float(seconds) for stage, seconds in connection.execute(means) if seconds is not None}
    workers = sum(of_stage["leased"] for of_stage in counts.tasks.values())
    waiting = {stage: n["ready"] + n["blocked"] + n["leased"] for stage, n in counts.tasks.items()}
    is_known = all(stage in mean_s for stage, number in waiting.items() if number)
    left_s = sum(mean_s.get(stage, 0.0) * number for stage, number in waiting.items())
    return Progress(counts, mean_s, workers, left_s / workers if workers and is_known else None, utc)
