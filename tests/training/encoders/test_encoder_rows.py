"""A row that describes an encoder: unknown keys and impossible values are refused, and its id changes with features."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.training.encoders.tiny_encoders import (
    COMMON,
    DINOV2_CONFIG,
    WIDTH,
    as_transformers,
    folder_row,
    onnx_row,
    timm_state,
    write_row,
)
from training.encoders.open import identify
from training.encoders.row import ROWS_DIR, EncoderFile, EncoderRow, encoder_id, read_encoder_file
from training.foundation.errors import BadRecipeError, UnreadableError

TIMM = {
    "kind": "timm", "source": "vit_tiny_patch16_224", "weights": "w.safetensors", "sha256": "a" * 64, "pool": "cls",
    "dims": 192,
}  # fmt: skip


def row_of(tmp_path, **values):
    return read_encoder_file(write_row(tmp_path, **{**TIMM, **values}))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"tile_size": 224}, "unknown key tile_size: did you mean `tile_px`?"),
        ({"kind": "pickle"}, "kind = 'pickle'"),
        ({"sha256": None}, "sha256 is missing"),
        ({"sha256": "abc"}, "sha256 = 'abc'"),
        ({"tile_px": 4}, "tile_px = 4"),
        ({"mpp": float("nan")}, "mpp = nan"),
        ({"mean": [0.5, 0.5]}, "mean"),
        ({"mean": [127.0, 127.0, 127.0]}, "mean"),
        ({"std": [0.2, 0.0, 0.2]}, "std"),
        ({"dims": 0}, "dims = 0"),
        ({"licence": None}, "licence is missing"),
        ({"citation": "a\x1b[31mred"}, "U+001B, which cannot be printed"),
        ({"weights": None}, "`weights` is missing"),
        ({"kind": "onnx"}, "`weights` has no use"),
        ({"kind": "onnx", "weights": None}, '`pool` is "none" and `precision` "fp32"'),
        ({"kind": "hf-folder", "pool": "none"}, "a folder's network returns tokens"),
    ],
)
def test_a_row_that_cannot_be_is_refused_in_a_sentence(tmp_path, values, words):
    with pytest.raises(BadRecipeError, match=re.escape(words)):
        row_of(tmp_path, **values)


def test_a_row_that_is_missing_is_no_toml_or_has_no_name_is_refused(tmp_path):
    with pytest.raises(BadRecipeError, match=r"nothing\.toml: cannot be read: No such file"):
        read_encoder_file(tmp_path / "nothing.toml")
    (tmp_path / "no.toml").write_text("kind = ")
    with pytest.raises(BadRecipeError, match="not valid TOML"):
        read_encoder_file(tmp_path / "no.toml")
    with pytest.raises(BadRecipeError, match="an encoder's name is"):
        read_encoder_file(write_row(tmp_path, "a b", **TIMM))


CHANGES = {
    "kind": "entry-point", "source": "vit_small_patch16_224", "sha256": "b" * 64, "pool": "mean", "dims": 384,
    "tile_px": 48, "mpp": 0.25, "mean": [0.7, 0.55, 0.66], "std": [0.2, 0.25, 0.16], "precision": "bf16",
    "read": "finest", "untrained": True,
}  # fmt: skip


def test_whatever_changes_features_changes_the_id_and_nothing_else_does(tmp_path):
    plain = encoder_id(row_of(tmp_path))

    assert re.fullmatch(r"tiny-[0-9a-f]{8}", plain)
    same = {"weights": "elsewhere/w.safetensors", "licence": "MIT", "citation": "Another, 2027"}
    assert {encoder_id(row_of(tmp_path, **{key: value})) for key, value in same.items()} == {plain}
    ids = {encoder_id(row_of(tmp_path, **{key: value})) for key, value in CHANGES.items()}
    assert len(ids | {plain}) == len(CHANGES) + 1
    assert {*CHANGES, *same} == set(EncoderRow.model_fields)


@given(
    mean=st.lists(st.floats(0, 1), min_size=3, max_size=3),
    std=st.lists(st.floats(0.001, 1), min_size=3, max_size=3),
    mpp=st.floats(0.05, 50),
)
def test_the_same_row_in_another_order_of_keys_or_as_json_has_the_same_id(mean, std, mpp):
    values = {**COMMON, **TIMM, "mean": mean, "std": std, "mpp": mpp}
    one = EncoderRow.model_validate(values)
    other = EncoderRow.model_validate(json.loads(json.dumps(dict(reversed(list(values.items()))))))

    assert encoder_id(EncoderFile("x", one, ROWS_DIR, ROWS_DIR)) == encoder_id(
        EncoderFile("x", other, ROWS_DIR, ROWS_DIR)
    )


def test_the_place_of_a_folder_or_a_file_is_not_in_the_id_but_the_folder_s_configuration_is(tmp_path):
    first, moved = onnx_row(tmp_path / "one"), onnx_row(tmp_path / "two", source="tiny.onnx")
    (tmp_path / "two/files").mkdir()
    (tmp_path / "two/tiny.onnx").rename(tmp_path / "two/files/net.onnx")
    moved.write_text(moved.read_text().replace('"tiny.onnx"', '"files/net.onnx"'))
    assert identify(read_encoder_file(first)) == identify(read_encoder_file(moved))

    state = as_transformers(timm_state())
    ids = {
        identify(
            read_encoder_file(folder_row(tmp_path / str(heads), state, {**DINOV2_CONFIG, "num_attention_heads": heads}))
        )
        for heads in (3, 4)
    }
    assert len(ids) == 2
    assert WIDTH % 4 == 0


def test_the_shipped_rows_are_valid_and_say_whose_they_are():
    rows = {path.stem: read_encoder_file(path).row for path in ROWS_DIR.glob("*.toml")}

    assert set(rows) == {"lite0"}
    assert all(row.kind == "package" and row.licence == "Apache-2.0" and row.citation for row in rows.values())


def test_an_id_of_a_folder_without_configuration_is_refused(tmp_path):
    path = write_row(tmp_path, **{**TIMM, "kind": "hf-folder", "source": "nowhere", "weights": None})

    with pytest.raises(UnreadableError, match="Name a folder with config"):
        identify(read_encoder_file(path))
