"""The end of the demonstration: a linear model on the features of the encoder that comes with gemslide.

The encoder takes larger tiles than the demonstration's network. Both are compared on the encoder's tiles, for which the
network has the mean of its probabilities over each of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pipeline.cohort.manifest import Cohort
from pipeline.embedding.embed import embed_slide
from pipeline.embedding.encoder import TileEncoder
from pipeline.embedding.rows import add_encoder, find_encoder, list_encoders, row_path
from pipeline.evaluation.probe.features import LabelledFeatures, labelled_features
from pipeline.evaluation.probe.logistic import Probe, fit_probe
from pipeline.evaluation.statistics.metrics import Probabilities, tile_metrics
from pipeline.grid import mean_over
from pipeline.project import Project
from pipeline.settings.config import EmbedConfig, EvaluateConfig, TileConfig
from pipeline.store.layers.overlays import read_predictions
from pipeline.tiles.tile import make_tile_table
from training.foundation.errors import EmptyTableError
from training.foundation.progress import bar
from training.foundation.words.class_order import positive_of_two
from training.foundation.words.counts import counted

ENCODER = "lite0"
THE_MODEL = "this model, mean over the tile"


@dataclass(frozen=True)
class ProbeResult:
    """A probe beside the demonstration's model, on the same tiles of the test slides."""

    encoder_id: str
    tile_um: float
    tiles: int
    training_tiles: int
    c: float
    by_method: dict[str, dict[str, float | None]]


def missing_encoder(project: Project, name: str = ENCODER) -> str | None:
    """Why the encoder cannot be used here, and what to install; None if it can."""
    described = next(row for row in list_encoders(project) if row["name"] == name)
    return None if described["present"] else str(described["missing"])


def probe_encoder(
    project: Project,
    cohort: Cohort,
    model_id: str,
    tiles: TileConfig,
    *,
    name: str = ENCODER,
    say: Callable[[str], None],
) -> ProbeResult:
    """Embed the cohort's slides, fit a probe on those that train, and test it beside a model.

    Args:
        model_id: of the model whose predictions are in the stores of the test slides.
        tiles: settings of the model's tile set, whose classes and labels are taken.
        name: of the encoder: the project's, or one that comes with gemslide.

    Raises:
        GemslideError: from any stage.
    """
    encoder = _embed(project, cohort, name)
    own_tiles = tiles.model_copy(update={"tile_px": encoder.tile_px, "mpp": encoder.mpp, "overlap_px": 0})
    table = make_tile_table(project, f"demo-{name}", own_tiles, cohort=cohort)
    train, test = (labelled_features(project, table, split, encoder.encoder_id) for split in ("train", "test"))
    say(f"fitting a linear probe of {name} on {counted(len(train.labels), 'training tile')}")
    probe = fit_probe(train.values_nd, train.labels, len(table.classes))
    of_model = _model_means(project, model_id, test)
    known = np.asarray(np.isfinite(of_model).all(1))
    if not known.any():
        raise EmptyTableError(f"model {model_id} has no predictions under the test tiles of encoder {name}.")
    return _compared(encoder, probe, test.part(known), of_model[known], table.classes)


def _embed(project: Project, cohort: Cohort, name: str) -> TileEncoder:
    """Add the encoder to the project unless it is there, and put its features of all slides into their stores."""
    if not row_path(name, project).is_file():
        add_encoder(name, project)
    encoder = TileEncoder.load(find_encoder(name, project))
    for entry in cohort.included:
        with bar(f"embed {entry.slide_id}") as advance:
            embed_slide(entry.slide_id, encoder, project, EmbedConfig(), advance=advance)
    return encoder


def _model_means(project: Project, model_id: str, test: LabelledFeatures) -> Probabilities:
    """Mean of a model's probabilities over each tile, (tiles, classes); NaN where it predicted nothing."""
    means = []
    for slide_id in np.unique(test.slide_ids):
        predictions = read_predictions(project.store_path(str(slide_id)), model_id)
        own = test.slide_ids == slide_id
        corners, side_px0 = test.xy0_n2[own], int(test.sides_px0[own][0])
        of_classes = [
            mean_over(corners, side_px0, values_yx.astype(np.float32), predictions.stride_px0)
            for values_yx in predictions.probabilities_cyx
        ]
        means.append(np.stack(of_classes, 1))
    return np.concatenate(means)


def _compared(
    encoder: TileEncoder, probe: Probe, test: LabelledFeatures, of_model: Probabilities, classes: tuple[str, ...]
) -> ProbeResult:
    positive, threshold = positive_of_two(classes), EvaluateConfig().threshold
    by_method = {THE_MODEL: of_model, f"{encoder.name} (linear probe)": probe.probabilities(test.values_nd)}
    return ProbeResult(
        encoder_id=encoder.encoder_id,
        tile_um=encoder.tile_px * encoder.mpp,
        tiles=len(test.labels),
        training_tiles=probe.num_tiles,
        c=probe.c,
        by_method={
            method: tile_metrics(test.labels, values, threshold, positive) for method, values in by_method.items()
        },
    )
