"""Both pages run without a browser (streamlit's AppTest)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from pathology_app.html.text import as_markdown
from pathology_app.links.worklist import ROWS_PER_PAGE
from pathology_app.project.served import PROJECT_VARIABLE
from pipeline.project import Project
from tests.pathology_app.many_slides import make_many_slides
from tests.pathology_app.opened import hrefs, html_of, linked, open_page, viewer_data, visible_text
from tests.pathology_app.small_project import MODEL_ID, SLIDE_ID


def first_layer(data: dict[str, Any]) -> dict[str, Any]:
    (first,) = [layer for layer in data["layers"] if layer["is_first"]]
    return first


@pytest.mark.usefixtures("serve_project")
def test_the_worklist_shows_the_slides() -> None:
    page = open_page()

    assert linked(page) == [SLIDE_ID]
    assert "1 of 1 slide." in [caption.value for caption in page.caption]
    page = open_page(find="nothing like it")
    assert linked(page) == []
    assert "0 of 1 slide." in [caption.value for caption in page.caption]
    assert "No slide name contains all these words." in page.info[0].value


@pytest.mark.usefixtures("serve_project")
def test_a_row_of_the_worklist_leads_to_its_slide_and_back_to_the_same_list() -> None:
    page = open_page(find="s 001", predicted="1")
    assert page.checkbox[0].value
    assert hrefs(page) == [f"?find=s+001&predicted=1&slide={SLIDE_ID}"]

    page = open_page(find="s 001", predicted="1", slide=SLIDE_ID)
    page.button(key="back").click().run()
    assert page.query_params == {"find": "s 001", "predicted": "1"}
    page.checkbox[0].uncheck().run()
    assert page.query_params == {"find": "s 001"}


@pytest.mark.usefixtures("serve_project")
def test_the_page_that_checks_a_screen_leads_back_to_the_worklist() -> None:
    page = open_page(check="screen")
    assert "#### Check this screen" in [text.value for text in page.markdown]

    page.button(key="back").click().run()
    assert linked(page) == [SLIDE_ID]


@pytest.mark.usefixtures("serve_project")
def test_a_link_opens_the_slide_in_the_viewer() -> None:
    page = open_page(slide=SLIDE_ID, model=MODEL_ID)

    data = viewer_data(page)
    assert data["slide"]["slide_id"] == SLIDE_ID
    assert first_layer(data)["label"] == "P(positive)"
    assert len(data["hotspots"]) == 2
    assert [spot["score"] for spot in data["hotspots"]] == pytest.approx([0.97, 0.81], abs=1e-3)
    assert data["hotspots_url"] == f"/hotspots/{SLIDE_ID}/{MODEL_ID}.json"


@pytest.mark.usefixtures("serve_project")
def test_the_link_names_the_class_and_hotspots_are_those_of_the_class_shown() -> None:
    page = open_page(slide=SLIDE_ID)
    page.selectbox(key=f"class 1 of {MODEL_ID}").set_value(0).run()
    assert page.query_params["class"] == "negative"

    page = open_page(**{"slide": SLIDE_ID, "class": "negative"})
    assert first_layer(viewer_data(page))["label"] == "P(negative)"
    assert viewer_data(page)["hotspots"] == []
    assert viewer_data(page)["hotspots_note"] == "None of this class. 2 more of other classes."
    assert first_layer(viewer_data(open_page(**{"slide": SLIDE_ID, "class": "nobody's"})))["label"] == "P(positive)"


@pytest.mark.usefixtures("serve_project")
def test_the_way_back_says_nothing_of_the_slide() -> None:
    page = open_page(**{"slide": SLIDE_ID, "class": "negative", "at": "1,2,3", "overlay": "0.1,0.2,Turbo", "page": "1"})
    page.button(key="back").click().run()
    assert page.query_params == {"page": "1"}


@pytest.mark.usefixtures("serve_project")
@pytest.mark.parametrize(("slide_id", "message"), [("nobody", "not in this project"), ("../x", "not a name")])
def test_a_wrong_link_is_one_message(slide_id: str, message: str) -> None:
    page = open_page(slide=slide_id)

    (error,) = page.error
    assert message in visible_text(error)


def test_a_project_without_slides_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(PROJECT_VARIABLE, str(tmp_path))

    page = open_page()

    assert "gemslide ingest" in page.info[0].value


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch, project: Project, tmp_path: Path) -> Project:
    """Copy of the small project that the pages show, to be damaged."""
    shutil.copytree(project.root, tmp_path, dirs_exist_ok=True)
    monkeypatch.setenv(PROJECT_VARIABLE, str(tmp_path))
    return Project(tmp_path)


def test_damaged_hotspots_are_one_message_and_not_taken_for_none(copied: Project) -> None:
    (copied.result_dir(SLIDE_ID, MODEL_ID) / "hotspots.json").write_text("[")

    page = open_page(slide=SLIDE_ID)

    (error,) = page.error
    assert visible_text(error).startswith(f"results/{MODEL_ID}/{SLIDE_ID}: hotspots.json is damaged")
    assert viewer_data(page)["hotspots_note"].startswith("Unknown: ")


def test_missing_hotspots_are_not_taken_for_none(copied: Project) -> None:
    (copied.result_dir(SLIDE_ID, MODEL_ID) / "hotspots.json").unlink()
    assert viewer_data(open_page(slide=SLIDE_ID))["hotspots_note"].startswith("Unknown: ")


def test_hotspots_that_were_looked_for_in_vain_are_none(copied: Project) -> None:
    (copied.result_dir(SLIDE_ID, MODEL_ID) / "hotspots.json").write_text('{"threshold": 0.5, "hotspots": []}')
    assert viewer_data(open_page(slide=SLIDE_ID))["hotspots_note"] == "None found."


def test_damaged_predictions_leave_the_slide_to_be_seen(copied: Project) -> None:
    (copied.store_path(SLIDE_ID) / "predictions" / MODEL_ID / "zarr.json").write_text("{}")

    page = open_page(slide=SLIDE_ID)

    (error,) = page.error
    assert "no readable predictions" in visible_text(error)
    assert [layer["id"] for layer in viewer_data(page)["layers"]] == ["tissue"]


def test_a_model_with_a_blank_in_its_name_is_one_message(copied: Project) -> None:
    predictions = copied.store_path(SLIDE_ID) / "predictions"
    shutil.copytree(predictions / MODEL_ID, predictions / "a model")

    assert f'<td class="text gs-from-900">{MODEL_ID}</td>' in html_of(open_page())
    page = open_page(slide=SLIDE_ID, model="a model")
    assert visible_text(page.warning[0]) == f"No predictions of model 'a model' for this slide; showing {MODEL_ID}."
    assert viewer_data(page)


def test_a_damaged_store_is_a_row_beside_the_others(copied: Project) -> None:
    damaged = copied.store_path("S-009")
    damaged.mkdir()
    (damaged / "zarr.json").write_text("{")

    page = open_page()

    assert linked(page) == [SLIDE_ID, "S-009"]
    good, bad = html_of(page).split("</tr>")[1:3]
    assert "not a gemslide store" not in good
    assert "not a gemslide store" in bad
    assert any(caption.value.startswith("2 of 2 slides") for caption in page.caption)
    assert "not a gemslide store" in visible_text(open_page(slide="S-009").error[0])


def test_no_message_names_a_folder_outside_the_project(copied: Project) -> None:
    (copied.store_path(SLIDE_ID) / "zarr.json").write_text("{")
    root = str(copied.root)

    assert "not a gemslide store" in html_of(open_page())
    assert root not in html_of(open_page())
    assert root not in open_page(slide=SLIDE_ID).error[0].value
    shutil.rmtree(copied.slides_dir)
    assert root not in open_page().info[0].value


HOSTILE = "![x](http://127.0.0.1:9/leak.png) :red[r] $x$ :material/home: <img src=x>"


def test_names_and_classes_are_shown_as_text(copied: Project) -> None:
    """Every piece of Markdown that a hostile name reaches is escaped as a whole."""
    metadata = copied.store_path(SLIDE_ID) / "predictions" / MODEL_ID / "zarr.json"
    metadata.write_text(metadata.read_text().replace('"positive"', json.dumps(HOSTILE)))

    page = open_page(slide=SLIDE_ID, model=HOSTILE)

    drawn = [
        element.value for kind in ("markdown", "caption", "error", "warning", "info") for element in page.get(kind)
    ]
    hostile = [text for text in drawn if "leak" in text]
    assert hostile
    assert all(as_markdown(HOSTILE) in text for text in hostile)


def test_the_link_names_the_page_of_the_worklist(
    monkeypatch: pytest.MonkeyPatch, project: Project, tmp_path: Path
) -> None:
    make_many_slides(project, tmp_path, ROWS_PER_PAGE + 3)
    monkeypatch.setenv(PROJECT_VARIABLE, str(tmp_path))

    page = open_page(page="2")
    assert linked(page) == ["many-00050", "many-00051", "many-00052"]
    assert any(caption.value == "Page 2 of 2" for caption in page.caption)
    page.button(key="to_Previous").click().run()
    assert len(linked(page)) == ROWS_PER_PAGE
    assert page.query_params == {}
    assert linked(open_page(page="2", find="00007")) == ["many-00007"]
