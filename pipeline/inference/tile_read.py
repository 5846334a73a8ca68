"""The level that inference reads tiles from: that of the model's training tiles, unless another is allowed."""

from __future__ import annotations

from pipeline.inference.predictor import Predictor
from pipeline.inference.results.plausibility import Oddity
from pipeline.settings.config import InferConfig
from training.foundation.errors import BadRecipeError
from training.foundation.tile_read import UNSTATED, TileRead

OTHER_READ = "read"
"""Name of the oddity."""


def read_for(predictor: Predictor, config: InferConfig) -> TileRead:
    """Rule for the level that tiles are read from: `[infer] read`, else the rule of the model's training tiles.

    Raises:
        BadRecipeError: the two differ, and `[infer] allow_other_read` is not set.
    """
    read = config.read or predictor.read or UNSTATED
    if _differ(predictor, read) and not config.allow_other_read:
        raise BadRecipeError(
            f'[infer] read = "{read}", but model {predictor.model_id} was trained on tiles with read = '
            f'"{predictor.read}": different pixels give different probabilities. Leave `read` out of the [infer] '
            "section, or set allow_other_read = true there: the results will then carry a note."
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
            f'its tiles were read with read = "{read}", the model\'s training tiles with "{predictor.read}" '
            "([infer] allow_other_read is set): probabilities differ from those with the model's own setting",
        )
    ]


def _differ(predictor: Predictor, read: TileRead) -> bool:
    return predictor.read is not None and predictor.read != read
