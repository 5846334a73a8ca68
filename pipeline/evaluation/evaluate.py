"""The evaluation workflow: stored predictions against a tile set's labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pipeline.config import EvaluateConfig
from pipeline.errors import BadRecipeError, EmptyTableError
from pipeline.evaluation.baselines import mean_colour, untrained_network
from pipeline.evaluation.metrics import Probabilities, confusion, tile_metrics
from pipeline.inference.predictor import Predictor
from pipeline.progress import Advance, no_bar
from pipeline.project import Project
from pipeline.store.overlays import Predictions, read_predictions
from pipeline.store.reader import StoreReader
from pipeline.tiles.dataset import TileDataset
from pipeline.tiles.table import read_table

THE_MODEL = "this model"
UNTRAINED = "untrained network"
MEAN_COLOUR = "mean colour (logistic regression)"


@dataclass(frozen=True)
class Evaluation:
    """Everything a report says."""

    model_id: str
    tile_set: str
    split: str
    threshold: float
    classes: tuple[str, ...]
    by_method: dict[str, dict[str, float | None]]
    """Metrics over all tiles: the model first, then the baselines."""
    by_slide: list[dict[str, Any]]
    by_scanner: list[dict[str, Any]]
    """Empty where all slides are from one scanner, or none is known."""
    confusion: NDArray[np.int64]
    note: str
    """What the tile set says of its labels; may be empty."""
    trained_on_this_split: bool
    """The model's training saw the same tiles and split, so its test tiles are new to it."""


def evaluate_model(
    project: Project,
    model_id: str,
    tile_set: str,
    config: EvaluateConfig,
    *,
    with_baselines: bool = True,
    advance: Advance = no_bar,
) -> Evaluation:
    """Compare a model's stored predictions with the labels of one split.

    Raises:
        EmptyTableError: no labelled tiles in that split. UnreadableError: a slide without predictions of this model.
        BadRecipeError: the model looks at other tiles or has other classes than the tile set.
    """
    package = project.model_path(model_id)
    predictor = Predictor.load(package)
    table = read_table(project.tile_table_path(tile_set))
    dataset = TileDataset(project.root, tile_set, predictor.class_names, stain=predictor.stain or "none")
    _check_same_tiles(predictor, dataset, tile_set)
    chosen = np.flatnonzero((dataset.splits == config.split) & (dataset.labels >= 0))
    if not len(chosen):
        raise EmptyTableError(
            f"tile set {tile_set!r} has no labelled tiles in split {config.split!r}. "
            "Give slides of that split annotations, or choose another --split."
        )
    rows = table.frame.iloc[chosen]
    labels = dataset.labels[chosen]
    stored = _stored_probabilities(project, model_id, rows)
    methods = {THE_MODEL: stored}
    if with_baselines:
        methods[UNTRAINED] = untrained_network(package, dataset, chosen, advance)
        methods[MEAN_COLOUR] = mean_colour(dataset, chosen)
    return Evaluation(
        model_id=model_id,
        tile_set=tile_set,
        split=config.split,
        threshold=config.threshold,
        classes=predictor.class_names,
        by_method={name: tile_metrics(labels, values, config.threshold) for name, values in methods.items()},
        by_slide=_by_slide(rows, labels, stored, config.threshold, predictor.class_names),
        by_scanner=by_scanner(rows, labels, stored, config.threshold, table.metadata.get("scanners", {})),
        confusion=confusion(labels, stored, config.threshold, predictor.class_names),
        note=str(table.metadata["settings"].get("note", "")),
        trained_on_this_split=predictor.split_sha256 == dataset.fingerprint,
    )


def _check_same_tiles(predictor: Predictor, dataset: TileDataset, tile_set: str) -> None:
    if (predictor.tile_px, predictor.mpp) != (dataset.tile_px, dataset.mpp):
        raise BadRecipeError(
            f"model {predictor.model_id} looks at {predictor.tile_px} px at {predictor.mpp} µm/px, tile set "
            f"{tile_set!r} has {dataset.tile_px} px at {dataset.mpp} µm/px. Make a tile set with the model's values."
        )


def _stored_probabilities(project: Project, model_id: str, rows: pd.DataFrame) -> Probabilities:
    parts = []
    for slide_id, group in rows.groupby("slide_id", sort=False):
        predictions = read_predictions(StoreReader(project.store_path(str(slide_id))).path, model_id)
        columns, lines = _cells(group, predictions)
        values = predictions.probabilities_cyx[:, lines, columns].T.astype(np.float32)
        if np.isnan(values).any():
            raise EmptyTableError(
                f"slide {slide_id}: model {model_id} did not look at {int(np.isnan(values).any(1).sum())} of "
                f"{len(values)} labelled tiles. Infer with the same min_tissue as the tile set."
            )
        parts.append(values)
    return np.concatenate(parts)


def _cells(group: pd.DataFrame, predictions: Predictions) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Columns and rows of the prediction cells that are exactly these tiles."""
    x_px0, y_px0 = group["x_px0"].to_numpy(np.int64), group["y_px0"].to_numpy(np.int64)
    columns, lines = (np.round(v / predictions.stride_px0).astype(np.int64) for v in (x_px0, y_px0))
    same = (columns * predictions.stride_px0 == x_px0) & (lines * predictions.stride_px0 == y_px0)
    same &= group["side_px0"].to_numpy(np.int64) == round(predictions.side_px0)
    _, num_lines, num_columns = predictions.probabilities_cyx.shape
    same &= (lines < num_lines) & (columns < num_columns)
    if not same.all():
        raise BadRecipeError(
            f"slide {group['slide_id'].iloc[0]}: {int((~same).sum())} of {len(same)} tiles of the tile set are not "
            f"among the squares that the model looked at (every {predictions.stride_px0:g} level-0 pixels). "
            "Evaluate on a tile set made without overlap."
        )
    return columns, lines


def _by_slide(
    rows: pd.DataFrame, labels: NDArray[np.int64], values: Probabilities, threshold: float, classes: Sequence[str]
) -> list[dict[str, Any]]:
    slides = rows["slide_id"].to_numpy(dtype=str)
    found = []
    for slide_id in dict.fromkeys(slides):
        here = slides == slide_id
        found.append(
            {
                "slide_id": slide_id,
                **tile_metrics(labels[here], values[here], threshold),
                **{f"labelled {name}": int((labels[here] == k).sum()) for k, name in enumerate(classes)},
            }
        )
    return found


def by_scanner(
    rows: pd.DataFrame, labels: NDArray[np.int64], values: Probabilities, threshold: float, scanners: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """A model that is good on one scanner need not be on another."""
    names = np.array([scanners.get(slide_id) or "not known" for slide_id in rows["slide_id"]])
    found = sorted(set(names))
    if len(found) < 2:
        return []
    return [
        {"scanner": name, **tile_metrics(labels[names == name], values[names == name], threshold)} for name in found
    ]
