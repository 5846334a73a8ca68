"""Contracts between the packages that write and read files (docs/store.md), checked on files of a real run."""

import json
import re
import uuid

import jsonschema
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from pipeline.cohort.manifest import COLUMNS, SlideEntry
from pipeline.errors import BY_CODE
from pipeline.inference.infer import infer_slide
from pipeline.inference.predictor import Predictor
from pipeline.run_record import SlideOutcome
from pipeline.settings.config import InferConfig
from pipeline.verbs.cli_output import Reporter
from tests.contracts.test_folder_rules import ROOT
from training.engine.strategies import ALIASES, STRATEGIES
from training.foundation.recipe_file import AUTO
from training.recipe.config import Recipe

pytestmark = pytest.mark.xdist_group("contracts")  # inferred once

CODES = {
    "damaged_store",
    "missing_mpp",
    "unreadable",
    "no_slides",
    "which_series",
    "qc_failed",
    "relied_on",
    "corrupt_tile",
    "not_brightfield_rgb",
    "claims_too_much",
    "changed_source",
    "source_gone",
    "unverified_link",
    "read_only_store",
    "locked",
    "disk_full",
    "bad_manifest",
    "bad_annotation",
    "leakage",
    "wrong_slide",
    "bad_recipe",
    "wrong_world_size",
    "empty_table",
    "incomplete_patient",
    "no_tissue",
    "insane_output",
    "not_registered",
    "out_of_memory",
    "busy_machine",
    "not_calibrated",
    "failed_process",
    "outside_folders",
}


@pytest.fixture(scope="module")
def results(small_project_copy):
    predictor = Predictor.load(small_project_copy.project.models_dir / small_project_copy.model_id)
    return infer_slide(
        small_project_copy.test_slide, predictor, small_project_copy.project, InferConfig(batch_size=16)
    ).result_dir


def test_error_codes_are_those_of_the_contract():
    assert set(BY_CODE) == CODES


def test_every_code_is_explained_where_people_look():
    from pathology_app.server import CannotListenError
    from pipeline.run_record import INTERNAL_ERROR
    from training.engine.ranks import LostPeerError

    page = (ROOT / "docs/store.md").read_text(encoding="utf-8")

    assert [
        c for c in {*CODES, INTERNAL_ERROR, CannotListenError.code, LostPeerError.code} if f"`{c}`" not in page
    ] == []


def test_recipe_keys_are_those_of_the_page():
    page = (ROOT / "docs/store.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `\[(\w+)\]` \| (.*) \|$", page, re.MULTILINE))

    for name, field in Recipe.model_fields.items():
        assert set(re.findall(r"`(\w+)`", rows.pop(name))) == set(field.annotation.model_fields), name
    assert rows == {}


def test_strategies_are_those_of_the_page():
    page = (ROOT / "docs/store.md").read_text(encoding="utf-8")
    (named,) = re.findall(r"`strategy` \(([^)]*)\)", page)

    assert set(re.findall(r"[\w-]+", named)) == {*STRATEGIES, *ALIASES, AUTO, "aliases"}


def test_research_use_stands_on_every_card_report_and_image(small_project_copy, results):
    from PIL import Image

    package = small_project_copy.project.models_dir / small_project_copy.model_id
    with Image.open(results / "heatmap_warm.png") as image:
        assert "Research use only" in image.text["Description"]
    for text in (package / "card.md", ROOT / "README.md"):
        assert "Research use only. Not for diagnosis." in text.read_text(encoding="utf-8")


def test_tile_table_columns_types_and_metadata(small_project_copy):
    table = pq.read_table(small_project_copy.project.tile_table_path("small"))

    assert {field.name: str(field.type) for field in table.schema} == {
        "slide_id": "string", "patient_id": "string", "x_px0": "int32", "y_px0": "int32", "side_px0": "int32",
        "tile_px": "int32", "mpp": "double", "level": "int8", "tissue": "float", "label": "string",
        "label_fraction": "float", "split": "string",
        "qc_blur": "float", "qc_pen": "float", "qc_fold": "float", "qc_bubble": "float",
    }  # fmt: skip
    assert {"class_order", "stride_px0", "settings", "manifest_sha256"} <= json.loads(
        table.schema.metadata[b"gemslide"]
    ).keys()


