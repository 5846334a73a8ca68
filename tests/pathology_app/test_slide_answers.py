"""What slide-level models say of a slide or its patient, on the slide's page."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from pathology_app.project.served import PROJECT_VARIABLE
from pathology_app.slides.answers import answers_of
from pathology_app.slides.cache import SlideCache
from pipeline.project import Project
from tests.pathology_app.opened import open_page, viewer_data
from tests.pathology_app.small_attention import SLIDE_MODEL, TARGETS, write_small_attention
from tests.pathology_app.small_project import SLIDE_ID


@pytest.fixture
def copied(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    shutil.copytree(project.root, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("cache"))
    monkeypatch.setenv(PROJECT_VARIABLE, str(tmp_path))
    return Project(tmp_path)


def answer_of(project: Project) -> dict[str, Any]:
    (answer,) = answers_of(SlideCache(project), SLIDE_ID, [SLIDE_MODEL])
    assert answer["model"] == SLIDE_MODEL
    return answer


def test_every_kind_of_target_is_said_in_words_and_values(copied: Project) -> None:
    write_small_attention(copied, slides=(SLIDE_ID, "S-002"))

    answer = answer_of(copied)

    assert answer["about"] == "Patient P-17, 2 slides, 391 tiles"
    assert answer["rows"] == [
        ("grade (WHO)", "high 0.88 · low 0.12"),
        ("Größe mm", "12.25"),
        ("survival", "higher risk than half of the training patients; log of the relative risk 0.50"),
        ("relapse", "lower risk than half of the training patients; no event by 12: 0.90 · 36: 0.50"),
    ]


def test_a_model_of_single_slides_speaks_of_this_slide(copied: Project) -> None:
    write_small_attention(copied, level="slide", unit=SLIDE_ID, targets={"survival": TARGETS["survival"]})

    answer = answer_of(copied)

    assert answer["about"] == "This slide, 391 tiles"
    assert "than half of the training slides" in answer["rows"][0][1]


def test_without_a_median_no_risk_group_is_made_up(copied: Project) -> None:
    write_small_attention(copied, targets={"survival": {"kind": "cox", "values": [0.5], "median_risk": None}})

    assert answer_of(copied)["rows"] == [("survival", "log of the relative risk 0.50")]


@pytest.mark.parametrize(
    ("record", "why"),
    [
        ({"targets": {"a": {"kind": "class", "values": [0.5], "classes": ["x", "y"]}}}, "1 value for 2"),
        ({"targets": {"a": {"kind": "class", "values": [1.5, -0.5], "classes": ["x", "y"]}}}, "no probabilities"),
        ({"targets": {"a": {"kind": "discrete", "values": [2.0], "bounds": [3.0]}}}, "no probabilities"),
        ({"targets": {"a": {"kind": "number", "values": [float("nan")]}}}, "not readable"),
        ({"targets": {"a": {"kind": "cox", "values": [0.5], "group": "certain death"}}}, "group"),
        ({"targets": {"a": {"kind": "oracle", "values": [1.0]}}}, "kind"),
        ({"targets": {}}, "targets"),
        ({"model_id": "other-1"}, "not written with the attention"),
        ({"made_from": {"unit": "P-18"}}, "not written with the attention"),
        ({"tiles": 0}, "tiles"),
        ({"unit": "P" * 300}, "unit"),
    ],
)
def test_a_record_that_cannot_be_is_no_answer(copied: Project, record: dict[str, Any], why: str) -> None:
    write_small_attention(copied, **record)

    answer = answer_of(copied)

    assert answer["rows"] == []
    assert why in answer["about"]
    assert "gemslide infer" in answer["about"]


def test_an_answer_about_other_slides_than_the_attention_is_no_answer(copied: Project) -> None:
    write_small_attention(copied)
    path = copied.result_dir(SLIDE_ID, SLIDE_MODEL) / "slide_prediction.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"slides": [SLIDE_ID, "S-009"]}))

    assert "not written with the attention over this slide" in answer_of(copied)["about"]


@pytest.mark.parametrize("content", ["", "[]", "{", "[" * 100_000, None])
def test_a_missing_or_damaged_record_is_one_message_without_folders(copied: Project, content: str | None) -> None:
    write_small_attention(copied)
    path = copied.result_dir(SLIDE_ID, SLIDE_MODEL) / "slide_prediction.json"
    path.unlink() if content is None else path.write_text(content)

    answer = answer_of(copied)

    assert answer["rows"] == []
    assert "not readable" in answer["about"]
    assert str(copied.root) not in answer["about"]


def test_what_others_wrote_is_shown_as_text(copied: Project) -> None:
    targets = {"a\u202eb": {"kind": "class", "values": [0.75, 0.25], "classes": ["x\ny", "<b>"]}}
    write_small_attention(copied, unit="P\u202e1", targets=targets)

    answer = answer_of(copied)

    assert answer["about"].startswith("Patient P\ufffd1, 1 slide,")
    assert answer["rows"] == [("a\ufffdb", "x y 0.75 · <b> 0.25")]


def test_the_slide_s_page_has_the_answer_and_the_attention_beside_the_predictions(copied: Project) -> None:
    write_small_attention(copied)

    data = viewer_data(open_page(slide=SLIDE_ID))

    assert [answer["model"] for answer in data["answers"]] == [SLIDE_MODEL]
    assert [layer["kind"] for layer in data["layers"]] == ["prediction", "prediction", "attention", "tissue"]
    assert data["notes"] == []


def test_a_slide_with_slide_level_results_only_says_where_they_are(copied: Project) -> None:
    shutil.rmtree(copied.store_path(SLIDE_ID) / "predictions")
    write_small_attention(copied)

    page = open_page(slide=SLIDE_ID)

    assert "Slide-level models only: see the panel." in [caption.value for caption in page.caption]
    assert len(viewer_data(page)["answers"]) == 1
    beside = open_page(compare=f"{SLIDE_ID},{SLIDE_ID}~")
    (compare,) = [element for element in beside.get("bidi_component") if "compare" in element.proto.component_name]
    first, second = json.loads(compare.proto.json)["panes"]
    assert [layer["kind"] for layer in first["layers"]] == ["attention", "tissue"]
    assert [layer["kind"] for layer in second["layers"]] == ["tissue"], "the link asks for no model"
