"""Record of a run over slides: one JSON file per run, one line per slide."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from training.foundation import run_record as foundation
from training.foundation.errors import GemslideError
from training.foundation.run_record import recorded as recorded
from training.foundation.run_record import versions_of

Status = Literal["done", "skipped", "no_tissue", "qc_failed", "refused", "unreadable", "failed"]
"""Final status of a slide, exactly one. Refused: as it is, it cannot be processed with these settings or this model.
Unreadable: its file or store is missing or damaged. Failed: our program is at fault, not the slide."""

_STATUS_OF: dict[str, Status] = {
    "no_tissue": "no_tissue",
    "qc_failed": "qc_failed",
    "unreadable": "unreadable",
    "corrupt_tile": "unreadable",
    "damaged_store": "unreadable",
    "failed_process": "failed",
}
"""By error code; all other codes are refusals."""

INTERNAL_ERROR = "internal_error"
"""Code of a slide on which our own code failed: no error class has it, since nothing raises it on purpose."""

VERSIONED = (
    "gemslide",
    "torch",
    "numpy",
    "zarr",
    "tifffile",
    "imagecodecs",
    "openslide-python",
    "openslide-bin",
    "wsidicom",
    "pydicom",
    "scikit-image",
    "opencv-python-headless",
)


@dataclass(frozen=True)
class SlideOutcome:
    """Outcome of one slide: one `--json` line (`cli_output.Reporter`), one row of the closing table."""

    slide_id: str
    status: Status
    code: str | None = None
    message: str = ""
    output: str | None = None
    seconds: float = 0.0

    @property
    def is_good(self) -> bool:
        return self.status in ("done", "skipped")

    @classmethod
    def from_error(cls, slide_id: str, error: GemslideError, seconds: float) -> SlideOutcome:
        return cls(
            slide_id,
            _STATUS_OF.get(error.code, "refused"),
            code=error.code,
            message=str(error),
            seconds=round(seconds, 3),
        )

    @classmethod
    def from_defect(cls, slide_id: str, error: Exception, seconds: float) -> SlideOutcome:
        """The outcome for an unexpected exception."""
        return cls(
            slide_id,
            "failed",
            code=INTERNAL_ERROR,
            message=f"slide {slide_id}: gemslide itself failed ({type(error).__name__}: {error!s:.300}). The slide may "
            "be good. What was finished is kept. Please report this, with the traceback above.",
            seconds=round(seconds, 3),
        )


def versions() -> dict[str, str]:
    """Versions of everything that can change a result."""
    return versions_of(VERSIONED)


@dataclass
class RunRecord(foundation.RunRecord):
    """A run over slides, with the outcome of each in its record."""

    versioned: tuple[str, ...] = VERSIONED
    slides: list[SlideOutcome] = field(default_factory=list)

    def outcome(self) -> str:
        return "done" if all(slide.is_good for slide in self.slides) else "failed"

    def as_dict(self, outcome: str) -> dict[str, Any]:
        # Messages name files, and file names can name patients: the record keeps only the code.
        slides = [{k: v for k, v in asdict(s).items() if k != "message"} for s in self.slides]
        return {**super().as_dict(outcome), "slides": slides}
