"""All stages of a study, in the order of a slide's tasks. Another one is a file beside this one, and a line here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pydantic import create_model

from pipeline.errors import DamagedStoreError
from pipeline.project import Project
from pipeline.settings.config import Settings
from pipeline.study.stages.embed import EMBED
from pipeline.study.stages.infer import INFER
from pipeline.study.stages.ingest import INGEST
from pipeline.study.stages.kind import Output, StageKind
from pipeline.study.stages.qc import QC
from training.foundation.settings import Section

KINDS: tuple[StageKind, ...] = (INGEST, QC, EMBED, INFER)

if TYPE_CHECKING:

    class StageSettings(Section):
        """Every stage's section of a protocol, by the stage's name, with its defaults if it is left out."""

else:
    _SECTIONS = {kind.name: (kind.settings, kind.settings()) for kind in KINDS}
    StageSettings = create_model("StageSettings", __base__=Section, **_SECTIONS)


def settings_of(sections: StageSettings | Settings, kind: StageKind) -> Section:
    """A stage's section of a protocol, or of `gemslide.toml`."""
    section: Section = getattr(sections, kind.name)
    return section


def tasks_of(model_ids: Sequence[str], encoder_ids: Sequence[str] = ()) -> tuple[str, ...]:
    """Names of a slide's tasks, in their order. Those of models come last: an amendment can add some."""

    def ids_of(kind: StageKind) -> Sequence[str]:
        return model_ids if kind.of_models else encoder_ids if kind.of_encoders else ("",)

    return tuple(kind.task(network_id) for kind in KINDS for network_id in ids_of(kind))


def kind_of(task: str) -> StageKind:
    """The kind of a task. Raises DamagedStoreError: no stage has that name."""
    name = task.partition(" ")[0]
    for kind in KINDS:
        if kind.name == name:
            return kind
    raise DamagedStoreError(
        f"task {task!r:.60}: gemslide has no such stage: the ledger was changed or damaged. Restore it from a backup."
    )


def output_of(project: Project, slide_id: str, task: str) -> Output:
    """Output of a task."""
    return Output(project, slide_id, task.partition(" ")[2])


def output_sha256(project: Project, slide_id: str, task: str) -> str:
    """As `StageKind.output_sha256`."""
    return kind_of(task).output_sha256(output_of(project, slide_id, task))


def results_of_stage(project: Project, slide_id: str, task: str) -> dict[str, Any]:
    """As `StageKind.measures`."""
    return kind_of(task).measures(output_of(project, slide_id, task))
