import subprocess
import sys

import pytest

from training.config import RECIPES_DIR, find_recipe, load_recipe
from training.errors import BadRecipeError

GOOD = """
[data]
tile_set = "t"
[model]
depth = 11
num_classes = 2
[parallel]
strategy = "master"
num_stages = 2
num_microbatches = 4
[train]
epochs = 1
"""


def load(tmp_path, text):
    path = tmp_path / "r.toml"
    path.write_text(text, encoding="utf-8")
    return load_recipe(path)


@pytest.mark.parametrize("path", sorted(RECIPES_DIR.glob("*.toml")), ids=lambda p: p.stem)
def test_every_shipped_recipe_is_valid(path):
    assert load_recipe(path).parallel.strategy == "master"


def test_the_real_recipe_is_resnet_110_on_two_stages_in_bf16():
    recipe = load_recipe(find_recipe(RECIPES_DIR / "resnet110_1024.toml"))

    assert (recipe.model.depth, recipe.parallel.num_stages, recipe.train.precision) == (110, 2, "bf16")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("tile_set", "tileset"), r"unknown key \[data\] tileset: did you mean `tile_set`"),
        (("num_stages", "stages"), r"unknown key \[parallel\] stages: did you mean `num_stages`"),
        (("depth = 11", "depth = 12"), r"depth must be 9n \+ 2, got 12; nearest are 11 and 20"),
        (("num_microbatches = 4", "num_microbatches = 3"), r"must be even, got 3"),
        (('"master"', '"mast"'), r"mast has 2 micro-batches, got num_microbatches = 4"),
        (('"master"', '"single"'), r"single has one stage, got num_stages = 2"),
        (("num_stages = 2", "num_stages = 1"), r"needs num_stages ≥ 2"),
        (('"master"', '"gpipe"'), r"'single', 'mp-basic', 'mast' or 'master'"),
        (("epochs = 1", ""), r"exactly one of `epochs` and `steps`"),
        (("epochs = 1", "epochs = 1\nsteps = 2"), r"exactly one of `epochs` and `steps`"),
        (('tile_set = "t"', 'tile_set = "t"\nclasses = ["a"]'), r"names 1 classes \(a\), \[model\] num_classes = 2"),
        (("[train]", "[trian]"), r"unknown key \[trian\]: did you mean `train`"),
        (("depth = 11", "depth = 11\ndepth = 20"), r"not valid TOML"),
    ],
)
def test_a_recipe_that_cannot_be_is_refused_with_the_remedy(tmp_path, change, says):
    with pytest.raises(BadRecipeError, match=says):
        load(tmp_path, GOOD.replace(*change))


def test_a_missing_recipe_names_the_shipped_ones(tmp_path):
    with pytest.raises(BadRecipeError, match=r"demo\.toml, resnet110_1024\.toml"):
        find_recipe(tmp_path / "no.toml")


def test_reading_a_recipe_does_not_import_torch():
    code = "import sys, training.config, training.preflight; sys.exit('torch' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
