"""Amendments: a protocol or a manifest changed after the study began, with a reason; what the change affects is done
again, and nothing else.

A slide stays in the study forever: it can be excluded with a reason, not removed. Models can be added after the
existing ones, not removed or replaced: that would be another study. So would be other encoders, also further ones.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, Row, insert, select, update

from pipeline.cohort.duplicates import refuse_changes
from pipeline.cohort.manifest import Cohort
from pipeline.errors import BadManifestError
from pipeline.ledger.chain import Change, append, canonical, digest, utc_now
from pipeline.ledger.ledger import NewSlide, enter_slides, found, study_change, task_row
from pipeline.ledger.reasons import check_reason
from pipeline.ledger.rows import AMENDED, ERASED, TASKS_ADDED, change_slide, change_task, new_tasks, slide_subject
from pipeline.ledger.tables import slide, study, task
from pipeline.study.protocol import PROTOCOL_FILE, Protocol, load_protocol, load_study_cohort
from pipeline.study.stages.predict import slides_sha256
from pipeline.study.stages.registry import due_state, kind_of, settings_of
from pipeline.study.work.patients import Patients
from pipeline.study.work.study import Study, doubts, names_of_sources, slides_of
from training.foundation.reading import parse_json

"""The action of an entry whose details have the earlier content of the changed sections (`earlier`)."""
_OVER = ("done", "ended")


def amend(before: Study, *, actor: str, why: str, warn: Callable[[str], None] = lambda said: None) -> Study:
    """Freeze the protocol and the manifest as they are now, and carry out what follows from the change.

    Args:
        warn: as in `begin_study`.

    Raises:
        BadManifestError: no reason, nothing has changed, a slide or a model is gone, or the readings' design changed.
        BadRecipeError, UnreadableError, ChangedSourceError, LeakageError: as when a study begins.
    """
    check_reason(why, "an amendment")
    protocol = load_protocol(before.folder / PROTOCOL_FILE)
    cohort, manifest_sha256 = load_study_cohort(protocol, before.folder)
    refuse_changes(cohort, before.project)
    for said in doubts(protocol, cohort, before.project):
        warn(said)
    _check(before, protocol, manifest_sha256)
    why = names_of_sources(cohort, before.project).cleaned(why)
    first = first_changed(before.protocol, protocol)
    after = replace(before, protocol=protocol, manifest_sha256=manifest_sha256, version=before.version + 1)
    with before.ledger.database.write() as connection:
        freeze(connection, after, cohort, actor=actor, why=why, first=first)
    return after


def freeze(connection: Connection, after: Study, cohort: Cohort, *, actor: str, why: str, first: int) -> None:
    """Record a study's new protocol and manifest, and carry out what follows from them, in this transaction.

    Args:
        first: position of the first stage to be done again.
    """
    row = found(connection, after.study_id)
    frozen = after.protocol.frozen()
    values = {
        "protocol": canonical(frozen),
        "protocol_sha256": digest(frozen),
        "manifest_sha256": after.manifest_sha256,
        "version": row.version + 1,
    }
    connection.execute(update(study).where(study.c.study_id == after.study_id).values(values))
    before = row.frozen()
    changed = changed_sections(before, json.loads(canonical(frozen)))
    earlier = {name: before.get(name) for name in changed}
    details = {"changed": changed, "earlier": earlier}
    change = study_change(connection, after.study_id, row, actor, AMENDED, why, **details)
    append(connection, after.study_id, [change])
    patients = Patients.of(after.protocol, cohort)
    _Amendment(connection, after.study_id, after.protocol.stages, patients, first, actor, why).carry_out(
        slides_of(cohort)
    )


def changed_sections(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Sections of the protocol that differ; for example, the signers."""
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def first_changed(before: Protocol, after: Protocol) -> int:
    """Position of the first stage that has to be done again; beyond the last one if none has."""
    kinds = [kind_of(task) for task in before.stages]
    differ = (at for at, kind in enumerate(kinds) if settings_of(before, kind) != settings_of(after, kind))
    return next(differ, len(kinds))


