"""Errors a person reads. Each says what, the values, where it looked and what to do.

Plain subclasses with one message argument, so that they cross process pools. `code` is what run
records and `--json` lines carry (docs/store.md, "Run record").
"""

from training.foundation.errors import DiskFullError as DiskFullError
from training.foundation.errors import GemslideError as GemslideError
from training.foundation.errors import LockedError as LockedError


class MissingMppError(GemslideError):
    """The slide does not say how large a pixel is, and nobody else does."""

    code = "missing_mpp"


class UnreadableError(GemslideError):
    """No reader can open the file, or it is damaged where it must not be."""

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
    """Settings that do not exist or do not fit."""

    code = "bad_recipe"


class WrongWorldSizeError(GemslideError):
    """The number of ranks asked for does not fit the recipe."""

    code = "wrong_world_size"


class EmptyTableError(GemslideError):
    """There are no tiles to work on."""

    code = "empty_table"


class NoTissueError(GemslideError):
    """No tissue was found on the slide."""

    code = "no_tissue"


class ImplausibleOutputError(GemslideError):
    """A model's output cannot be true: not finite, or the same everywhere."""

    code = "insane_output"