def test_model_package_has_wsinfer_s_keys_and_ours(small_project_copy):
    package = small_project_copy.project.models_dir / small_project_copy.model_id
    config = json.loads((package / "config.json").read_text())

    assert {p.name for p in package.iterdir()} == {"config.json", "model.safetensors", "metrics.json", "card.md"}
    assert re.fullmatch(r"small-[0-9a-f]{8}", small_project_copy.model_id)
    assert config.keys() == {
        "spec_version", "architecture", "num_classes", "patch_size_pixels", "spacing_um_px", "class_names",
        "transform", "gemslide",
    }  # fmt: skip
    assert config["spec_version"] == "1.0"
    assert [step["name"] for step in config["transform"]] == ["Resize", "ToTensor", "Normalize"]
    assert config["gemslide"].keys() == {
        "model", "norm", "statistics", "stain", "class_order", "run_id", "weights_sha256", "split_sha256", "parallel",
        "which", "epoch", "threads", "isa", "hues", "focus", "data", "runtime", "outputs", "read",
    }  # fmt: skip
    assert "Research use only" in (package / "card.md").read_text()


def test_model_id_names_its_weights(small_project_copy):
    import hashlib

    weights = (small_project_copy.project.models_dir / small_project_copy.model_id / "model.safetensors").read_bytes()

    assert small_project_copy.model_id.endswith(hashlib.sha256(weights).hexdigest()[:8])


def test_result_csv_has_wsinfer_s_columns(small_project_copy, results):
    frame = pd.read_csv(results / "predictions.csv")

    assert list(frame.columns) == ["slide_id", "minx", "miny", "width", "height", "prob_cold", "prob_warm"]
    assert np.allclose(frame[["prob_cold", "prob_warm"]].sum(axis=1), 1, atol=2e-3)
    assert (frame.width == 64).all()


def test_geojson_is_what_qupath_reads(small_project_copy, results):
    content = json.loads((results / "predictions.geojson").read_text())

    assert content["type"] == "FeatureCollection"
    assert len(content["features"]) == len(pd.read_csv(results / "predictions.csv"))
    for feature in content["features"]:
        uuid.UUID(feature["id"])
        ring = feature["geometry"]["coordinates"][0]
        properties = feature["properties"]
        assert ring[0] == ring[-1]
        assert properties["objectType"] == "tile"
        assert len(properties["classification"]["color"]) == 3
        assert properties["measurements"].keys() == {"prob_cold", "prob_warm"}
        assert all(isinstance(value, str) for value in properties["metadata"].values())
    assert len({feature["id"] for feature in content["features"]}) == len(content["features"])


def test_hotspots_have_the_contract_s_keys_and_lie_on_warm_tissue(small_project_copy, results):
    content = json.loads((results / "hotspots.json").read_text())

    assert content.keys() == {"threshold", "hotspots"}
    assert content["threshold"] == 0.5
    for spot in content["hotspots"]:
        assert spot.keys() == {"x_px0", "y_px0", "area_um2", "score", "class"}
        assert spot["class"] == "warm"


def test_run_records_hold_the_contract_s_keys(small_project_copy):
    for path in small_project_copy.project.runs_dir.glob("*.json"):
        record = json.loads(path.read_text())
        assert re.fullmatch(r"\d{8}T\d{6}Z-[0-9a-f]{6}", record["run_id"])
        assert {
            "run_id", "verb", "settings", "inputs", "outputs", "versions", "host", "seconds", "outcome",
        } <= record.keys()  # fmt: skip
        if record["verb"] == "train":
            assert {"models", "plan", "memory", "epochs", "threads", "isa"} <= record.keys()
            assert record["plan"].keys() == {
                "strategy", "named", "num_stages", "parts", "num_microbatches", "data_parallel", "recompute",
                "blocks_per_stage",
            }  # fmt: skip
            assert len(record["memory"]["live"]) == record["plan"]["data_parallel"] * record["plan"]["num_stages"]


def test_a_json_line_holds_the_contract_s_keys(capsys):
    Reporter(as_json=True).add(SlideOutcome("a", "refused", code="missing_mpp", message="m"))
    line = json.loads(capsys.readouterr().out)

    assert line.keys() == {"slide_id", "status", "code", "message", "output", "seconds"}


def test_the_manifest_s_schema_is_the_one_the_program_checks():
    schema = json.loads((ROOT / "data_manifests/schema/cohort.schema.json").read_text())

    assert schema == SlideEntry.model_json_schema()
    assert COLUMNS == (
        "path", "slide_id", "patient_id", "block", "stain", "site", "scanner", "mpp", "series", "annotations", "label",
        "split", "exclude", "sha256",
    )  # fmt: skip
    jsonschema.validate({"path": "a.svs", "slide_id": "a", "split": "train"}, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"path": "a.svs", "slide_id": "a b"}, schema)
