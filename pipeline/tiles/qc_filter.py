"""Quality scores of tiles, averaged from the slide's; tiles of poor quality may be left out."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pipeline.grid import mean_over
from pipeline.store.layers.qc_scores import SCORE_NAMES, Quality, read_quality
from pipeline.store.reading.reader import StoreReader
from training.foundation.errors import BadRecipeError


def tile_scores(reader: StoreReader, corners_xy0: NDArray[np.int64], side_px0: int) -> tuple[pd.DataFrame, bool]:
    """Columns `qc_<name>`, float32, one row per tile: the mean of the slide's scores under it, NaN where it has none.

    Args:
        corners_xy0: top left corners, int64 (tiles, 2), in level-0 pixels.

    Returns:
        the columns, and whether the slide was checked at all, of a stack at the focal plane of the tiles.

    Raises:
        UnreadableError: the slide's scores are damaged.
    """
    quality = read_quality(reader.path)
    if quality is not None and _plane_um(quality) != reader.plane_um:
        quality = None
    columns: dict[str, NDArray[np.float32]] = {}
    for name in SCORE_NAMES:
        if quality is None or name not in quality.names:
            columns[f"qc_{name}"] = np.full(len(corners_xy0), np.nan, np.float32)
            continue
        scores_yx = quality.scores_cyx[quality.names.index(name)].astype(np.float32)
        columns[f"qc_{name}"] = mean_over(corners_xy0, side_px0, scores_yx, quality.cell_px0)
    return pd.DataFrame(columns), quality is not None


def _plane_um(quality: Quality) -> object:
    made_from = quality.attributes.get("made_from")
    return made_from.get("plane_um") if isinstance(made_from, dict) else None


class UncheckedSlideError(BadRecipeError):
    """A slide has no quality scores although limits are set: an error of this slide, not of checked ones."""


def good_enough(
    scores: pd.DataFrame, limits: Mapping[str, float], *, checked: bool, slide_id: str
) -> NDArray[np.bool_]:
    """Mask of tiles with no score above its limit, bool (tiles,). Tiles that could not be judged are kept.

    Raises:
        UncheckedSlideError: limits are set, but the slide was never checked.
    """
    if limits and not checked:
        raise UncheckedSlideError(
            f"slide {slide_id}: [tile] max_qc = {dict(limits)} needs quality scores, and the slide has none (of "
            "a stack, none of the focal plane of the tiles). Run `gemslide qc`, or leave max_qc out."
        )
    kept = np.ones(len(scores), bool)
    for name, limit in limits.items():
        kept &= ~(scores[f"qc_{name}"].to_numpy() > limit)
    return kept
