from pathlib import Path

import pytest

from training.engine.recompute import Recompute
from training.engine.strategies import ALIASES, STRATEGIES
from training.foundation.errors import BadRecipeError
from training.foundation.recipe_file import RECIPES_DIR, find_recipe
from training.recipe.config import load_recipe

PARALLEL = """strategy = "master"
num_stages = 2
num_microbatches = 4
"""
GOOD = f"""
[data]
tile_set = "t"
[model]
depth = 11
num_classes = 2
[parallel]
{PARALLEL}
[train]
epochs = 1
"""

NAMES = [*STRATEGIES, *ALIASES, "auto"]


def load(tmp_path, text):
    path = tmp_path / "r.toml"
    path.write_text(text, encoding="utf-8")
    return load_recipe(path)


@pytest.mark.parametrize("path", sorted(RECIPES_DIR.glob("*.toml")), ids=lambda p: p.stem)
def test_every_shipped_recipe_is_valid(path):
    assert load_recipe(path).parallel.strategy == ("ddp" if path.stem == "crc_mosaic" else "master")


def test_the_real_recipe_is_resnet_110_on_two_stages_in_bf16():
    recipe = load_recipe(find_recipe(RECIPES_DIR / "resnet110_1024.toml"))

    assert (recipe.model.depth, recipe.parallel.num_stages, recipe.train.precision) == (110, 2, "bf16")


def test_resnet_1001_on_two_stages_recomputes():
    recipe = load_recipe(find_recipe(RECIPES_DIR / "resnet1001_512.toml"))

    assert (recipe.model.depth, recipe.parallel.num_stages, recipe.train.precision) == (1001, 2, "bf16")
    assert recipe.parallel.recompute_rule == Recompute(every=6)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("tile_set", "tileset"), r"unknown key \[data\] tileset: did you mean `tile_set`"),
        (("num_stages", "stages"), r"unknown key \[parallel\] stages: did you mean `num_stages`"),
        (("depth = 11", "depth = 12"), r"depth must be 9n \+ 2, got 12; nearest are 11 and 20"),
        (
            ("num_stages = 2", "num_stages = 0"),
            r"\[parallel\] num_stages = 0: Input should be greater",
        ),
        (("epochs = 1", ""), r"exactly one of `epochs` and `steps`"),
        (("epochs = 1", "epochs = 1\nsteps = 2"), r"exactly one of `epochs` and `steps`"),
        (('tile_set = "t"', 'tile_set = "t"\nclasses = ["a"]'), r"names 1 class \(a\), \[model\] num_classes = 2"),
        (("[train]", "[trian]"), r"unknown key \[trian\]: did you mean `train`"),
        (("depth = 11", "depth = 11\ndepth = 20"), r"not valid TOML"),
        (
            ("depth = 11", 'depth = 11\nvariant = "gems-public"\nnorm = "group"'),
            r'variant gems-public has norm = "batch" only, got \'group\'',
        ),
        (("[train]", "[optim]\nclip_norm = 0\n[train]"), r"\[optim\] clip_norm = 0: Input should be greater than 0"),
    ],
)
def test_a_recipe_that_cannot_be_is_refused_with_the_remedy(tmp_path, change, says):
    with pytest.raises(BadRecipeError, match=says):
        load(tmp_path, GOOD.replace(*change))


