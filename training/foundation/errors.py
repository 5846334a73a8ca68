"""Every error that is the input's fault, one class per code. Each says what, the values, where it looked, what to do.

Plain subclasses with one message argument, so that they cross process pools. `code` is what run records and `--json`
lines carry (docs/store.md, "Run record").
"""


class GemslideError(Exception):
    """Base of every error that is the input's fault, not the program's."""

    code = "unreadable"


class LockedError(GemslideError):
    """Another process writes the same output."""

    code = "locked"


class DiskFullError(GemslideError):
    """The output could not be written: no space, or no permission."""

    code = "disk_full"


class MissingMppError(GemslideError):
    """The slide does not say how large a pixel is, and nobody else does."""

    code = "missing_mpp"


class UnreadableError(GemslideError):
    """A file, store or model package is missing, or damaged where it must not be, or no reader can open it."""

    code = "unreadable"


class NoSlidesError(GemslideError):
    """The project has no slides."""

    code = "no_slides"


class AmbiguousSeriesError(GemslideError):
    """A folder holds several slides, and the one that is meant was not named, or is none of them."""

    code = "which_series"


class CorruptTileError(GemslideError):
    """A tile of the slide cannot be decoded."""

    code = "corrupt_tile"


class NotBrightfieldRgbError(GemslideError):
    """The image is not 8-bit brightfield RGB."""

    code = "not_brightfield_rgb"


class DecompressionBombError(GemslideError):
    """The file claims far more pixels than it can hold."""

    code = "claims_too_much"


class DamagedStoreError(GemslideError):
    """A store is not as ingest wrote it."""

    code = "damaged_store"


class ChangedSourceError(GemslideError):
    """The same slide_id stands for other bytes than before."""

    code = "changed_source"


class BadManifestError(GemslideError):
    """The cohort manifest (or another table of the user's) does not hold together."""

    code = "bad_manifest"


class BadAnnotationError(GemslideError):
    """An annotation cannot be used as it is."""

    code = "bad_annotation"


class WrongSlideError(GemslideError):
    """A store or a prediction is that of another slide than its name says."""

    code = "wrong_slide"


class LeakageError(GemslideError):
    """A patient would stand on both sides of a split."""

    code = "leakage"


class BadRecipeError(GemslideError):
    """Settings or a recipe that ask for what does not exist or does not fit."""

    code = "bad_recipe"


class WrongWorldSizeError(GemslideError):
    """The number of ranks started is not the number the recipe needs."""

    code = "wrong_world_size"


class EmptyTableError(GemslideError):
    """There are no tiles to work on, or too few labelled ones to train on."""

    code = "empty_table"


class NoTissueError(GemslideError):
    """No tissue was found on the slide."""

    code = "no_tissue"


class ImplausibleOutputError(GemslideError):
    """A model's output or loss cannot be true: not finite, or the same everywhere."""

    code = "insane_output"


class OutOfMemoryError(GemslideError):
    """A training step did not fit into memory."""

    code = "out_of_memory"


class QcFailedError(GemslideError):
    """Quality control did not find the slide good, or never looked at it, and the settings ask for that."""

    code = "qc_failed"


class ProcessFailedError(GemslideError):
    """A process that gemslide started ended without an answer: it crashed, or was ended."""

    code = "failed_process"


BY_CODE: dict[str, type[GemslideError]] = {kind.code: kind for kind in GemslideError.__subclasses__()}
"""What a process answered with a code is raised as."""
