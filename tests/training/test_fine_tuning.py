"""Training that starts from weights: matching ones are loaded, the head may differ, and the report says so."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.distributed.starts import train_forked
from tests.small_trained_project import share_tiles, write_recipe
from training.foundation.errors import BadRecipeError, UnreadableError
from training.recipe.config import load_recipe
from training.recipe.plan import blocks_of
from training.run.preflight import check_run
from training.run.start_weights import find_start

CLASSES = ("cold", "warm")


def finetune(recipe, weights, **more):
    lines = [f'weights = "{weights}"', *(f"{key} = {value}" for key, value in more.items())]
    recipe.write_text(recipe.read_text() + "\n".join(["[finetune]", *lines, ""]))
    return recipe


@pytest.fixture
def project(small_project, tmp_path):
    """Project with the tiles and the model of the small project."""
    share_tiles(small_project.project, tmp_path)
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / small_project.model_id).symlink_to(small_project.project.models_dir / small_project.model_id)
    return tmp_path


def start_of(recipe, project, *, classes=CLASSES):
    read = load_recipe(recipe)
    return find_start(read.finetune, blocks_of(read.model, 32), classes, project)


def test_a_model_of_the_project_is_gone_on_from_and_the_record_and_the_card_say_so(small_project, project):
    recipe = finetune(write_recipe(project / "r.toml", steps=2), small_project.model_id)

    trained = train_forked(recipe, project, 1)

    (path,) = (project / "runs").glob("*.json")
    record = json.loads(path.read_text())
    weights = load_file(small_project.project.models_dir / small_project.model_id / "model.safetensors")
    assert record["start"]["id"] == small_project.model_id
    assert record["start"]["loaded_tensors"] == len(weights)
    assert record["start"]["head"] == "kept"
    assert {"id": small_project.model_id, "sha256": record["start"]["sha256"]} in record["inputs"]
    card = (project / "models" / trained.last / "card.md").read_text()
    assert f"starts from {small_project.model_id}" in card
    ours = load_file(project / "models" / trained.last / "model.safetensors")
    kernels = [name for name, weight in ours.items() if weight.ndim == 4]
    near = [torch.cosine_similarity(ours[name].flatten(), weights[name].flatten(), 0) for name in kernels]
    assert min(near) > 0.5  # two steps from there; fresh weights would be orthogonal


def test_frozen_blocks_stay_as_they_were_with_their_statistics(small_project, project):
    recipe = finetune(write_recipe(project / "r.toml", steps=2), small_project.model_id, freeze_blocks=2)

    trained = train_forked(recipe, project, 1)

    before = load_file(small_project.project.models_dir / small_project.model_id / "model.safetensors")
    after = load_file(project / "models" / trained.last / "model.safetensors")
    is_equal = {name: torch.equal(before[name], after[name]) for name in after}
    assert all(equal for name, equal in is_equal.items() if name.split(".")[0] in ("0", "1"))
    assert not any(equal for name, equal in is_equal.items() if name.startswith("4.") and name.endswith("weight"))


def test_frozen_blocks_on_several_ranks_give_the_weights_of_one(small_project, project):
    one, two = project / "one", project / "two"
    trained = []
    for folder, way in ((one, {}), (two, {"strategy": "master", "num_stages": 2})):
        share_tiles(small_project.project, folder)
        (folder / "models").mkdir()
        (folder / "models" / small_project.model_id).symlink_to(
            small_project.project.models_dir / small_project.model_id
        )
        recipe = finetune(write_recipe(folder / "r.toml", steps=2, **way), small_project.model_id, freeze_blocks=3)
        trained.append(train_forked(recipe, folder, way.get("num_stages", 1)))

    assert trained[0] == trained[1]


def test_other_classes_get_a_head_of_their_own(small_project, project):
    recipe = finetune(write_recipe(project / "r.toml"), small_project.model_id)

    start = start_of(recipe, project, classes=("warm", "cold"))

    assert start.head == "replaced: it has other classes"
    assert not any(name.startswith("4.") for name in start.state)
    assert any(name.startswith("3.") for name in start.state)


def test_a_head_of_another_shape_is_replaced(small_project, project):
    weights = load_file(small_project.project.models_dir / small_project.model_id / "model.safetensors")
    head = [name for name in weights if name.startswith("4.")]
    for name in head:
        weights[name] = torch.zeros(7, *weights[name].shape[1:])
    save_file(weights, project / "seven.safetensors")
    recipe = finetune(write_recipe(project / "r.toml"), "seven.safetensors")

    start = start_of(recipe, project)

    assert start.name == "seven"
    assert start.head == "replaced: it has another shape, or none"
    assert "head replaced" in str(start)


def test_weights_of_another_network_are_refused_with_what_is_missing(small_project, project):
    recipe = finetune(write_recipe(project / "r.toml"), small_project.model_id)
    recipe.write_text(recipe.read_text().replace("depth = 11", "depth = 20"))

    with pytest.raises(BadRecipeError, match=r"not of this network\. It lacks .*, or has them in other shapes"):
        check_run(recipe, project, 1)


@pytest.mark.parametrize(
    ("weights", "error", "says"),
    [
        ("no-such-model", BadRecipeError, r"not found at .*/no-such-model/model\.safetensors and .*no-such-model"),
        ("text.safetensors", UnreadableError, "not a safetensors file, or damaged"),
    ],
)
def test_what_cannot_be_read_is_one_message(project, weights, error, says):
    (project / "text.safetensors").write_text("hello")
    recipe = finetune(write_recipe(project / "r.toml"), weights)

    with pytest.raises(error, match=says):
        check_run(recipe, project, 1)


def test_the_head_cannot_be_frozen_nor_fresh_blocks(small_project, project):
    with pytest.raises(BadRecipeError, match=r"freeze_blocks = 5: the network has 5 blocks, and the head must learn"):
        check_run(finetune(write_recipe(project / "a.toml"), small_project.model_id, freeze_blocks=5), project, 1)
    recipe = write_recipe(project / "b.toml")
    recipe.write_text(recipe.read_text() + "[finetune]\nfreeze_blocks = 1\n")
    with pytest.raises(BadRecipeError, match="blocks that never learned anything cannot be frozen"):
        load_recipe(recipe)