@pytest.mark.parametrize(
    ("parallel", "says"),
    [
        ('strategy = "chimera"\nnum_stages = 3', "chimera needs an even number of stages, got num_stages=3; use 4"),
        ('strategy = "single"\nnum_stages = 2', "single has exactly one stage, got num_stages=2"),
        ('strategy = "ddp"\nnum_stages = 2\ndata_parallel = 2', "single has exactly one stage, got num_stages=2"),
        ('strategy = "mast"\nnum_microbatches = 4', "mast has exactly 2 micro-batches, got 4; for more use master"),
        ('strategy = "hybrid"\nnum_stages = 2', "hybrid means data_parallel of 2 or more, got 1; use master"),
        ('strategy = "ddp"', "ddp means data_parallel of 2 or more, got 1; use single"),
        (
            'strategy = "zigzag"',
            f"[parallel] strategy = 'zigzag': Input should be {', '.join(map(repr, NAMES[:-1]))} or {NAMES[-1]!r}",
        ),
        (
            'strategy = "master"\nnum_stages = 2\nrecompute = {every = 2, prefix = [3]}',
            "recompute prefix [3] needs one entry for each of 2 stages",
        ),
        (
            'strategy = "auto"\nnum_stages = 2',
            'strategy = "auto" chooses num_stages itself, for the ranks that are started',
        ),
        ('strategy = "auto"\nelastic = true\ncuts = [1]', 'strategy = "auto" chooses cuts, elastic itself'),
        ('strategy = "master"\nnum_stages = 3\ncuts = [4]', "cuts [4] do not make 3 stages: name the first block"),
        ('strategy = "master"\nnum_stages = 3\ncuts = [4, 4]', "cuts [4, 4] do not make 3 stages"),
        ('strategy = "master"\nnum_stages = 2\ncuts = [0]', "[parallel] cuts.0 = 0: Input should be greater"),
        (
            'strategy = "master"\nnum_stages = 2\ncuts = [1]\nelastic = true',
            "cuts name stages, but with elastic their number may change",
        ),
        (
            'strategy = "master"\nnum_stages = 2\ncuts = [1]\nbalance = "bytes"',
            "cuts and balance both say where the stages begin",
        ),
        ("recompute = {evry = 2}", "unknown key [parallel] recompute.evry: did you mean `every`?"),
        ("recompute = {every = 0}", "[parallel] recompute.every = 0: Input should be greater than or equal to 1"),
        (
            'recompute = "all"',
            '[parallel] recompute = \'all\': use "none", "norm", "offload", or a table such as {every = 2}',
        ),
        ("recompute = 2", '[parallel] recompute = 2: use "none", "norm", "offload", or a table such as {every = 2}'),
    ],
)
def test_a_strategy_whose_numbers_do_not_fit_has_its_one_message(tmp_path, parallel, says):
    text = GOOD.replace(PARALLEL, parallel)

    with pytest.raises(BadRecipeError) as refused:
        load(tmp_path, text)

    assert str(refused.value).split(": ", 1)[1].removeprefix("[parallel]: ").startswith(says)
    assert "; [" not in str(refused.value)  # start of the next finding


@pytest.mark.parametrize(
    ("strategy", "num_microbatches", "data_parallel", "means"),
    [
        ("mast", 2, 1, "master"), ("hybrid", 3, 2, "master"), ("ddp", 1, 3, "single"), ("chimera", 1, 2, "chimera"),
        ("1f1b", 5, 1, "1f1b"), ("gpipe", 2, 2, "gpipe"), ("mp-basic", 3, 1, "mp-basic"), ("master", 3, 1, "master"),
    ],
)  # fmt: skip
def test_a_name_stands_for_a_strategy_on_d_times_s_ranks(tmp_path, strategy, num_microbatches, data_parallel, means):
    num_stages = 1 if means == "single" else 2
    parallel = (
        f'strategy = "{strategy}"\nnum_stages = {num_stages}\nnum_microbatches = {num_microbatches}\n'
        f"microbatch_size = 3\ndata_parallel = {data_parallel}"
    )

    loaded = load(tmp_path, GOOD.replace(PARALLEL, parallel)).parallel

    assert loaded.resolved_strategy == means
    assert loaded.world_size == data_parallel * num_stages
    assert loaded.batch_size == data_parallel * num_microbatches * 3


@pytest.mark.parametrize(
    ("written", "rule"),
    [
        ('"none"', Recompute()),
        ("{every = 2}", Recompute(2)),
        ("{}", Recompute(1)),
        ("{every = 6, prefix = [23, 0]}", Recompute(6, (23, 0))),
    ],
)
def test_recompute_is_a_word_or_a_table(tmp_path, written, rule):
    text = GOOD.replace("num_stages = 2", f"num_stages = 2\nrecompute = {written}")

    assert load(tmp_path, text).parallel.recompute_rule == rule


def test_a_missing_recipe_names_the_shipped_ones(tmp_path):
    with pytest.raises(BadRecipeError, match=r"crc_mosaic\.toml, demo\.toml, resnet1001_512"):
        find_recipe(tmp_path / "no.toml")


def test_a_recipe_is_found_with_and_without_its_ending(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("mine", "v1.2"):
        (tmp_path / f"{name}.toml").write_text(GOOD)
    (tmp_path / "demo").mkdir()  # a folder is not a recipe

    assert find_recipe(Path("mine")) == find_recipe(Path("mine.toml")) == Path("mine.toml")
    assert find_recipe(Path("v1.2")) == Path("v1.2.toml")
    assert find_recipe(tmp_path / "mine") == tmp_path / "mine.toml"
    assert find_recipe(Path("demo")) == find_recipe(Path("demo.toml")) == RECIPES_DIR / "demo.toml"
    (tmp_path / "demo.toml").write_text(GOOD)
    assert find_recipe(Path("demo")) == Path("demo.toml")  # the user's own recipe comes first
    for nothing in ("nowhere", "../demo", "recipes/demo", "."):
        with pytest.raises(BadRecipeError, match="no such recipe"):
            find_recipe(Path(nothing))
