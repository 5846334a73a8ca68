"""Features in a slide's store: read as they were written or refused; only the rows that are needed are decoded."""

from __future__ import annotations

import json
import pickle
import shutil
from dataclasses import replace

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pipeline.box import Box
from pipeline.errors import BadManifestError, WrongSlideError
from pipeline.ingest.source_comparison import verify_store
from pipeline.store.integrity import find_overlay_damage
from pipeline.store.layers.feature_checks import values_sha256
from pipeline.store.layers.features import (
    features_path,
    list_features,
    new_features,
    open_features,
    read_features,
    to_float16,
)
from pipeline.store.reading.reader import StoreReader
from tests.pipeline.export.make_store import make_store, zstd_level
from tests.pipeline.make import ingest, sample_image, write_jpeg_pyramid
from tests.pipeline.store.made_features import (
    ENCODER_ID,
    WEIGHTS,
    edit_attribute,
    made_features,
    overwrite_array,
)
from training.foundation.errors import EmptyTableError, ImplausibleOutputError, UnreadableError

MANY = 2500
"""Tiles in three chunks, the last one not full."""


@pytest.fixture(scope="module")
def slide(tmp_path_factory):
    """Store of a slide of 1,300 × 1,210 px without features."""
    levels = [zstd_level(sample_image(1300, 1210), 512)]
    return make_store(tmp_path_factory.mktemp("slide") / "S-1.ome.zarr", levels)


@pytest.fixture(scope="module")
def many(slide, tmp_path_factory):
    """The store with 2,500 rows of seven features; not to be changed."""
    store = shutil.copytree(slide, tmp_path_factory.mktemp("many") / slide.name)
    write(store, made_features(StoreReader(store), MANY, 7))
    return store


@pytest.fixture
def store(slide, tmp_path):
    """The store with twelve rows of five features."""
    copied = shutil.copytree(slide, tmp_path / slide.name)
    write(copied, made_features(StoreReader(copied)))
    return copied


def write(store, features):
    with new_features(store, features):
        pass


def same(one, other):
    np.testing.assert_array_equal(one.values_nd, other.values_nd)
    np.testing.assert_array_equal(one.xy0_n2, other.xy0_n2)
    return (one.encoder_id, one.side_px0, one.stride_px0) == (other.encoder_id, other.side_px0, other.stride_px0)


def test_features_are_read_as_they_were_written(many):
    made = made_features(StoreReader(many), MANY, 7)

    read = read_features(many, ENCODER_ID)

    assert same(read, made)
    assert (read.values_nd.dtype, read.xy0_n2.dtype) == (np.float16, np.int32)
    assert read.attributes == {
        **made.attributes, "version": 1, "encoder_id": ENCODER_ID, "side_px0": 32.0, "stride_px0": 24.0,
        "values_sha256": values_sha256(made.values_nd, made.xy0_n2),
    }  # fmt: skip
    assert (read.tile_px, read.mpp) == (16, 1.0)
    assert list_features(many) == [ENCODER_ID]


def test_plain_zarr_reads_features(many):
    made = made_features(StoreReader(many), MANY, 7)

    group = zarr.open_group(many / "features", mode="r")[ENCODER_ID]

    np.testing.assert_array_equal(group["values"][...], made.values_nd)
    np.testing.assert_array_equal(group["xy0"][...], made.xy0_n2)
    assert (group["values"].chunks, group["xy0"].chunks) == ((1024, 7), (MANY, 2))
    for name in ("values", "xy0"):
        codecs = group[name].metadata.to_dict()["codecs"]
        assert [codec["name"] for codec in codecs] == ["bytes", "zstd", "crc32c"]


def test_metadata_are_opened_without_reading_a_value(many, tmp_path):
    store = shutil.copytree(many, tmp_path / many.name)
    shutil.rmtree(features_path(store, ENCODER_ID) / "values/c")

    stored = open_features(store, ENCODER_ID)

    assert (stored.num_tiles, stored.dims, stored.side_px0, stored.stride_px0) == (MANY, 7, 32, 24)
    np.testing.assert_array_equal(stored.xy0_n2, made_features(StoreReader(store), MANY, 7).xy0_n2)
    with pytest.raises(UnreadableError, match="c/0/0: is missing"):
        stored.read_rows(slice(3))


