"""Healthy tissue is no lesion, whatever the order of the classes: in tiles, training, hotspots, report, evaluation."""

from __future__ import annotations

import json
import shutil

import pytest

from pathology_app.slides.presenters import default_class
from pipeline.inference.results.hotspots import read_hotspots
from pipeline.project import Project
from tests.small_trained_project import TISSUE_TOML, share_tiles, write_recipe

pytestmark = pytest.mark.xdist_group("class-order")

HEALTHY, LESION = "normal", "Tumour"
"""In alphabetical order the capital comes first, as in many lists."""


@pytest.fixture(scope="module")
def misordered(small_project, gemslide, tmp_path_factory):
    """The small project with these class names, and the output of tile and train."""
    folder = tmp_path_factory.mktemp("order")
    project = Project(folder / "project")
    share_tiles(small_project.project, project.root)
    (project.root / "tiles").unlink()
    slides = project.slides_dir
    slides.unlink()
    shutil.copytree(small_project.project.slides_dir, slides)
    shutil.copytree(small_project.cohort.parent, folder / "sources")
    for path in (folder / "sources").glob("*.geojson"):
        text = path.read_text()
        path.write_text(text.replace('"warm"', f'"{LESION}"').replace('"cold"', f'"{HEALTHY}"'))
    project.settings_path.write_text(TISSUE_TOML + '[infer]\nformats = ["report"]\n[evaluate]\nbootstrap = 20\n')
    recipe = write_recipe(folder / "odd.toml", steps=2)
    recipe.write_text(recipe.read_text().replace('classes = ["cold", "warm"]\n', ""))
    manifest = folder / "sources" / "cohort.csv"
    tiled = gemslide(
        "tile", manifest, "--project", project.root, "--tile-set", "small", "--tile-px", "32", "--tile-mpp", "1"
    )
    trained = gemslide("train", recipe, "--project", project.root, "--json")
    return project, manifest, tiled, trained


def test_tile_and_train_warn_and_name_the_setting(misordered):
    project, _, tiled, trained = misordered
    words = "Set the order in the [tile] section of gemslide.toml"

    for done in (tiled, trained):
        assert done.code == 0, done.err
        assert "warning: " in done.err
        assert words in done.err
        assert f'classes = ["{HEALTHY}", "{LESION}"]' in done.err
    records = [json.loads(path.read_text()) for path in project.runs_dir.glob("*.json")]
    (record,) = (record for record in records if record["verb"] == "tile")
    assert words in record["warnings"][0]


def test_hotspots_report_and_evaluation_do_not_take_healthy_tissue_for_a_lesion(misordered, gemslide):
    project, manifest, _, trained = misordered
    model = json.loads(trained.out)["output"].rpartition("/")[2]
    inferred = gemslide("infer", model, "small-test", "--project", project.root)
    assert inferred.code == 0, inferred.err

    hotspots = read_hotspots(project.root, "small-test", model)
    assert hotspots is not None
    assert {spot["class"] for spot in hotspots.spots} <= {LESION}
    assert f"Probability of {LESION}" in (project.result_dir("small-test", model) / "slide_report.html").read_text()
    assert default_class((LESION, HEALTHY), []) == 0
    done = gemslide("evaluate", model, manifest, "--tile-set", "small", "--project", project.root, "--no-baselines")
    assert done.code == 0, done.err
    (path,) = project.root.glob("results/**/evaluation*.json")
    hotspots = json.loads(path.read_text())
    assert [result["class_name"] for level in hotspots["levels"] for result in level["classes"]] == [LESION] * len(
        hotspots["levels"]
    )
    assert {result["class_name"] for result in hotspots["froc"]} <= {LESION}
