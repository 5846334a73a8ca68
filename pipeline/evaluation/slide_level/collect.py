"""Features and predictions of the units that a slide-level model is tested on, and of those that it was trained on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.cohort.manifest import Cohort
from pipeline.embedding import UNTRAINED
from pipeline.evaluation.slide_level.chosen import Chosen
from pipeline.project import Project
from pipeline.slide_level import SlideFeatures, SlideModel, open_slide_features, read_bag
from pipeline.slide_level.attended import most_attended
from pipeline.slide_level.predict import check_tiles
from pipeline.slide_level.stored_bags import check_alike
from pipeline.store.layers.features import read_features
from training.foundation.errors import EmptyTableError
from training.foundation.progress import Advance
from training.foundation.words.counts import counted

MOST_TILES = 6
"""Tiles that are remembered of each unit: the most attended ones."""
Values = NDArray[np.float64]


@dataclass(frozen=True)
class AttendedTile:
    """A square of a slide, in level-0 pixels, and its share of the attention times the number of tiles."""

    slide_id: str
    x_px0: int
    y_px0: int
    side_px0: int
    attention: float


@dataclass(frozen=True)
class UnitFacts:
    """What is kept of a unit, whose tiles may be too many to keep."""

    mean_d: Values
    """Mean feature of its tiles."""
    values: Mapping[str, Values]
    """The model's predictions by target, as of `SlideModel.predict`."""
    tiles: tuple[AttendedTile, ...]
    num_tiles: int


@dataclass(frozen=True)
class Fold:
    """One model, its tested units, and those that it was trained on."""

    model: SlideModel
    tested: dict[str, UnitFacts]
    trained: dict[str, UnitFacts]
    """Without those that have no features."""
    untrained_means: dict[str, Values] | None
    """Mean features by an untrained encoder; None if a unit has none."""
    without_features: tuple[str, ...]
    """Tested units that are left out."""
    slides_left_out: tuple[str, ...]
    """Slides without features of the other tested units, which are predicted from their other slides."""
    chosen: Chosen


def encoder_name(model: SlideModel) -> str:
    """Name of the model's encoder; with `UNTRAINED` after it that of the same one with random weights."""
    return model.config.encoder.encoder_id[:-9]


def collect(
    model: SlideModel, project: Project, cohort: Cohort, chosen: Chosen, advance: Advance, *, with_trained: bool
) -> Fold:
    """Read all features, check their hashes, and predict.

    Args:
        with_trained: whether to read the units that the model was trained on.

    Raises:
        EmptyTableError: no tested unit has features. UnreadableError: damaged features, or not as they were written.
        WrongSlideError: features of another slide, of other weights, or of other tiles than the model's.
    """
    opened = {unit: _opened(unit, chosen, project, model) for unit in (*chosen.tested, *chosen.trained)}
    without = tuple(unit for unit in chosen.tested if not opened[unit])
    if len(without) == len(chosen.tested):
        raise EmptyTableError(
            f"{cohort.path}: none of {counted(len(without), f'tested {model.config.level}')} has features of encoder "
            f"{model.config.encoder.encoder_id}. Run `gemslide embed` first."
        )
    check_alike([slide for slides in opened.values() for slide in slides])
    tested = [unit for unit in chosen.tested if opened[unit]]
    trained = [unit for unit in chosen.trained if opened[unit]] if with_trained else []
    advance.expect(len({*tested, *trained}))
    facts: dict[str, UnitFacts] = {}
    for unit in dict.fromkeys((*tested, *trained)):
        facts[unit] = _facts(opened[unit], model, project)
        advance(1)
    return Fold(
        model=model,
        tested={unit: facts[unit] for unit in tested},
        trained={unit: facts[unit] for unit in trained},
        untrained_means=_untrained_means(list(facts), chosen, project, encoder_name(model) + UNTRAINED)
        if trained
        else None,
        without_features=without,
        slides_left_out=tuple(
            slide_id
            for unit in tested
            for slide_id in chosen.slides_of[unit]
            if slide_id not in {slide.slide_id for slide in opened[unit]}
        ),
        chosen=chosen,
    )


def _opened(unit: str, chosen: Chosen, project: Project, model: SlideModel) -> list[SlideFeatures]:
    """Features of a unit's slides; slides without are left out, as in training."""
    encoder = model.config.encoder
    found = (open_slide_features(project, slide_id, encoder.encoder_id) for slide_id in chosen.slides_of[unit])
    slides = [slide for slide in found if slide is not None]
    for slide in slides:
        check_tiles(slide, model)
    return slides


def _facts(slides: Sequence[SlideFeatures], model: SlideModel, project: Project) -> UnitFacts:
    weights = model.config.encoder.weights_sha256 or None
    mean_d = _mean_feature(slides, project, weights)
    prediction = model.predict(read_bag(slides))
    tiles = []
    firsts = [0, *np.cumsum([slide.stored.num_tiles for slide in slides]).tolist()]
    for index in most_attended(prediction.attention_n, most=MOST_TILES).tolist():
        at = int(np.searchsorted(firsts, index, side="right")) - 1
        stored = slides[at].stored
        x, y = stored.xy0_n2[index - firsts[at]].tolist()
        attention = float(prediction.attention_n[index]) * firsts[-1]
        tiles.append(AttendedTile(slides[at].slide_id, x, y, max(1, round(stored.side_px0)), round(attention, 4)))
    return UnitFacts(mean_d, prediction.values, tuple(tiles), firsts[-1])


def _mean_feature(slides: Sequence[SlideFeatures], project: Project, weights_sha256: str | None) -> Values:
    """Mean over all tiles, once the SHA-256 of each slide's features and positions is checked."""
    sums, number = np.zeros(slides[0].stored.dims), 0
    for slide in slides:
        store = project.stored_at(slide.slide_id)
        features = read_features(store, slide.stored.encoder_id, weights_sha256=weights_sha256)
        sums += features.values_nd.sum(0, dtype=np.float64)
        number += len(features.values_nd)
    return sums / number


def _untrained_means(units: Sequence[str], chosen: Chosen, project: Project, name: str) -> dict[str, Values] | None:
    means, everything = {}, []
    for unit in units:
        found = (open_slide_features(project, slide_id, name) for slide_id in chosen.slides_of[unit])
        slides = [slide for slide in found if slide is not None]
        if not slides:
            return None
        everything += slides
        means[unit] = _mean_feature(slides, project, None)
    check_alike(everything)
    return means
