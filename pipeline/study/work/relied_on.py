"""Outputs that studies rely on: another run keeps them, or is refused before it replaces one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import select

from pipeline.errors import ReliedOnError
from pipeline.jobs.key import Key, differences
from pipeline.jobs.stage import Stage, StageReport
from pipeline.ledger.ledger import Ledger
from pipeline.ledger.opening import find_ledger
from pipeline.ledger.tables import task
from pipeline.project import Project
from pipeline.run_record import SlideOutcome
from pipeline.study.stages.embed import EMBED
from training.foundation.progress import Advance

_AT_ONCE = 500


@dataclass(frozen=True)
class ReliedOn(Stage):
    """A stage whose output a study has the hash of."""

    stage: Stage
    study_id: str
    other_settings: bool = False
    """Whether the settings are known to differ, also where they only decide how an output is shown."""

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.stage.name

    @property
    def slide_id(self) -> str:  # type: ignore[override]
        return self.stage.slide_id

    @property
    def task(self) -> str:
        return self.stage.task

    def key(self) -> Key:
        return self.stage.key()

    def made_from(self) -> Key | None:
        return self.stage.made_from()

    def outputs(self) -> tuple[Path, ...]:
        return self.stage.outputs()

    def run(self, advance: Advance) -> StageReport:
        """As the stage's, where there is no output now, or a damaged one: it is made again, and `gemslide study verify`
        compares it with the hash. A finished one is kept as it is, with the files beside it.

        Raises:
            ReliedOnError: the output would be replaced by another.
        """
        made_from = self.made_from()
        if made_from is None:
            return self.stage.run(advance)
        changed = differences(made_from, self.key()) or (("settings",) if self.other_settings else ())
        if changed:
            raise _refusal(self.slide_id, self.study_id, self.task, f" ({', '.join(changed)} differ)")
        if not all(path.exists() for path in self.outputs()):
            return self.stage.run(advance)
        message = f"kept: study {self.study_id} relies on it"
        return StageReport(
            SlideOutcome(self.slide_id, "skipped", message=message, output=str(self.outputs()[0])),
            outputs=self.outputs()[:1],
        )

    def crashed(self, how: str) -> str:
        return self.stage.crashed(how)


def keep_relied_on(stages: Sequence[Stage], project: Project) -> list[Stage]:
    """The stages, of which those on whose output a study of the project relies do not replace it.

    Raises:
        GemslideError: the project's ledger is away: nobody can say what studies rely on.
    """
    if not any(stage.replaces for stage in stages):
        return list(stages)
    found = find_ledger(project)
    if found is None:
        return list(stages)
    with found as ledger:
        slide_ids = sorted({slide_id for stage in stages for slide_id in stage.slides})
        studies = relying_studies(ledger, slide_ids)
    of_stages = ((stage, relying_study(stage.slides, _task_of(stage), studies)) for stage in stages)
    return [ReliedOn(stage, study_id) if stage.replaces and study_id else stage for stage, study_id in of_stages]


def relying_study(slides: Iterable[str], task_name: str, studies: Mapping[tuple[str, str], str]) -> str | None:
    """A study that relies on the output of a task for any of some slides.

    Args:
        studies: as `relying_studies` returns them.
    """
    return next((studies[slide_id, task_name] for slide_id in slides if (slide_id, task_name) in studies), None)


def _task_of(stage: Stage) -> str:
    """A stage's task in a study. An embedding's has the encoder's id, as its output does: encoders whose rows have one
    name after another keep their features side by side."""
    return EMBED.task(stage.outputs()[-1].name) if stage.name == EMBED.name else stage.task


def refuse_to_replace(project: Project, slide_id: str, task_name: str) -> None:
    """For who is about to replace an output of a slide, or a part of it, other than by a stage: the tissue mask, say.

    Args:
        task_name: as a study's tasks are called: "ingest" for the store with its mask.

    Raises:
        ReliedOnError: a study of the project relies on it. GemslideError: the ledger is away.
    """
    found = find_ledger(project)
    if found is None:
        return
    with found as ledger:
        study_id = relying_studies(ledger, [slide_id]).get((slide_id, task_name))
    if study_id is not None:
        raise _refusal(slide_id, study_id, task_name, "")


def _refusal(slide_id: str, study_id: str, task_name: str, differing: str) -> ReliedOnError:
    return ReliedOnError(
        f"slide {slide_id}: study {study_id} relies on its output of {task_name}, and this run would replace it by "
        f"another{differing}. Nothing was changed. To try other settings, work in another project (--project); to "
        f"change the study, edit its study.toml and record that with `gemslide study amend {study_id}`."
    )


def relying_studies(
    ledger: Ledger, slide_ids: Sequence[str], *, but: Collection[str] = ()
) -> dict[tuple[str, str], str]:
    """By slide and task, a study that has the hash of its output.

    Args:
        but: studies that are not meant.
    """
    found = {}
    with ledger.database.read() as connection:
        for start in range(0, len(slide_ids), _AT_ONCE):
            chosen = select(task.c.slide_id, task.c.stage, task.c.study_id).where(
                task.c.slide_id.in_(slide_ids[start : start + _AT_ONCE]),
                task.c.state == "done",
                task.c.output_sha256.is_not(None),
            )
            for slide_id, stage, study_id in connection.execute(chosen.order_by(task.c.study_id.desc())):
                if study_id not in but:
                    found[slide_id, stage] = study_id
    return found
