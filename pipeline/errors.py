"""Errors of slides, stores, cohorts and studies, one class per code; `training.foundation.errors` has the base.

Plain subclasses with one message argument, so that they cross process pools (docs/store.md, "Run record").
"""

from training.foundation.errors import BY_CODE as OF_EVERY_PACKAGE
from training.foundation.errors import GemslideError


class MissingMppError(GemslideError):
    """Neither the slide nor anything else states its pixel size."""

    code = "missing_mpp"


class NoSlidesError(GemslideError):
    """The project has no slides."""

    code = "no_slides"


class AmbiguousSeriesError(GemslideError):
    """A folder holds several slides, and the one to use was not named, or is not one of them."""

    code = "which_series"


class CorruptTileError(GemslideError):
    """A tile of the slide cannot be decoded."""

    code = "corrupt_tile"


class NotBrightfieldRgbError(GemslideError):
    """The image is not 8-bit brightfield RGB."""

    code = "not_brightfield_rgb"


class DamagedStoreError(GemslideError):
    """A store is not as ingest wrote it."""

    code = "damaged_store"


class ChangedSourceError(GemslideError):
    """The same slide_id refers to other bytes than before."""

    code = "changed_source"


class SourceGoneError(GemslideError):
    """The file that a linked store points at is not where it was."""

    code = "source_gone"


class UnverifiedLinkError(GemslideError):
    """A linked store has not been compared with its slide yet, and work may not rely on it."""

    code = "unverified_link"


class ReadOnlyStoreError(GemslideError):
    """A store is in a bucket, from which slides are only read."""

    code = "read_only_store"


class BadManifestError(GemslideError):
    """The cohort manifest (or another table of the user's) is invalid or inconsistent."""

    code = "bad_manifest"


class BadAnnotationError(GemslideError):
    """An annotation cannot be used as it is."""

    code = "bad_annotation"


class WrongSlideError(GemslideError):
    """A store or a prediction belongs to another slide than its name says."""

    code = "wrong_slide"


class LeakageError(GemslideError):
    """A patient would be on both sides of a split."""

    code = "leakage"


class IncompletePatientError(GemslideError):
    """A model predicts patients from all of their slides, and one of these ended without a result."""

    code = "incomplete_patient"


class NoTissueError(GemslideError):
    """No tissue was found on the slide."""

    code = "no_tissue"


class QcFailedError(GemslideError):
    """The slide failed quality control, or was never checked, and the settings require that it passes."""

    code = "qc_failed"


class ReliedOnError(GemslideError):
    """A study relies on an output that would be replaced by another."""

    code = "relied_on"


class OutsideFoldersError(GemslideError):
    """A file or a link leads out of the project, or of the folders that are allowed."""

    code = "outside_folders"


class NotRegisteredError(GemslideError):
    """No position of one slide on another can be trusted."""

    code = "not_registered"


class ProcessFailedError(GemslideError):
    """A process that gemslide started ended without an answer: it crashed, or was stopped."""

    code = "failed_process"


OF_SLIDES: tuple[type[GemslideError], ...] = (
    MissingMppError,
    NoSlidesError,
    AmbiguousSeriesError,
    CorruptTileError,
    NotBrightfieldRgbError,
    DamagedStoreError,
    ChangedSourceError,
    SourceGoneError,
    UnverifiedLinkError,
    ReadOnlyStoreError,
    BadManifestError,
    BadAnnotationError,
    WrongSlideError,
    LeakageError,
    IncompletePatientError,
    NoTissueError,
    QcFailedError,
    ReliedOnError,
    OutsideFoldersError,
    NotRegisteredError,
    ProcessFailedError,
)
BY_CODE: dict[str, type[GemslideError]] = OF_EVERY_PACKAGE | {kind.code: kind for kind in OF_SLIDES}
"""Error class to raise for the code that a process returned."""