@given(
    st.one_of(
        st.lists(st.integers(0, MANY - 1), max_size=9).map(lambda rows: np.array(rows, np.int64)),
        st.tuples(st.integers(0, MANY), st.integers(0, MANY), st.integers(1, 900)).map(lambda ends: slice(*ends)),
    )
)
def test_any_rows_are_those_of_the_whole(many, rows):
    whole = made_features(StoreReader(many), MANY, 7).values_nd

    np.testing.assert_array_equal(open_features(many, ENCODER_ID).read_rows(rows), whole[rows])


def test_only_the_chunks_of_the_rows_are_read_and_each_is_checked(many, tmp_path):
    store = shutil.copytree(many, tmp_path / many.name)
    whole = made_features(StoreReader(store), MANY, 7).values_nd
    chunk = features_path(store, ENCODER_ID) / "values/c/1/0"
    content = bytearray(chunk.read_bytes())
    content[50] ^= 4
    chunk.write_bytes(content)

    stored = pickle.loads(pickle.dumps(open_features(store, ENCODER_ID)))

    np.testing.assert_array_equal(stored.read_rows(np.array([2400, 3, 3])), whole[[2400, 3, 3]])
    np.testing.assert_array_equal(stored.read_rows(slice(0, 1024)), whole[:1024])
    for rows in (slice(None), np.array([1024])):
        with pytest.raises(UnreadableError, match=r"c/1/0: the checksum of its .* bytes does not match"):
            stored.read_rows(rows)
    with pytest.raises(IndexError):
        stored.read_rows(np.array([MANY]))
    assert "c/1/0" in find_overlay_damage(store)[0]


@pytest.mark.parametrize(
    ("value", "shown"), [(np.nan, "nan"), (np.inf, "inf"), (-65520.0, "-65520"), (1e30, r"1e\+30")]
)
def test_a_value_that_half_precision_cannot_hold_is_refused_with_its_place(value, shown):
    values_nd = np.ones((3, 4), np.float32)
    values_nd[2, 1] = value

    with pytest.raises(ImplausibleOutputError, match=rf"S-1, lite0: feature 1 of tile 1002 is {shown}; .* 65,504"):
        to_float16(values_nd, "S-1, lite0", first_tile=1000)


@given(arrays(np.float32, (2, 3), elements=st.floats(-65504, 65504, width=32)))
def test_values_are_stored_as_the_nearest_half(values_nd):
    halves = to_float16(values_nd, "")

    assert halves.dtype == np.float16
    np.testing.assert_allclose(halves, values_nd, rtol=2**-11, atol=2**-25)


def test_no_tiles_are_refused(slide, tmp_path):
    store = shutil.copytree(slide, tmp_path / slide.name)

    with pytest.raises(EmptyTableError, match="slide S-1, encoder lite0-0123abcd: no tiles"):
        write(store, made_features(StoreReader(store), 0))
    assert list_features(store) == []


IMPOSSIBLE = {
    "float32": (lambda f: {"values_nd": f.values_nd.astype(np.float32)}, "values of type float32"),
    "a corner too few": (lambda f: {"xy0_n2": f.xy0_n2[1:]}, r"shape \(11, 2\) for 12 tiles"),
    "64-bit corners": (lambda f: {"xy0_n2": f.xy0_n2.astype(np.int64)}, "corners of type int64"),
    "NaN": (lambda f: {"values_nd": np.where(np.eye(12, 5) > 0, np.float16(np.nan), f.values_nd)}, "feature 0 of tile"),
    "below": (
        lambda f: {"xy0_n2": f.xy0_n2 + np.int32([0, 1210])},
        r"at \(0, 1210\), outside the slide of 1300 × 1210",
    ),
    "left": (lambda f: {"xy0_n2": f.xy0_n2 - np.int32([48, 0])}, r"tile 0 begins at \(-48, 0\), outside"),
    "twice": (lambda f: {"xy0_n2": np.where(np.arange(12)[:, None] == 9, f.xy0_n2[4], f.xy0_n2)}, "tiles 4 and 9 both"),
    "no side": (lambda f: {"side_px0": 0.0}, "`side_px0`"),
    "no weights": (lambda f: {"attributes": {**f.attributes, "weights_sha256": None}}, "SHA-256 of their encoder's"),
    "no source": (lambda f: {"attributes": {**f.attributes, "made_from": {}}}, "`made_from.source_sha256`"),
}


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_impossible_features_are_not_written_and_older_ones_stay(store, case):
    before = read_features(store, ENCODER_ID)
    change, message = IMPOSSIBLE[case]

    with pytest.raises(ImplausibleOutputError, match=message):
        write(store, replace(before, **change(before)))

    assert same(read_features(store, ENCODER_ID), before)


