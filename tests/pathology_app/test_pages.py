"""Both pages run without a browser (streamlit's AppTest)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

import pathology_app
from pathology_app.tiles.cache import PROJECT_VARIABLE
from pipeline.units import RESEARCH_USE
from tests.pathology_app.small_project import MODEL_ID, SLIDE_ID, make_project

MAIN = Path(pathology_app.__file__).with_name("main.py")


def open_page(**query: str) -> AppTest:
    page = AppTest.from_file(str(MAIN), default_timeout=30)
    for name, value in query.items():
        page.query_params[name] = value
    page.run()
    assert not page.exception
    assert any(RESEARCH_USE in text.value for text in page.markdown)
    return page


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
@pytest.mark.parametrize(("slide_id", "said"), [("nobody", "not in this project"), ("../x", "not a name")])
def test_a_wrong_link_is_one_message(slide_id: str, said: str) -> None:
    page = open_page(slide=slide_id)

    (error,) = page.error
    assert said in error.value


def test_a_project_without_slides_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(PROJECT_VARIABLE, str(tmp_path))

    page = open_page()

    assert "gemslide ingest" in page.info[0].value


def test_damaged_hotspots_are_one_message(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    project = make_project(tmp_path)
    (project.result_dir(SLIDE_ID, MODEL_ID) / "hotspots.json").write_text("[")
    monkeypatch.setenv(PROJECT_VARIABLE, str(tmp_path))

    page = open_page(slide=SLIDE_ID)

    assert "hotspots.json is damaged" in page.error[0].value
    assert page.get("bidi_component")  # slide and prediction are shown all the same
    assert "hotspots.json is damaged" in open_page().error[0].value


def test_a_damaged_store_is_one_message(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    store = tmp_path / "slides" / "S-009.ome.zarr"
    store.mkdir(parents=True)
    (store / "zarr.json").write_text("{")
    monkeypatch.setenv(PROJECT_VARIABLE, str(tmp_path))

    assert "S-009" in open_page().error[0].value
    assert "not a gemslide store" in open_page(slide="S-009").error[0].value
