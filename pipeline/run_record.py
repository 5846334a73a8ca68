"""What a run did: one JSON file per run, one line per slide.

A record names inputs by id and SHA-256, never by path: slide file names can name patients.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from pipeline.errors import GemslideError
from training.foundation.run_record import RecordFile, host, new_run_id, versions_of

Status = Literal["done", "skipped", "no_tissue", "qc_failed", "refused", "failed"]

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
    """How one slide ended: one `--json` line (`cli_output.Reporter`), one row of the closing table."""

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
        status: Status = "no_tissue" if error.code == "no_tissue" else "refused"
        return cls(slide_id, status, code=error.code, message=str(error), seconds=round(seconds, 3))


def versions() -> dict[str, str]:
    """Versions of everything that can change a result."""
    return versions_of(VERSIONED)


@dataclass
class RunRecord:
    """Collects what a verb did and writes it when the run ends, however it ends."""

    verb: str
    settings: dict[str, Any]
    run_id: str = field(default_factory=new_run_id)
    inputs: list[dict[str, str]] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    slides: list[SlideOutcome] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time of a block to `seconds[name]`."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = round(self.seconds.get(name, 0.0) + time.perf_counter() - start, 3)

    def as_dict(self, outcome: str) -> dict[str, Any]:
        return {
            "run_id": self.run_id,
            "verb": self.verb,
            "settings": self.settings,
            "inputs": self.inputs,
            "outputs": self.outputs,
            "versions": versions(),
            "host": host(),
            "seconds": self.seconds,
            "outcome": outcome,
            # Messages name files, and file names can name patients: the record keeps the code alone.
            "slides": [{k: v for k, v in asdict(s).items() if k != "message"} for s in self.slides],
            **self.extra,
        }


@contextmanager
def recorded(record: RunRecord, runs_dir: Path) -> Iterator[RunRecord]:
    """Write `record` to `runs_dir` at the end; an error is its outcome and goes on.

    Raises:
        DiskFullError: no room for it when the run begins, or no permission.
    """
    file, outcome = RecordFile(runs_dir, record.run_id), "interrupted"
    try:
        yield record
        outcome = "done" if all(slide.is_good for slide in record.slides) else "failed"
    except GemslideError as error:
        outcome = error.code
        raise
    finally:
        file.write(record.as_dict(outcome))
