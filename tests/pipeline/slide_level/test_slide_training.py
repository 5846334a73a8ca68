"""From features in the stores to a slide-level model, and from the model to predictions of patients."""

from __future__ import annotations

import json
import re
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file

from pipeline.slide_level.bags import FeatureBags
from pipeline.slide_level.record import ATTENDED, RECORD
from pipeline.store.layers.attention import attention_path, read_attention
from pipeline.store.layers.features import read_features
from pipeline.store.reading.reader import StoreReader
from tests.pipeline.slide_level.planted_cohort import DIMS, ENCODER_ID, SURVIVAL, plant, write_recipe
from training.foundation.words.unit_digest import unit_digest
from training.recipe.slides import load_any_recipe


@pytest.fixture(scope="module")
def planted(small_project, tmp_path_factory):
    store = small_project.project.store_path(small_project.test_slide)
    return plant(store, tmp_path_factory.mktemp("planted"))


@pytest.fixture(scope="module")
def trained(planted, gemslide_in_module):
    recipe = write_recipe(planted.project.root, targets=SURVIVAL)
    done = gemslide_in_module("train", recipe, "--project", planted.project.root, "--json")
    assert done.code == 0, done.err
    return models_in(done)


def models_in(done) -> dict[str, str]:
    """Models of a run, by "best" and "last"."""
    message = json.loads(done.out.splitlines()[-1])["message"]
    return dict(re.findall(r"(best|last)(?: model)? (\S+?-[0-9a-f]{8})", message))


@pytest.fixture(scope="module")
def gemslide_in_module():
    from tests.conftest import gemslide

    return gemslide.__wrapped__()


def bags(planted, **changes) -> FeatureBags:
    recipe = load_any_recipe(write_recipe(planted.project.root, "only-read", **changes))
    data, targets = recipe.data.model_dump(mode="json"), [t.model_dump(mode="json") for t in recipe.target]
    return FeatureBags(planted.project.root, data, targets)


def test_a_patients_bag_holds_the_tiles_of_all_its_slides_in_micrometres(planted):
    source = bags(planted)
    index = source.units.tolist().index("P-00")
    slides = [read_features(planted.project.store_path(f"S-00-{part}"), ENCODER_ID) for part in (0, 1)]
    mpp0 = StoreReader(planted.project.store_path("S-00-0")).mpp0
    bag = source.read(index)

    assert bag.shape == (sum(len(s.values_nd) for s in slides), DIMS + 2) == (source.num_tiles[index], DIMS + 2)
    np.testing.assert_array_equal(bag[:, :-2], np.concatenate([s.values_nd for s in slides]).astype(np.float32))
    np.testing.assert_allclose(bag[: len(slides[0].xy0_n2), -2:], (slides[0].xy0_n2 + 32) * mpp0, rtol=1e-6)
    gap = bag[len(slides[0].xy0_n2) :, -2].min() - bag[: len(slides[0].xy0_n2), -2].max()
    assert gap >= 20_000.0 - 64 * mpp0  # no neighbours
    rows = np.array([1, 5, len(slides[0].xy0_n2) + 3])
    np.testing.assert_array_equal(source.read(index, rows), bag[rows])


