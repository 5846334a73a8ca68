"""All stages of a study, in the order of a slide's tasks. Another one is a file beside this one, and a line here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from pydantic import create_model

from pipeline.errors import DamagedStoreError
from pipeline.project import Project
from pipeline.settings.config import Settings
from pipeline.slide_level.package_level import Level
from pipeline.study.stages.embed import EMBED
from pipeline.study.stages.infer import INFER
from pipeline.study.stages.ingest import INGEST
from pipeline.study.stages.kind import Output, StageKind
from pipeline.study.stages.predict import PREDICT
from pipeline.study.stages.qc import QC
from training.foundation.settings import Section

KINDS: tuple[StageKind, ...] = (INGEST, QC, EMBED, INFER, PREDICT)

if TYPE_CHECKING:

    class StageSettings(Section):
        """Every stage's section of a protocol, with its defaults if it is left out."""

else:
    _SECTIONS = {kind.section: (kind.settings, kind.settings()) for kind in KINDS}
    StageSettings = create_model("StageSettings", __base__=Section, **_SECTIONS)


def settings_of(sections: StageSettings | Settings, kind: StageKind) -> Section:
    """A stage's section of a protocol, or of `gemslide.toml`."""
    section: Section = getattr(sections, kind.section)
    return section


def tasks_of(models: Sequence[tuple[str, Level]], encoder_ids: Sequence[str] = ()) -> tuple[str, ...]:
    """Names of a slide's tasks, in their order. Those of models come last, in the order of the models: an amendment can
    add some.

    Args:
        models: id and level of each.
    """
    before = (
        kind.task(network_id)
        for kind in KINDS
        if not kind.of_models
        for network_id in (encoder_ids if kind.of_encoders else ("",))
    )
    return (*before, *(model_task(model_id, level) for model_id, level in models))


def model_task(model_id: str, level: Level) -> str:
    """The name of a model's tasks."""
    return (INFER if level == "tile" else PREDICT).task(model_id)


def kind_of(task: str) -> StageKind:
    """The kind of a task. Raises DamagedStoreError: no stage has that name."""
    name = task.partition(" ")[0]
    for kind in KINDS:
        if kind.name == name:
            return kind
    raise DamagedStoreError(
        f"task {task!r:.60}: gemslide has no such stage: the ledger was changed or damaged. Restore it from a backup."
    )


def due_state(task: str) -> Literal["ready", "blocked"]:
    """State of a task to which its slide has come: it may be taken, or still waits for the patient's other slides."""
    return "blocked" if kind_of(task).joins else "ready"


def output_of(project: Project, slide_id: str, task: str) -> Output:
    """Output of a task."""
    return Output(project, slide_id, task.partition(" ")[2])


def output_sha256(project: Project, slide_id: str, task: str) -> str:
    """As `StageKind.output_sha256`."""
    return kind_of(task).output_sha256(output_of(project, slide_id, task))


def results_of_stage(project: Project, slide_id: str, task: str) -> dict[str, Any]:
    """As `StageKind.measures`."""
    return kind_of(task).measures(output_of(project, slide_id, task))
