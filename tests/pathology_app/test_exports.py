"""Results and heat maps over HTTP: contents, recipients and file names."""

from __future__ import annotations

import io
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pathology_app.app_pages.slide.exports import exports_of
from pathology_app.people.person import Person, Role
from pathology_app.project.ledger import close_study_ledgers
from pathology_app.routes import declared as declared_routes
from pathology_app.slides.cache import SlideCache
from pathology_app.slides.index.facts import read_facts
from pathology_app.tiles import exports
from pipeline.export.csv.predictions import write_csv
from pipeline.export.qupath.collection import write_collection
from pipeline.inference import write_results
from pipeline.project import Project
from pipeline.settings.config import InferConfig
from pipeline.settings.site import LEDGER_VARIABLE
from tests.pathology_app.routes_in_process import get
from tests.pathology_app.small_project import MODEL_ID, SLIDE_ID, small_predictions
from tests.pathology_app.small_reading import make_reading_study
from training.foundation.errors import UnreadableError

READER = Person("ada", frozenset({Role.READER}))
URL = f"/exports/{SLIDE_ID}/{MODEL_ID}"


@pytest.fixture
def copied(project: Project, tmp_path: Path) -> SlideCache:
    shutil.copytree(project.root, tmp_path, dirs_exist_ok=True)
    return SlideCache(Project(tmp_path))


def test_a_table_that_inference_did_not_write_is_made_of_the_stored_probabilities(
    cache: SlideCache, tmp_path: Path
) -> None:
    response = get(cache, f"{URL}/predictions.csv")

    write_csv(tmp_path / "own.csv", SLIDE_ID, small_predictions())
    assert response.content == (tmp_path / "own.csv").read_bytes()
    assert response.headers["content-disposition"] == (f'attachment; filename="{SLIDE_ID}_{MODEL_ID}_predictions.csv"')
    assert response.headers["cache-control"] == "no-store"
    features = json.loads(get(cache, f"{URL}/predictions.geojson").content)["features"]
    assert len(features) == response.content.count(b"\n") - 1


def test_the_file_that_inference_wrote_is_sent_as_it_is(copied: SlideCache) -> None:
    contours = copied.project.result_dir(SLIDE_ID, MODEL_ID) / "contours.geojson"
    write_collection(contours, [])

    assert get(copied, f"{URL}/contours.geojson").content == contours.read_bytes()
    assert get(copied, f"{URL}/hotspots.json").json()["hotspots"][0]["class"] == "positive"


@pytest.mark.parametrize("name", ["hotspots.json", "predictions.csv", "predictions.geojson", "contours.geojson"])
def test_a_file_of_another_slide_is_neither_sent_nor_shown(copied: SlideCache, name: str) -> None:
    reader = copied.slide(SLIDE_ID).reader
    stored = copied.predictions(SLIDE_ID, MODEL_ID).predictions
    other = replace(stored, probabilities_cyx=np.ascontiguousarray(stored.probabilities_cyx[:, ::-1, ::-1]))
    folder = copied.project.result_dir(SLIDE_ID, MODEL_ID)
    write_results(reader, stored, folder, InferConfig(formats=("csv", "geojson", "contours")))
    assert get(copied, f"{URL}/{name}").status_code == 200
    assert copied.hotspots(SLIDE_ID, MODEL_ID)
    (folder / name).unlink()
    elsewhere = folder.with_name("elsewhere")
    elsewhere.mkdir()
    write_results(reader, other, elsewhere, InferConfig(formats=("csv", "geojson", "contours")))
    shutil.copy(elsewhere / name, folder / name)

    response = get(copied, f"{URL}/{name}")

    assert (response.status_code, response.json()["code"]) == (500, "unreadable")
    assert f"{name} of model {MODEL_ID} for slide {SLIDE_ID}: is not of these predictions: " in response.text
    if name == "hotspots.json":
        with pytest.raises(UnreadableError, match="is not of these predictions: hotspot 1 has a score of"):
            copied.hotspots(SLIDE_ID, MODEL_ID)
        assert "is not of these predictions" in read_facts(copied, SLIDE_ID).note