def test_features_appear_whole_or_not_at_all_and_replace_older_ones(store):
    older, newer = read_features(store, ENCODER_ID), made_features(StoreReader(store), 30, 3)

    with pytest.raises(KeyboardInterrupt), new_features(store, newer):
        raise KeyboardInterrupt
    assert same(read_features(store, ENCODER_ID), older)
    with new_features(store, newer):
        assert same(read_features(store, ENCODER_ID), older)

    assert same(read_features(store, ENCODER_ID), newer)
    assert sorted(p.name for p in (store / "features").iterdir()) == [ENCODER_ID, "zarr.json"]


def test_features_of_several_encoders_lie_side_by_side(store):
    reader = StoreReader(store)
    write(store, made_features(reader, 20, 3, encoder_id="wide-00000001"))
    (store / "features/.left.partial").mkdir()
    (store / "features/half").mkdir()

    assert list_features(store) == [ENCODER_ID, "wide-00000001"]
    assert same(read_features(store, ENCODER_ID), made_features(reader))
    assert find_overlay_damage(store) == []


def shuffled(store):
    path = features_path(store, ENCODER_ID) / "xy0"
    overwrite_array(path, made_features(StoreReader(store)).xy0_n2[::-1].copy())


def with_nan_and_its_hash(store):
    made = made_features(StoreReader(store))
    values_nd = made.values_nd.copy()
    values_nd[7, 2] = np.nan
    overwrite_array(features_path(store, ENCODER_ID) / "values", values_nd)
    edit_attribute(features_path(store, ENCODER_ID), values_sha256=values_sha256(values_nd, made.xy0_n2))


def outside_with_its_hash(store):
    made = made_features(StoreReader(store))
    xy0_n2 = made.xy0_n2.copy()
    xy0_n2[5, 0] = 1300
    overwrite_array(features_path(store, ENCODER_ID) / "xy0", xy0_n2)
    edit_attribute(features_path(store, ENCODER_ID), values_sha256=values_sha256(made.values_nd, xy0_n2))


def one_tile_less(store):
    overwrite_array(features_path(store, ENCODER_ID) / "xy0", made_features(StoreReader(store)).xy0_n2[:-1].copy())


def single_precision(store):
    values_nd = made_features(StoreReader(store)).values_nd.astype(np.float32)
    overwrite_array(features_path(store, ENCODER_ID) / "values", values_nd)


