"""Errors that are the input's fault, one class per code. Each states what is wrong, the values, where and what to do.

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


class UnreadableError(GemslideError):
    """A file, store or model package is missing, or damaged where it must not be, or no reader can open it."""

    code = "unreadable"


class DecompressionBombError(GemslideError):
    """The file claims far more pixels than it can hold."""

    code = "claims_too_much"


class BadRecipeError(GemslideError):
    """Settings or a recipe refer to something that does not exist or does not fit."""

    code = "bad_recipe"


class WrongWorldSizeError(GemslideError):
    """The number of ranks started is not the number the recipe needs."""

    code = "wrong_world_size"


class EmptyTableError(GemslideError):
    """There are no tiles to work on, or too few labelled ones to train on."""

    code = "empty_table"


class ImplausibleOutputError(GemslideError):
    """A model's output or loss cannot be true: not finite, or the same everywhere."""

    code = "insane_output"


class OutOfMemoryError(GemslideError):
    """A training step did not fit into memory."""

    code = "out_of_memory"


class BusyMachineError(GemslideError):
    """Other programs had the cores while a machine was measured."""

    code = "busy_machine"


class NotCalibratedError(GemslideError):
    """This machine has not been measured, or not for this network."""

    code = "not_calibrated"


BY_CODE: dict[str, type[GemslideError]] = {kind.code: kind for kind in GemslideError.__subclasses__()}
"""Errors of training and of all packages; the others are in `pipeline.errors`."""