def test_of_a_link_that_leads_to_itself_the_table_is_made_of_what_is_stored(copied: SlideCache) -> None:
    written = copied.project.result_dir(SLIDE_ID, MODEL_ID) / "predictions.csv"
    written.unlink(missing_ok=True)
    written.symlink_to(written)

    assert get(copied, f"{URL}/predictions.csv").status_code == 200


def test_a_link_out_of_the_results_is_not_followed(
    copied: SlideCache, tmp_path_factory: pytest.TempPathFactory
) -> None:
    secret = tmp_path_factory.mktemp("elsewhere") / "secret"
    secret.write_text("secret")
    folder = copied.project.result_dir(SLIDE_ID, MODEL_ID)
    (folder / "contours.geojson").symlink_to(secret)
    (folder / "predictions.csv").symlink_to(secret)

    assert get(copied, f"{URL}/contours.geojson").status_code == 404
    assert get(copied, f"{URL}/predictions.csv").text.startswith("slide_id,")


def test_who_may_not_export_gets_nothing(cache: SlideCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exports, "person_of", lambda _: READER)

    response = get(cache, f"{URL}/predictions.csv")

    assert response.status_code == 403
    assert response.json()["code"] == "forbidden"
    assert "You may not export results" in response.json()["message"]


def test_a_reader_gets_no_result_of_a_slide_before_the_reading_is_signed(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(LEDGER_VARIABLE, raising=False)
    make_reading_study(project, tmp_path)
    for module in (exports, declared_routes):
        monkeypatch.setattr(module, "person_of", lambda _: Person("ada", frozenset({Role.REVIEWER}), "r1"))

    response = get(SlideCache(Project(tmp_path)), f"{URL}/predictions.csv")

    close_study_ledgers()
    assert (response.status_code, response.json()["code"]) == (403, "blinded")


@pytest.mark.parametrize(
    ("url", "status"),
    [
        (f"{URL}/contours.geojson", 404),
        (f"{URL}/zarr.json", 400),
        (f"{URL}/../hotspots.json", 400),
        (f"/exports/{SLIDE_ID}/nobody/predictions.csv", 404),
        (f"/exports/nobody/{MODEL_ID}/predictions.csv", 404),
        (f"/exports/..%2f/{MODEL_ID}/predictions.csv", 400),
        ("/exports/x", 400),
        (f"/heatmaps/{SLIDE_ID}/{MODEL_ID}/7.png", 404),
        (f"/heatmaps/{SLIDE_ID}/{MODEL_ID}/x.png", 400),
        ("/heatmaps/x", 400),
    ],
)
def test_what_is_not_there_is_refused(cache: SlideCache, url: str, status: int) -> None:
    assert get(cache, url).status_code == status


def test_a_heat_map_lies_on_the_thumbnail_pixel_for_pixel(cache: SlideCache) -> None:
    thumbnail = Image.open(io.BytesIO(get(cache, f"/thumbnails/{SLIDE_ID}.jpg").content))
    heat = Image.open(io.BytesIO(get(cache, f"/heatmaps/{SLIDE_ID}/{MODEL_ID}/1.png").content))

    assert (heat.size, heat.mode) == (thumbnail.size, "RGBA")
    assert 0 < np.count_nonzero(np.asarray(heat)[..., 3]) < 0.1 * heat.width * heat.height


def test_only_this_computers_browser_is_told_where_the_project_lies(project: Project) -> None:
    def command(*, is_here: bool) -> str:
        return str(exports_of(project, SLIDE_ID, MODEL_ID, Person(), is_here=is_here)["command"])

    assert command(is_here=True) == f"gemslide view {SLIDE_ID} --project {project.root}"
    assert command(is_here=False) == f"gemslide view {SLIDE_ID} --project PROJECT"
    offered = exports_of(project, SLIDE_ID, MODEL_ID, Person(), is_here=False)["files"]
    assert [offer["url"].rpartition("/")[2] for offer in offered] == [
        "predictions.csv", "predictions.geojson", "hotspots.json",
    ]  # fmt: skip
    refused = exports_of(project, SLIDE_ID, MODEL_ID, READER, is_here=False)
    assert (refused["files"], refused["may_export"]) == ([], False)
