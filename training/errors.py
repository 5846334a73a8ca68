"""Errors that tell a person what is wrong with a training run and what to do about it."""

from training.foundation.errors import GemslideError


class TrainingError(GemslideError):
    """Base: each subclass has the `code` that run records and `--json` lines carry."""

    code = "bad_recipe"


class BadRecipeError(TrainingError):
    """The recipe asks for something that does not exist or does not fit."""

    code = "bad_recipe"


class WrongWorldSizeError(TrainingError):
    """The number of ranks started is not the number the recipe needs."""

    code = "wrong_world_size"


class DivergedError(TrainingError):
    """The loss is no longer a number."""

    code = "insane_output"


class EmptyTableError(TrainingError):
    """There are too few labelled tiles to train on."""

    code = "empty_table"


class UnreadableError(TrainingError):
    """A model package is missing, incomplete or damaged."""

    code = "unreadable"