def _check(before: Study, protocol: Protocol, manifest_sha256: str) -> None:
    old, study_id = before.protocol, before.study_id
    if (protocol.frozen(), manifest_sha256) == (json.loads(canonical(old.frozen())), before.manifest_sha256):
        raise BadManifestError(f"study {study_id}: neither its protocol nor its manifest has changed.")
    if protocol.models[: len(old.models)] != old.models:
        raise BadManifestError(
            f"study {study_id}: its models are {', '.join(model.id for model in old.models)}, in this order and with "
            "these hashes. An amendment can add models after them; to use others, begin another study."
        )
    if protocol.encoders != old.encoders:
        raise BadManifestError(
            f"study {study_id}: its encoders ({', '.join(encoder.id for encoder in old.encoders) or 'none'}) and their "
            "hashes cannot be amended. To use others, begin another study."
        )
    if old.reading is not None and protocol.reading != old.reading:
        raise BadManifestError(f"study {study_id}: the design of its readings is frozen and cannot be amended.")


@dataclass(frozen=True)
class _Amendment:
    """One amendment, within its transaction.

    Args:
        patients: by the new manifest.
        first: position of the first stage to be done again.
    """

    connection: Connection
    study_id: str
    stages: Sequence[str]
    patients: Patients
    first: int
    actor: str
    why: str

    def carry_out(self, slides: Sequence[NewSlide]) -> None:
        known = {row.slide_id: row for row in self.connection.execute(_select_of_study(slide, self.study_id))}
        staying = {slide_id for slide_id, row in known.items() if row.code != ERASED}
        gone = sorted(staying - {new_slide.slide_id for new_slide in slides})
        if gone:
            raise BadManifestError(
                f"study {self.study_id}: no longer in the manifest: {', '.join(gone[:10])}. A slide stays in its "
                "study; give it a reason in the manifest's column `exclude`."
            )
        new = [new_slide for new_slide in slides if new_slide.slide_id not in known]
        enter_slides(self.connection, self.study_id, new, self.stages, self.actor, first_ordinal=len(known))
        tasks: dict[str, list[Row[Any]]] = {}
        for row in self.connection.execute(
            _select_of_study(task, self.study_id).order_by(task.c.slide_id, task.c.position)
        ):
            tasks.setdefault(row.slide_id, []).append(row)
        for new_slide in slides:
            if new_slide.slide_id in known:
                changes = self._amend_slide(known[new_slide.slide_id], tasks[new_slide.slide_id], new_slide)
                append(self.connection, self.study_id, changes)
        append(self.connection, self.study_id, self._predict_patients_again())

    def _predict_patients_again(self) -> list[Change]:
        """Predictions of patients rest on all of their slides: those of others than the patient has now, or of slides
        that are to be done again, are to be made again."""
        positions = [at for at, stage in enumerate(self.stages) if stage in self.patients.of_patients]
        if not positions:
            return []
        tasks: defaultdict[str, list[Row[Any]]] = defaultdict(list)
        for row in self.connection.execute(_select_of_study(task, self.study_id).order_by(task.c.position)):
            tasks[row.slide_id].append(row)
        slides = {row.slide_id: row for row in self.connection.execute(_select_of_study(slide, self.study_id))}
        changes = []
        for of_patient in self.patients.slides.values():
            first = next((at for at in positions if _must_predict(at, of_patient, tasks)), None)
            if first is None:
                continue
            for slide_id in of_patient:
                if tasks[slide_id][first].state == "ended":  # it has ended, before that or by it: `retry` is for that
                    continue
                changes += [self._set_task(old, "blocked") for old in tasks[slide_id][first:] if old.state != "blocked"]
                if slides[slide_id].state != "pending":
                    changes.append(self._set_slide(slides[slide_id], "pending"))
        return changes

    def _amend_slide(self, row: Row[Any], tasks: list[Row[Any]], new_slide: NewSlide) -> list[Change]:
        if new_slide.excluded:
            if row.state == "excluded":
                return self._add_tasks(row, len(tasks), is_over=True)
            ended = [self._set_task(old, "ended") for old in tasks if old.state not in _OVER]
            return [
                *ended,
                *self._add_tasks(row, len(tasks), is_over=True),
                self._set_slide(row, "excluded", message=new_slide.excluded),
            ]
        first = 0 if row.state == "excluded" else self.first
        ended_at = next((old.position for old in tasks if old.state == "ended"), len(tasks))
        if row.state not in ("done", "pending", "excluded") and first > ended_at:
            return self._add_tasks(row, len(tasks), is_over=True)  # it ended before what the amendment affects
        again = [old for old in tasks if old.position >= first]
        is_open = all(old.state == "done" for old in tasks if old.position < first)
        changes = [
            self._set_task(old, due_state(old.stage) if is_open and old.position == first else "blocked")
            for old in again
        ]
        changes += self._add_tasks(row, len(tasks), is_ready=is_open and not again)
        has_more = bool(again) or len(self.stages) > len(tasks)
        if has_more and row.state != "pending":
            changes.append(self._set_slide(row, "pending"))
        return changes

    def _add_tasks(self, row: Row[Any], at: int, *, is_over: bool = False, is_ready: bool = False) -> list[Change]:
        """Add tasks of stages that the study did not have."""
        added = list(enumerate(self.stages))[at:]
        if not added:
            return []
        new_slide = NewSlide(row.slide_id, excluded="over" if is_over else None, priority=row.priority)
        first = at if is_ready and due_state(self.stages[at]) == "ready" else None
        rows = [task_row(self.study_id, new_slide, row.ordinal, number, stage, first=first) for number, stage in added]
        self.connection.execute(insert(task), rows)
        details = {"tasks": new_tasks(rows)}
        return [Change(self.actor, TASKS_ADDED, slide_subject(row.slide_id), self.why, details=details)]

    def _set_task(self, row: Row[Any], state: str) -> Change:
        values: dict[str, Any] = {"state": state, "attempts": 0, "owner": None, "not_before": None}
        values |= {"code": None, "message": None, "output_sha256": None, "measures": None}
        if row.state == "leased":  # its present owner comes too late
            values["token"] = row.token + 1
        return change_task(self.connection, row, values, actor=self.actor, action="task amended", why=self.why)

    def _set_slide(self, row: Row[Any], state: str, *, message: str | None = None) -> Change:
        ended_utc = None if state == "pending" else utc_now()
        values = {"state": state, "code": None, "message": message, "ended_utc": ended_utc}
        return change_slide(self.connection, row, values, actor=self.actor, action="slide amended", why=self.why)


def _must_predict(position: int, of_patient: Sequence[str], tasks: Mapping[str, Sequence[Row[Any]]]) -> bool:
    """Whether a patient is to be predicted again: by a model that has done so, or is about to."""
    before, own = (tuple(tasks[slide_id][at] for slide_id in of_patient) for at in (position - 1, position))
    if any(row.state in ("ready", "leased") for row in own):
        return True
    done = [row for row in own if row.state == "done"]
    is_on_its_way = any(row.state in ("blocked", "ready", "leased") for row in before)
    return any(is_on_its_way or _rests_on(row) != slides_sha256(of_patient) for row in done)


def _rests_on(row: Row[Any]) -> object:
    """Hash of the slides that a prediction rests on; None where the ledger does not say."""
    try:
        measures = parse_json(row.measures or "")
    except ValueError:
        return None
    return measures.get("slides_sha256") if isinstance(measures, dict) else None


def _select_of_study(table: Any, study_id: str) -> Any:
    return select(table).where(table.c.study_id == study_id)
