"""The page on the store is correct: its examples run, and its tables name every key and code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pipeline import errors
from pipeline.settings.config import Settings
from pipeline.store.format.layout import CONTRACT_VERSION
from pipeline.store.format.metadata import Level, SlideAttributes, read_json
from tests.docs.test_documents import ROOT, blocks
from tests.pipeline.make import halved, ingest, sample_image, write_jpeg_pyramid

PAGE = ROOT / "docs/store.md"


@pytest.fixture(scope="module")
def demo(tmp_path_factory) -> Path:
    """A folder in which the examples find their slide."""
    folder = tmp_path_factory.mktemp("page")
    source = write_jpeg_pyramid(folder / "a.tiff", halved(sample_image(2800, 3100), 1))
    ingest(source, folder / "demo", slide_id="demo-train", smallest_level_px=1400, shard_px=4096)
    return folder


def test_the_examples_run_and_give_what_they_say(demo, monkeypatch):
    monkeypatch.chdir(demo)
    names: dict[str, object] = {}

    for language, text in blocks(PAGE):
        if language == "python":
            exec(compile(text, str(PAGE), "exec"), names)

    assert names["region"].shape == (256, 512, 3)
    assert names["batch"].shape == (2, 224, 224, 3)
    assert names["half"].shape == (200, 300, 3)
    assert names["stream"].startswith(b"\xff\xd8")
    assert names["red_green_blue"].shape == (3, 512, 512)
    assert (names["region"][:, :512] == names["red_green_blue"].transpose(1, 2, 0)[:256]).all()


def test_every_key_of_a_store_s_attributes_is_on_the_page(demo):
    text = PAGE.read_text(encoding="utf-8")
    ours = read_json(demo / "demo/slides/demo-train.ome.zarr/zarr.json")["attributes"]["gemslide"]
    keys = {*SlideAttributes.model_fields, *Level.model_fields, *ours["ingest"], *ours["source"]}

    assert [key for key in sorted(keys) if not re.search(rf"\b{key}\b", text)] == []
    assert f"now {CONTRACT_VERSION};" in text


def test_every_section_of_the_settings_and_every_code_is_on_the_page():
    text = PAGE.read_text(encoding="utf-8")
    codes = {value.code for value in vars(errors).values() if isinstance(value, type) and hasattr(value, "code")}

    assert [name for name in Settings.model_fields if name not in text] == []
    assert [code for code in sorted(codes) if f"`{code}`" not in text] == []
