"""Both pages run without a browser (streamlit's AppTest)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from pathology_app.text import as_markdown
from pathology_app.tiles.cache import PROJECT_VARIABLE
from pathology_app.worklist_rows import ROWS_PER_PAGE
from pipeline.project import Project
from tests.pathology_app.many_slides import make_many_slides
from tests.pathology_app.opened import open_page, said
from tests.pathology_app.small_project import MODEL_ID, SLIDE_ID


@pytest.mark.usefixtures("serve_project")
def test_the_worklist_shows_the_slides() -> None:
    page = open_page()

    (table,) = page.dataframe
    assert list(table.value["slide"]) == [SLIDE_ID]
    page.text_input[0].set_value("nothing like it").run()
    assert page.dataframe[0].value.empty


@pytest.mark.usefixtures("serve_project")
def test_a_link_opens_the_slide_in_the_viewer() -> None:
    page = open_page(slide=SLIDE_ID, model=MODEL_ID)

    (viewer,) = page.get("bidi_component")
    data = json.loads(viewer.proto.json)
    assert data["slide"]["slide_id"] == SLIDE_ID
    assert data["overlay"]["label"] == "P(positive)"
    assert len(data["hotspots"]) == 2
    assert list(page.dataframe[0].value["score"]) == pytest.approx([0.97, 0.81], abs=1e-3)


@pytest.mark.usefixtures("serve_project")
@pytest.mark.parametrize(("slide_id", "message"), [("nobody", "not in this project"), ("../x", "not a name")])
def test_a_wrong_link_is_one_message(slide_id: str, message: str) -> None:
    page = open_page(slide=slide_id)

    (error,) = page.error
    assert message in said(error)


def test_a_project_without_slides_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(PROJECT_VARIABLE, str(tmp_path))

    page = open_page()

    assert "gemslide ingest" in page.info[0].value


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch, project: Project, tmp_path: Path) -> Project:
    """A copy of the small project that the pages show, to be damaged."""
    shutil.copytree(project.root, tmp_path, dirs_exist_ok=True)
    monkeypatch.setenv(PROJECT_VARIABLE, str(tmp_path))
    return Project(tmp_path)


def test_damaged_hotspots_are_one_message_and_not_taken_for_none(copied: Project) -> None:
    (copied.result_dir(SLIDE_ID, MODEL_ID) / "hotspots.json").write_text("[")

    page = open_page(slide=SLIDE_ID)

    (error,) = page.error
    assert said(error).startswith(f"results/{MODEL_ID}/{SLIDE_ID}: hotspots.json is damaged")
    assert any(caption.value.startswith("Unknown: ") for caption in page.caption)
    assert page.get("bidi_component")


def test_missing_hotspots_are_not_taken_for_none(copied: Project) -> None:
    (copied.result_dir(SLIDE_ID, MODEL_ID) / "hotspots.json").unlink()
    assert any(caption.value.startswith("Unknown: ") for caption in open_page(slide=SLIDE_ID).caption)


def test_hotspots_that_were_looked_for_in_vain_are_none(copied: Project) -> None:
    (copied.result_dir(SLIDE_ID, MODEL_ID) / "hotspots.json").write_text("[]")
    assert any(caption.value == "None found." for caption in open_page(slide=SLIDE_ID).caption)


def test_damaged_predictions_leave_the_slide_to_be_seen(copied: Project) -> None:
    (copied.store_path(SLIDE_ID) / "predictions" / MODEL_ID / "zarr.json").write_text("{}")

    page = open_page(slide=SLIDE_ID)

    (error,) = page.error
    assert "no readable predictions" in said(error)
    (viewer,) = page.get("bidi_component")
    assert json.loads(viewer.proto.json)["overlay"] is None


def test_a_model_with_a_blank_in_its_name_is_one_message(copied: Project) -> None:
    predictions = copied.store_path(SLIDE_ID) / "predictions"
    shutil.copytree(predictions / MODEL_ID, predictions / "a model")

    (table,) = open_page().dataframe
    assert table.value["models"][0] == [MODEL_ID]
    page = open_page(slide=SLIDE_ID, model="a model")
    assert said(page.warning[0]) == f"No predictions of model 'a model' for this slide; showing {MODEL_ID}."
    assert page.get("bidi_component")


def test_a_damaged_store_is_a_row_beside_the_others(copied: Project) -> None:
    damaged = copied.store_path("S-009")
    damaged.mkdir()
    (damaged / "zarr.json").write_text("{")

    page = open_page()

    (table,) = page.dataframe
    assert list(table.value["slide"]) == [SLIDE_ID, "S-009"]
    assert table.value["note"][0] == ""
    assert "not a gemslide store" in table.value["note"][1]
    assert any(caption.value.startswith("2 of 2 slides") for caption in page.caption)
    assert "not a gemslide store" in said(open_page(slide="S-009").error[0])


def test_no_message_names_a_folder_outside_the_project(copied: Project) -> None:
    (copied.store_path(SLIDE_ID) / "zarr.json").write_text("{")
    root = str(copied.root)

    assert root not in open_page().dataframe[0].value["note"][0]
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
    assert list(page.dataframe[0].value["slide"]) == ["many-00050", "many-00051", "many-00052"]
    assert any(caption.value == "Page 2 of 2" for caption in page.caption)
    page.button(key="to_Previous").click().run()
    assert len(page.dataframe[0].value) == ROWS_PER_PAGE
    assert page.query_params["page"] == "1"
    page.text_input(key="filter").set_value("00007").run()
    assert list(page.dataframe[0].value["slide"]) == ["many-00007"]
