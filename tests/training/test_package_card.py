"""A card states everything a user must know in plain text, and no foreign text becomes markup."""

from __future__ import annotations

import json
import re

import pytest

from tests.model_packages import read_config
from training.data.facts import DataFacts, SplitFacts
from training.packages.card import CardContent, card
from training.packages.config import read_package_config
from training.packages.intervals import Intervals
from training.packages.metrics import read_metrics

SECTIONS = ["What it is", "Intended use", "Data", "Metrics", "Limits", "How it was made"]


def content(**changes):
    split = SplitFacts(tiles=10, by_class={"a": 4, "b": 6}, slides=3, patients=2)
    known = {
        "model_id": "m-12345678", "network": "n", "class_names": ("a", "b"), "tile_px": 32, "mpp": 0.5, "stain": None,
        "data": DataFacts("t", {"train": split, "val": split}, {"Aperio GT450": 6}), "split_sha256": "0" * 64,
        "metrics": {"loss": 0.5, "accuracy": 0.75},
        "intervals": Intervals("patient", 2, {"accuracy": (0.5, 0.9)}), "trained": ["Somehow."],
    }  # fmt: skip
    return CardContent(**{**known, **changes})


def test_a_trained_model_s_card_has_its_data_its_figures_with_intervals_and_its_limits(small_project):
    package = small_project.project.model_path(small_project.model_id)
    text = (package / "card.md").read_text()

    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == SECTIONS
    assert "**Research use only. Not for diagnosis.**" in text
    assert "|  | train | val | test |" in text
    assert "| patients | 1 | 1 | 1 |" in text
    assert "Split: by patient; no patient is in several splits." in text
    assert read_config(package)["gemslide"]["split_sha256"] in text
    assert "No intervals: with 1 patient in the validation there is nothing to draw from." in text
    assert "patient-0" not in text  # no patient is named
    assert "small-train" not in text  # nor a slide


def test_a_trained_package_states_its_data_and_who_stands_behind_its_figures(small_project):
    package = small_project.project.model_path(small_project.model_id)

    data = read_package_config(package).gemslide.data.facts()

    assert data.tile_set == "small"
    assert {split: (facts.slides, facts.patients) for split, facts in data.by_split.items()} == {
        "train": (1, 1), "val": (1, 1), "test": (1, 1),
    }  # fmt: skip
    assert all(sum(facts.by_class.values()) == facts.tiles > 50 for facts in data.by_split.values())
    assert read_metrics(package / "metrics.json").intervals == Intervals("patient", 1, {})


def test_figures_stand_with_their_intervals_and_few_patients_with_a_warning():
    text = card(content())

    assert "| accuracy | 0.7500 | 0.5000 to 0.9000 |" in text
    assert "| loss (cross-entropy) | 0.5000 | – |" in text
    assert "1000 bootstrap draws by patient, from 2 patients. With fewer than 20 they are too narrow." in text


def test_what_is_not_known_is_said():
    unknown = SplitFacts(tiles=10, by_class={"a": 4, "b": 6}, slides=None, patients=None)

    text = card(content(data=DataFacts("t", {"train": unknown}, {}), intervals=None))
    assert "| patients | not known |" in text
    assert "a patient may be in several splits" in text
    assert "No intervals: the patients and slides of the tiles were not known." in text
    bare = card(content(data=None, metrics={}, intervals=None))
    assert "Training data: not known." in bare
    assert "Run `gemslide evaluate` on your own slides" in bare
    assert "The epoch was chosen" not in bare


def test_names_of_strangers_are_text_on_one_line():
    hostile = ("<script>alert(1)</script>", "a | b\n# Diagnosis: [click](http://x)")

    text = card(content(class_names=hostile, data=None))

    assert "<script>" not in text.replace("\\<", "")
    assert "\n# Diagnosis" not in text
    assert "\\[click\\]" in text


@pytest.mark.parametrize(
    "damaged",
    [
        "[]", "{", '{"accuracy": "0.9"}', '{"accuracy": NaN}', '{"intervals": 3}', '{"intervals": {"by": "patient"}}',
        '{"intervals": {"level": 0.95, "draws": 10, "by": "patient", "groups": 3, "accuracy": [0.1]}}',
    ],
)  # fmt: skip
def test_figures_that_cannot_be_are_refused(tmp_path, damaged):
    from training.foundation.errors import UnreadableError

    (tmp_path / "metrics.json").write_text(damaged)

    with pytest.raises(UnreadableError, match="not the figures of a model package"):
        read_metrics(tmp_path / "metrics.json")


def test_metrics_of_before_are_read(tmp_path):
    (tmp_path / "metrics.json").write_text(json.dumps({"loss": 0.5, "accuracy": 1}))

    read = read_metrics(tmp_path / "metrics.json")

    assert (dict(read.figures), read.intervals) == ({"loss": 0.5, "accuracy": 1.0}, None)
