"""Impossible model output is never published; implausible output is published with a warning, or not, as configured."""

from __future__ import annotations

import pytest
import torch

from pipeline.inference.infer import infer_slide
from pipeline.inference.predictor import Predictor
from pipeline.settings.config import InferConfig
from tests.model_packages import read_config, write_config
from training.foundation.errors import ImplausibleOutputError

FAR = {
    "focus": {"median": 25.0, "spread": 0.1, "tiles": 90},
    "hues": {"median": [-0.043, 0.897], "spread": [0.014, 0.021], "tiles": 90},
}
"""Statistics of training tiles unlike the small project's: razor-sharp, bright pink."""


def published(own, small_project):
    return (own.store_path(small_project.test_slide) / "predictions" / small_project.model_id).exists()


@pytest.mark.parametrize(
    ("shares", "says"),
    [
        (lambda outputs: torch.full_like(outputs, torch.nan), "that are not numbers"),
        (lambda outputs: torch.full_like(outputs, 0.7), "whose sum misses 1 by up to 0.4"),
        (lambda outputs: torch.tensor([[1.5, -0.5]]).expand(len(outputs), 2), "values from -0.5 to 1.5"),
    ],
)
def test_numbers_that_are_no_probabilities_are_not_published(small_project, own, shares, says):
    predictor = Predictor.load(own.model_path(small_project.model_id))
    predictor._classifier.forward_only.finish = shares

    with pytest.raises(ImplausibleOutputError, match=says):
        infer_slide(small_project.test_slide, predictor, own, InferConfig())

    assert not published(own, small_project)


@pytest.mark.parametrize(
    ("fact", "name", "says"), [("focus", "focus", "its sharpness is far"), ("hues", "stain", "its colours are far")]
)
def test_a_slide_far_from_the_training_tiles_is_flagged_or_not_published_as_configured(
    small_project, own, fact, name, says
):
    package = own.model_path(small_project.model_id)
    config = read_config(package)
    config["gemslide"][fact] = FAR[fact]
    write_config(package, config)
    predictor = Predictor.load(package)

    with pytest.raises(ImplausibleOutputError, match=f'{says}.*leave "{name}" out of'):
        infer_slide(small_project.test_slide, predictor, own, InferConfig(refuse=(name,)))
    assert not published(own, small_project)

    flagged = infer_slide(small_project.test_slide, predictor, own, InferConfig())
    assert says in "; ".join(flagged.warnings)
    assert published(own, small_project)
