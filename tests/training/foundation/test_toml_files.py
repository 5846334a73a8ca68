"""Foreign settings and recipes: quickly read, or refused with one message."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import pytest

from pipeline.settings.config import Settings, load_settings
from training.foundation.errors import BadRecipeError
from training.foundation.errors import BadRecipeError as BadSettingsError
from training.foundation.recipe_file import RECIPES_DIR
from training.foundation.toml_file import MAX_TOML_BYTES, read_toml
from training.recipe.config import load_recipe

HOSTILE = {
    "nested arrays": "x = " + "[" * 20_000 + "]" * 20_000,
    "nested tables": "x = " + "{a=" * 20_000 + "1" + "}" * 20_000,
    "a few nested arrays": "x = " + "[" * 40 + "]" * 40,
    "a dotted key": "a." * 32_000 + "a = 1",
    "a dotted header": "[" + "a." * 32_000 + "a]",
    "a dotted key in quotes": "x = {" + '"a". ' * 12_000 + "a = 1}",
    "5,000 digits": "[train]\nsteps = " + "9" * 5000,
    "65 bits": "[train]\nsteps = 9223372036854775808",
    "NUL": '[tile]\nnote = "a\0b"',
    "half a surrogate pair": '[tile]\nclasses = ["\\ud800"]',
    "not UTF-8": b"[tile]\nnote = '\xed\xa0\x80'",
    "too long": "#" * (MAX_TOML_BYTES + 1),
    "a control character": '[tile]\nclasses = ["a\\u001b[31m"]\n[data]\nclasses = ["a\\u001b"]',
    "a class of blanks": '[tile]\nclasses = [" "]\n[data]\nclasses = [" "]',
    "a class of 101 characters": f'[tile]\nclasses = ["{"a" * 101}"]\n[data]\nclasses = ["{"a" * 101}"]',
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize(("load", "error"), [(load_settings, BadSettingsError), (load_recipe, BadRecipeError)])
def test_a_hostile_file_is_refused_with_one_short_message_in_a_moment(tmp_path, name, load, error):
    text = HOSTILE[name]
    (tmp_path / "a.toml").write_bytes(text if isinstance(text, bytes) else text.encode())

    start = time.process_time()
    with pytest.raises(error) as raised:
        load(tmp_path / "a.toml")

    assert time.process_time() - start < 2
    assert str(tmp_path / "a.toml") in str(raised.value)
    assert len(str(raised.value)) < 1500


@pytest.mark.parametrize(("load", "error"), [(load_settings, BadSettingsError), (load_recipe, BadRecipeError)])
def test_a_named_pipe_a_device_and_a_folder_are_refused(tmp_path, load, error):
    os.mkfifo(tmp_path / "pipe")

    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        with pytest.raises(error, match="cannot be read: not a regular file"):
            load(path)


def test_a_project_without_settings_has_the_defaults(tmp_path):
    (tmp_path / "file").touch()

    assert load_settings(tmp_path / "gemslide.toml") == load_settings(tmp_path / "file/gemslide.toml") == Settings()


def test_the_shipped_recipes_and_all_that_toml_can_hold_are_read(tmp_path):
    for recipe in RECIPES_DIR.glob("*.toml"):
        load_recipe(recipe)
    dotted = '["1.2.840.113619.2.55.3.1.4.5.6.7.8.9.10.11.12.13"]'
    (tmp_path / "a.toml").write_text(f"a.b.c = {{d = [[1, 2.5e10], {dotted}]}}\nt = 1979-05-27\nbig = {-(2**63)}\n")

    assert read_toml(tmp_path / "a.toml")["a"]["b"]["c"]["d"][0] == [1, 2.5e10]


@pytest.mark.parametrize(
    "line",
    [
        "[tile]\ntile_px = 9223372036854775807",
        "[tile]\nmpp = 1e300",
        "[tile.split]\nseed = -1",
        "[tile.split]\ntrain = 1e308\nval = 1e308",
        "[ingest]\nshard_px = 9223372036854775807",
        "[ingest.tissue]\nclose_um = 1e300",
        "[qc]\ncell_um = 1e300",
        "[qc]\nstain_pixels = 9223372036854775807",
        "[infer]\nbatch_size = 9223372036854775807",
    ],
)
def test_a_number_no_arithmetic_has_place_for_is_refused_by_name(tmp_path, line):
    (tmp_path / "gemslide.toml").write_text(line)

    with pytest.raises(BadSettingsError, match=rf"{re.escape(line.split(chr(10))[0])} \w+ = .*: Input should be"):
        load_settings(tmp_path / "gemslide.toml")


@pytest.mark.parametrize(
    "line", ["num_stages = 10000", "num_microbatches = 1000000", "data_parallel = 9223372036854775807"]
)
def test_a_recipe_whose_schedule_could_never_be_played_is_refused(tmp_path, line):
    recipe = (RECIPES_DIR / "demo.toml").read_text()
    kept = [text for text in recipe.splitlines() if not text.startswith(line.split(" ")[0])]
    (tmp_path / "a.toml").write_text("\n".join(kept).replace("[parallel]", f"[parallel]\n{line}"))

    with pytest.raises(BadRecipeError, match="Input should be less than or equal to"):
        load_recipe(tmp_path / "a.toml")