DAMAGE = {
    "shuffled corners": (shuffled, "SHA-256 of 12 tiles differs"),
    "NaN": (with_nan_and_its_hash, "feature 2 of tile 7 is nan"),
    "outside": (outside_with_its_hash, r"tile 5 begins at \(1300, 0\)"),
    "one tile less": (one_tile_less, r"float16 values \(12, 5\) with int32 corners \(11, 2\)"),
    "float32": (single_precision, r"float32 values \(12, 5\)"),
    "no values": (lambda store: shutil.rmtree(features_path(store, ENCODER_ID) / "values"), "values"),
    "another version": (lambda store: edit_attribute(features_path(store, ENCODER_ID), version=2), "`version`"),
    "an infinite side": (lambda store: edit_attribute(features_path(store, ENCODER_ID), side_px0=1e999), "infinite"),
    "imported and made": (
        lambda store: edit_attribute(features_path(store, ENCODER_ID), encoder={"imported": {}}),
        "or were imported",
    ),
    "imported as nothing": (
        lambda store: edit_attribute(features_path(store, ENCODER_ID), weights_sha256=None, encoder={"imported": 3}),
        "imported 3 by an encoder called None",
    ),
    "no row": (lambda store: edit_attribute(features_path(store, ENCODER_ID), encoder=None), "`encoder`"),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_features_that_are_not_as_written_are_refused_and_found_by_verify(store, case):
    damage, message = DAMAGE[case]
    damage(store)

    with pytest.raises(UnreadableError, match=message) as caught:
        read_features(store, ENCODER_ID)

    assert str(caught.value).startswith(str(features_path(store, ENCODER_ID)))
    assert "gemslide embed" in str(caught.value)
    (finding,) = find_overlay_damage(store)
    assert str(features_path(store, ENCODER_ID)) in finding


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """Store of another slide of the same size, with features of the same encoder."""
    source = write_jpeg_pyramid(tmp_path_factory.mktemp("other") / "b.tiff", [sample_image(400, 300, seed=4)])
    store = ingest(source, source.parent, slide_id="S-2").store
    write(store, made_features(StoreReader(store)))
    return store


def copied_from_another_slide(store, other):
    shutil.rmtree(features_path(store, ENCODER_ID))
    shutil.copytree(features_path(other, ENCODER_ID), features_path(store, ENCODER_ID))
    return ENCODER_ID, "holds features of the slide with SHA-256"


def renamed(store, other):
    features_path(store, ENCODER_ID).rename(features_path(store, "wide-00000001"))
    return "wide-00000001", "holds features of encoder 'lite0-0123abcd', not of 'wide-00000001'"


def renamed_and_edited(store, other):
    encoder_id, _ = renamed(store, other)
    edit_attribute(features_path(store, encoder_id), encoder_id=encoder_id)
    return encoder_id, "holds features of encoder 'lite0-0123abcd', not of 'wide-00000001'"


def other_weights(store, other):
    edit_attribute(features_path(store, ENCODER_ID), weights_sha256="c" * 64)
    return ENCODER_ID, "an encoder 'lite0-0123abcd' with other weights"


def said_to_be_imported(store, other):
    edit_attribute(
        features_path(store, ENCODER_ID),
        weights_sha256=None,
        encoder={"name": "lite0", "imported": {"from": "clam"}},
        made_from={"source_sha256": StoreReader(store).source_sha256},
    )
    return ENCODER_ID, "holds imported features of encoder 'lite0-[0-9a-f]{8}', not of 'lite0-0123abcd'"


@pytest.mark.parametrize(
    "swap", [copied_from_another_slide, renamed, renamed_and_edited, other_weights, said_to_be_imported]
)
def test_features_of_another_slide_or_encoder_are_refused_and_found_by_verify(store, other, swap):
    encoder_id, message = swap(store, other)

    for read in (open_features, read_features):
        with pytest.raises(WrongSlideError, match=message):
            read(store, encoder_id)
    assert message[:20] in find_overlay_damage(store)[0]


def test_weights_that_the_reader_expects_are_compared(store):
    assert open_features(store, ENCODER_ID, weights_sha256=WEIGHTS).num_tiles == 12
    with pytest.raises(WrongSlideError, match="with other weights"):
        read_features(store, ENCODER_ID, weights_sha256="d" * 64)


def test_another_slide_s_features_are_not_written(store, other):
    with pytest.raises(WrongSlideError, match="holds features of the slide with SHA-256"):
        write(store, made_features(StoreReader(other)))


def test_missing_features_name_those_that_are_there(store):
    with pytest.raises(UnreadableError, match=r"The slide has: lite0-0123abcd\. Make them again with `gemslide embed`"):
        open_features(store, "none-00000000")
    with pytest.raises(BadManifestError, match="allowed are"):
        features_path(store, "../labels")


def test_a_store_with_features_passes_verify_and_its_pixels_stay(other, gemslide):
    reader = StoreReader(other)

    done = gemslide("verify", "S-2", "--project", other.parent.parent, "--sample-chunks", "all", "--json")

    assert (done.code, json.loads(done.out)["status"]) == (0, "done"), done.out
    assert "every chunk decoded" in verify_store(other, every_chunk=True)
    assert reader.read_region(0, Box(0, 0, 400, 300)).shape == (300, 400, 3)
