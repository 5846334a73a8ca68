"""Stored features of a tile set's labelled tiles."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pipeline.project import Project
from pipeline.slide_level.stored_bags import SlideFeatures, open_slide_features
from pipeline.tiles.table import TileTable
from training.foundation.errors import BadRecipeError, EmptyTableError, UnreadableError


@dataclass(frozen=True)
class LabelledFeatures:
    """Labelled tiles with their features, slide by slide in the order of their ids."""

    slide_ids: NDArray[np.str_]
    xy0_n2: NDArray[np.int64]
    """Top-left corners in level-0 pixels, (tiles, 2)."""
    sides_px0: NDArray[np.int64]
    values_nd: NDArray[np.float32]
    labels: NDArray[np.int64]
    """Index of each tile's class in the tile set's order."""

    def part(self, kept: NDArray[np.bool_]) -> LabelledFeatures:
        """Some of the tiles."""
        return LabelledFeatures(
            self.slide_ids[kept], self.xy0_n2[kept], self.sides_px0[kept], self.values_nd[kept], self.labels[kept]
        )


def labelled_features(project: Project, table: TileTable, split: str, encoder: str) -> LabelledFeatures:
    """Features of a split's labelled tiles; tiles that were not embedded are left out.

    Args:
        encoder: id, or name.

    Raises:
        EmptyTableError: no labelled tile has features. UnreadableError: a slide has no features, or damaged ones.
        BadRecipeError: the encoder takes tiles of another size.
    """
    frame = table.frame[(table.frame["split"] == split) & table.frame["label"].notna()]
    parts = [
        _of_slide(project, str(slide_id), rows, table.classes, encoder)
        for slide_id, rows in frame.groupby("slide_id", sort=True)
    ]
    if not sum(len(part.labels) for part in parts):
        raise EmptyTableError(
            f"no labelled tile of split {split!r} has features of encoder {encoder!r}. Make a tile set with the "
            "encoder's tile_px and mpp, without overlap, from annotated slides."
        )
    return LabelledFeatures(
        np.concatenate([part.slide_ids for part in parts]),
        np.concatenate([part.xy0_n2 for part in parts]),
        np.concatenate([part.sides_px0 for part in parts]),
        np.concatenate([part.values_nd for part in parts]),
        np.concatenate([part.labels for part in parts]),
    )


def _of_slide(
    project: Project, slide_id: str, rows: pd.DataFrame, classes: tuple[str, ...], encoder: str
) -> LabelledFeatures:
    slide = open_slide_features(project, slide_id, encoder)
    if slide is None:
        raise UnreadableError(
            f"slide {slide_id}: has no features of encoder {encoder!r}. Run `gemslide embed {encoder}` first."
        )
    _check_same_side(slide, rows)
    row_of = {(int(x), int(y)): row for row, (x, y) in enumerate(slide.stored.xy0_n2)}
    corners = rows[["x_px0", "y_px0"]].to_numpy(np.int64)
    found = np.array([row_of.get((int(x), int(y)), -1) for x, y in corners], np.int64)
    kept = found >= 0
    labels = np.array([classes.index(label) for label in rows["label"]], np.int64)
    values_nd = slide.stored.read_rows(slice(None))[found[kept]].astype(np.float32)
    sides_px0 = rows["side_px0"].to_numpy(np.int64)
    return LabelledFeatures(np.full(len(values_nd), slide_id), corners[kept], sides_px0[kept], values_nd, labels[kept])


def _check_same_side(slide: SlideFeatures, rows: pd.DataFrame) -> None:
    side_px0 = float(rows["side_px0"].iloc[0])
    if abs(side_px0 - slide.stored.side_px0) > 0.5:
        raise BadRecipeError(
            f"slide {slide.slide_id}: the tile set's tiles are {side_px0:g} level-0 pixels wide, but the features of "
            f"{slide.stored.encoder_id} are of tiles {slide.stored.side_px0:g} wide. Make a tile set with the "
            "encoder's tile_px and mpp."
        )
