"""The level that inference reads tiles from: that of the model's training tiles, unless somebody allows another."""

from __future__ import annotations

from pipeline.inference.predictor import Predictor
from pipeline.inference.results.plausibility import Oddity
from pipeline.settings.config import InferConfig
from training.foundation.errors import BadRecipeError
from training.foundation.tile_read import UNSTATED, TileRead

OTHER_READ = "read"
"""Name of the oddity."""


def read_for(predictor: Predictor, config: InferConfig) -> TileRead:
    """Rule for the level that tiles are read from: as `[infer] read` says, else as for the model's training tiles.

    Raises:
        BadRecipeError: the two differ, and `[infer] allow_other_read` is not set.
    """
    read = config.read or predictor.read or UNSTATED
    if _differ(predictor, read) and not config.allow_other_read:
        raise BadRecipeError(
            f'[infer] read = "{read}", but model {predictor.model_id} was trained on tiles with read = '
            f'"{predictor.read}": on other pixels it gives other probabilities. Leave `read` out of the [infer] '
            "section, or set allow_other_read = true there: then it is done, and the results say so."
        )
    return read


def other_read(predictor: Predictor, config: InferConfig) -> list[Oddity]:
    """A note for the results where tiles are read from another level than the model's training tiles were."""
    read = read_for(predictor, config)
    if not _differ(predictor, read):
        return []
    return [
        Oddity(
            OTHER_READ,
            f'its tiles were read with read = "{read}", those that the model was trained on with "{predictor.read}" '
            "([infer] allow_other_read is set): probabilities differ from those of the model's own way",
        )
    ]


def _differ(predictor: Predictor, read: TileRead) -> bool:
    return predictor.read is not None and predictor.read != read