def test_a_class_is_learnt_from_one_tile_and_attention_finds_it(planted, trained, gemslide):
    root = planted.project.root
    done = gemslide("infer", trained["best"], planted.manifest, "--project", root, "--devices", "cpu", "--json")
    assert done.code == 0, done.err
    lines = {line["slide_id"]: line for line in map(json.loads, done.out.splitlines())}

    assert sorted(lines) == list(planted.patients)
    for patient, name in zip(planted.patients, planted.classes, strict=True):
        slide = f"S-{patient[2:]}-0"
        record = json.loads((planted.project.result_dir(slide, trained["best"]) / RECORD).read_text())
        assert record["unit"] == patient
        assert record["targets"]["grade"]["answer"] == name
        assert record["targets"]["survival"]["group"] in ("higher risk", "lower risk")
        assert "Research use only" in record["about"]
        stored = read_features(planted.project.store_path(slide), ENCODER_ID)
        attention = read_attention(planted.project.store_path(slide), trained["best"])
        x, y = stored.xy0_n2[planted.marked[slide]] // 64
        assert np.isfinite(attention.times_average_yx).sum() == len(stored.xy0_n2)
        if name == "b":
            assert np.nanmax(attention.times_average_yx) == attention.times_average_yx[y, x]
            first = json.loads((planted.project.result_dir(slide, trained["best"]) / ATTENDED).read_text())
            corner = first["features"][0]["geometry"]["coordinates"][0][0]
            assert corner == stored.xy0_n2[planted.marked[slide]].tolist()

    again = gemslide("infer", trained["best"], planted.manifest, "--project", root, "--devices", "cpu", "--json")
    assert {json.loads(line)["status"] for line in again.out.splitlines()} == {"skipped"}
    verified = gemslide("verify", "S-00-0", "--project", root)
    assert verified.code == 0, verified.err


def test_the_package_states_encoder_targets_and_who_trained_it(planted, trained):
    package = planted.project.model_path(trained["best"])
    ours = json.loads((package / "config.json").read_text())["gemslide"]
    card = (package / "card.md").read_text()

    assert ours["level"] == "patient"
    assert ours["encoder"]["encoder_id"] == ENCODER_ID
    assert ours["encoder"]["side_um"] == pytest.approx(32.0)
    assert [target["name"] for target in ours["targets"]] == ["grade", "survival", "size"]
    assert ours["targets"][0]["columns"] == ["grade (WHO)"]
    assert ours["targets"][2]["columns"] == ["Größe mm"]
    assert set(ours["trained_units"]) == set(map(unit_digest, planted.patients[:12]))
    assert set(ours["test_units"]) == set(map(unit_digest, planted.patients[12:]))
    for words in ("Research use only", "CC0-1.0", "Nobody, 2026", ENCODER_ID):
        assert words in card, words
    assert not re.search(r"P-\d\d", card + (package / "config.json").read_text()), "a package names a patient"


def test_a_slide_level_model_is_no_model_of_tiles(planted, trained, gemslide):
    refused = gemslide("model", "check", trained["best"], "--project", planted.project.root)
    assert refused.code == 1
    assert "is a model of whole patients" in " ".join(refused.err.split())


def test_a_study_with_it_needs_the_encoder_and_says_so_before_anything_is_written(planted, trained, gemslide):
    root, model = planted.project.root, trained["best"]
    manifest = root / "one.csv"  # the slides of the whole cohort are copies of one file
    manifest.write_text("\n".join(planted.manifest.read_text().splitlines()[:2]) + "\n")
    options = ["--cohort", manifest, "--question", "Which grade?", "--project", root]
    refused = gemslide("study", "init", "graded", *options, "--model", model)
    manifest.unlink()
    assert refused.code == 1
    assert "planted.toml: no such encoder" in " ".join(refused.err.split())
    assert not (root / "studies").exists()


def test_two_stages_on_two_ranks_give_the_weights_of_one_process(planted, gemslide):
    weights = []
    for name, changes in (("one", {}), ("two", {"strategy": "1f1b", "stages": 2})):
        recipe = write_recipe(planted.project.root, name, model="transformer", epochs=2, targets=SURVIVAL, **changes)
        done = gemslide("train", recipe, "--project", planted.project.root, "--json")
        assert done.code == 0, done.err
        package = planted.project.model_path(models_in(done)["last"])
        weights.append(load_file(package / "model.safetensors"))
    assert weights[0].keys() == weights[1].keys()
    for name, tensor in weights[0].items():
        np.testing.assert_array_equal(tensor, weights[1][name], err_msg=name)


