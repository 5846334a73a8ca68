"""The number of ranks that `gemslide train` starts is the number that the recipe needs."""

from __future__ import annotations

import pytest

from training.foundation.recipe_file import ranks_of_recipe
from training.foundation.toml_file import read_toml
from training.recipe.parallel import ParallelConfig


@pytest.mark.parametrize(
    "lines",
    [
        "",
        "data_parallel = 3",
        'strategy = "1f1b"\nnum_stages = 4\ndata_parallel = 2',
        "parts = 2\ndata_parallel = 3",
        "parts = [3]",
        'strategy = "gpipe"\nnum_stages = 3\nparts = [2, 2, 1]\ndata_parallel = 2',
        'strategy = "master"\nnum_stages = 2\nparts = 2\nsplit = "filter"',
        "parts = 4\nvirtual_parts = true\ndata_parallel = 2",
        'strategy = "subgraph"\nnum_subgraphs = 3\ndata_parallel = 2',
        'strategy = "subgraph"\nnum_subgraphs = 3\nvirtual_parts = true',
    ],
)
def test_every_rank_of_every_part_of_every_stage_is_started(tmp_path, lines):
    path = tmp_path / "r.toml"
    path.write_text(f"[parallel]\n{lines}\n")
    assert ranks_of_recipe(path) == ParallelConfig.model_validate(read_toml(path)["parallel"]).world_size
