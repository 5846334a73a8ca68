"""Nonsense from a model is never published; what is merely odd is published with a warning, or not, as configured."""

from __future__ import annotations

import pytest
import torch

from pipeline.config import InferConfig
from pipeline.errors import ImplausibleOutputError
from pipeline.inference.infer import infer_slide
from pipeline.inference.predictor import Predictor
from tests.model_packages import read_config, write_config

FAR = {
    "focus": {"median": 25.0, "spread": 0.1, "tiles": 90},
    "hues": {"median": [-0.043, 0.897], "spread": [0.014, 0.021], "tiles": 90},
}
"""Statistics of training tiles that are unlike the small project's: razor-sharp, bright pink."""


def published(own, road):
    return (own.store_path(road.test_slide) / "predictions" / road.model_id).exists()


@pytest.mark.parametrize(
    ("shares", "says"),
    [
        (lambda outputs: torch.full_like(outputs, torch.nan), "that are not numbers"),
        (lambda outputs: torch.full_like(outputs, 0.7), "whose sum misses 1 by up to 0.4"),
        (lambda outputs: torch.tensor([[1.5, -0.5]]).expand(len(outputs), 2), "shares from -0.5 to 1.5"),
    ],
)
def test_numbers_that_are_no_probabilities_are_not_published(road, own, shares, says):
    predictor = Predictor.load(own.model_path(road.model_id))
    predictor._classifier.forward_only.probabilities = shares

    with pytest.raises(ImplausibleOutputError, match=says):
        infer_slide(road.test_slide, predictor, own, InferConfig())

    assert not published(own, road)


@pytest.mark.parametrize(
    ("fact", "name", "says"), [("focus", "focus", "its sharpness is far"), ("hues", "stain", "its colours are far")]
)
def test_a_slide_far_from_the_training_tiles_is_flagged_or_not_published_as_configured(road, own, fact, name, says):
    package = own.model_path(road.model_id)
    config = read_config(package)
    config["gemslide"][fact] = FAR[fact]
    write_config(package, config)
    predictor = Predictor.load(package)

    with pytest.raises(ImplausibleOutputError, match=f'{says}.*leave "{name}" out of'):
        infer_slide(road.test_slide, predictor, own, InferConfig(refuse=(name,)))
    assert not published(own, road)

    flagged = infer_slide(road.test_slide, predictor, own, InferConfig())
    assert says in "; ".join(flagged.warnings)
    assert published(own, road)