def test_two_sub_graphs_in_two_groups_learn_what_one_process_learns(planted, gemslide):
    weights = {}
    for name, strategy, spread in (
        ("plain", "single", "num_microbatches = 4"),
        ("virtual", "subgraph", "num_microbatches = 4\nnum_subgraphs = 2\nvirtual_parts = true"),
        ("four", "subgraph", "num_microbatches = 2\nnum_subgraphs = 2\ndata_parallel = 2"),
    ):
        recipe = write_recipe(planted.project.root, name, model="transformer", epochs=1, strategy=strategy)
        recipe.write_text(recipe.read_text().replace("num_microbatches = 4", spread))
        done = gemslide("train", recipe, "--project", planted.project.root, "--json")
        assert done.code == 0, done.err
        weights[name] = load_file(planted.project.model_path(models_in(done)["last"]) / "model.safetensors")
    for name, tensor in weights["plain"].items():
        np.testing.assert_array_equal(weights["virtual"][name], weights["four"][name], err_msg=name)
        np.testing.assert_allclose(weights["four"][name], tensor, rtol=1e-3, atol=1e-5, err_msg=name)


@pytest.mark.parametrize(
    ("model", "strategy", "more", "words"),
    [
        ("abmil", "subgraph", "num_subgraphs = 2", "model abmil has no branches"),
        ("transformer", "subgraph", "num_subgraphs = 3", "3 sub-graphs cannot share 2 heads; use at most 2"),
        ("transformer", "subgraph", "", "subgraph needs num_subgraphs of 2 or more"),
        ("transformer", "subgraph", "num_subgraphs = 2", "num_subgraphs = 2 and data_parallel = 1 needs 2 ranks"),
        ("transformer", "single", "num_subgraphs = 2", 'num_subgraphs is for strategy = "subgraph"'),
        ("transformer", "single", "parts = 2", 'a bag has neither. Use strategy = "subgraph"'),
    ],
)
def test_sub_graphs_that_cannot_be_are_refused_before_any_bag_is_read(planted, gemslide, model, strategy, more, words):
    recipe = write_recipe(planted.project.root, "refused", model=model, strategy=strategy)
    recipe.write_text(recipe.read_text().replace("num_microbatches = 4", f"num_microbatches = 4\n{more}"))
    refused = gemslide("train", recipe, "--project", planted.project.root, "--nproc", 1)
    assert refused.code == 1
    assert words in " ".join(refused.err.split())


def test_features_of_other_weights_of_nan_or_of_another_slide_are_refused(planted, trained, gemslide, tmp_path):
    root = planted.project.root
    store = planted.project.store_path("S-15-0")
    aside = tmp_path / "features"
    shutil.copytree(store / "features", aside)
    meta = store / f"features/{ENCODER_ID}/zarr.json"
    meta.write_text(meta.read_text().replace("c" * 64, "d" * 64))
    refused = gemslide("infer", trained["best"], "S-15-0", "--project", root, "--devices", "cpu")
    shutil.rmtree(store / "features")
    shutil.copytree(aside, store / "features")
    assert refused.code == 1
    assert "were made with weights dddddddddddd" in " ".join(refused.err.split())
    meta.write_text(re.sub(r'"overlap":\s*0\.0', '"overlap": 0.5', meta.read_text()))
    chosen = gemslide("infer", trained["best"], "S-15-0", "--project", root, "--devices", "cpu")
    shutil.rmtree(store / "features")
    shutil.copytree(aside, store / "features")
    assert chosen.code == 1
    assert "its tiles were chosen with [embed] overlap = 0.5" in " ".join(chosen.err.split())

    manifest = root / "leaking.csv"
    manifest.write_text(
        planted.manifest.read_text()
        .replace("P-15,site2,test", "P-00,site2,test")
        .replace("P-15,site1,test", "P-00,site1,test")
    )
    recipe = write_recipe(root, "leaking")
    recipe.write_text(recipe.read_text().replace("cohort.csv", "leaking.csv"))
    leaked = gemslide("train", recipe, "--project", root)
    assert leaked.code != 0
    assert "P-00" in leaked.err
    assert not attention_path(store, "leaking").exists()
