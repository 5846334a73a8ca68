"""Features for TRIDENT, CLAM and STAMP: they read what the store holds, and it takes back what they hold."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys

import h5py
import numpy as np
import pytest

from pipeline.errors import BadManifestError
from pipeline.export.features.exchange import FeatureFile, export_features, import_features, store_imported
from pipeline.export.features.tile_size import TileSize
from pipeline.project import Project
from pipeline.store.layers.features import features_path, list_features, new_features, read_features
from pipeline.store.reading.reader import StoreReader
from tests.pipeline.export.foreign_files import FILES, GIVEN, exchange_project, with_one, written
from tests.pipeline.store.made_features import ENCODER_ID, made_features
from training.foundation.errors import (
    BadRecipeError,
)


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    return exchange_project(tmp_path_factory.mktemp("exchange"))


@pytest.fixture(scope="module")
def reader(project):
    return StoreReader(project.store_path("S-1"))


@pytest.fixture(scope="module")
def finer_reader(project):
    return StoreReader(project.store_path("S-2"))


@pytest.fixture(scope="module")
def features(reader):
    return read_features(reader.path, ENCODER_ID)


@pytest.fixture(params=FILES)
def program(request):
    return request.param


def read_as_trident(path):
    """Features, corners and the tile's side, as TRIDENT's slide encoders take them from a file."""
    with h5py.File(path, "r") as file:
        stated = dict(file["coords"].attrs)
        values, corners = file["features"][:], file["coords"][:]
        per_px = stated["level0_magnification"] / stated["target_magnification"]
        assert stated["patch_size_level0"] == pytest.approx(stated["patch_size"] * per_px)
    return values, corners, stated


def read_as_clam(folder, slide_id):
    """Features and corners as CLAM's two data sets load them: a tensor alone, or both from HDF5."""
    import torch

    tensor = torch.load(folder / f"pt_files/{slide_id}.pt", weights_only=True)
    with h5py.File(folder / f"h5_files/{slide_id}.h5", "r") as file:
        values, corners = file["features"][:], file["coords"][:]
    assert (tensor.dtype, tensor.is_contiguous()) == (torch.float32, True)
    np.testing.assert_array_equal(tensor.numpy(), values)
    return values, corners


def read_as_stamp(path):
    """Features, corners in µm and the tile's size as STAMP loads them; it refuses files of newer versions of itself."""
    with h5py.File(path, "r") as file:
        assert file.attrs["unit"] == "um"
        assert (file.attrs["feat_type"], "stamp_version" in file.attrs) == ("tile", False)
        size_um, size_px = float(file.attrs["tile_size_um"]), int(file.attrs["tile_size_px"])
        values, corners_um = file["feats"][:].astype(np.float32), file["coords"][:].astype(np.float32)
    return values, corners_um, (size_um, size_px)


def test_trident_reads_what_the_store_holds(tmp_path, reader, features):
    (path,) = export_features(reader, "trident", tmp_path)

    values, corners, stated = read_as_trident(path)

    assert path == tmp_path / "S-1.h5"
    np.testing.assert_array_equal(values, features.values_nd.astype(np.float32))
    np.testing.assert_array_equal(corners, features.xy0_n2)
    assert (values.dtype, corners.dtype) == (np.float32, np.int64)
    assert stated == {
        "patch_size": 16, "patch_size_level0": 32, "overlap": 4, "level0_width": 400, "level0_height": 300,
        "target_magnification": 10, "level0_magnification": 20, "name": "S-1",
    }  # fmt: skip


def test_clam_reads_what_the_store_holds(tmp_path, reader, features):
    paths = export_features(reader, "clam", tmp_path)

    values, corners = read_as_clam(tmp_path, "S-1")

    assert paths == (tmp_path / "h5_files/S-1.h5", tmp_path / "pt_files/S-1.pt")
    np.testing.assert_array_equal(values, features.values_nd.astype(np.float32))
    np.testing.assert_array_equal(corners, features.xy0_n2)


def test_stamp_reads_what_the_store_holds(tmp_path, reader, features):
    (path,) = export_features(reader, "stamp", tmp_path)

    values, corners_um, size = read_as_stamp(path)

    np.testing.assert_array_equal(values, features.values_nd.astype(np.float32))
    np.testing.assert_array_equal(corners_um, features.xy0_n2 * 0.5)
    assert size == (16.0, 16)


def test_two_scans_of_one_slide_have_the_same_micrometres(tmp_path, reader, finer_reader):
    for one in (reader, finer_reader):
        for program in FILES:
            export_features(one, program, tmp_path / program)

    coarse, fine = (read_as_stamp(tmp_path / f"stamp/{slide_id}.h5") for slide_id in ("S-1", "S-2"))
    np.testing.assert_array_equal(coarse[1], fine[1])
    assert coarse[2] == fine[2]
    for slide_id, mpp0, side_px0 in (("S-1", 0.5, 32), ("S-2", 0.25, 64)):
        _, corners, stated = read_as_trident(tmp_path / f"trident/{slide_id}.h5")
        np.testing.assert_array_equal(corners * mpp0, coarse[1])
        assert (stated["patch_size_level0"], stated["level0_magnification"]) == (side_px0, 10 / mpp0)
        assert (stated["patch_size"], stated["target_magnification"]) == (16, 10)
        np.testing.assert_array_equal(read_as_clam(tmp_path / "clam", slide_id)[1] * mpp0, coarse[1])


@pytest.mark.parametrize("slide_id", ["S-1", "S-2"])
def test_what_is_exported_is_imported_as_it_was(tmp_path, project, program, slide_id):
    reader = StoreReader(project.store_path(slide_id))
    kept = read_features(reader.path, ENCODER_ID)
    path = export_features(reader, program, tmp_path)[0]
    given = TileSize(side_px0=kept.side_px0) if program == "clam" else TileSize()

    taken = import_features(reader, FeatureFile(path, program, "lite", given))

    np.testing.assert_array_equal(taken.values_nd, kept.values_nd)
    np.testing.assert_array_equal(taken.xy0_n2, kept.xy0_n2)
    assert taken.side_px0 == kept.side_px0
    assert taken.stride_px0 == (kept.stride_px0 if program == "trident" else kept.side_px0)
    assert (taken.tile_px, taken.mpp) == ((None, None) if program == "clam" else (16, kept.mpp))
    assert taken.attributes["encoder"]["imported"].keys() == {"from", "sha256"}
    assert taken.attributes["made_from"]["source_sha256"] == reader.source_sha256
    assert str(tmp_path) not in json.dumps(taken.attributes)


def test_corners_between_pixels_in_micrometres_are_placed_within_half_a_pixel(tmp_path, reader, features):
    moved_um = features.xy0_n2 * 0.5 + np.random.default_rng(1).uniform(0, 0.24, features.xy0_n2.shape)
    path = written(tmp_path, "stamp", features, coords=moved_um.astype(np.float32))

    taken = import_features(reader, FeatureFile(path, "stamp", "lite"))

    assert np.abs(taken.xy0_n2 - moved_um / 0.5).max() <= 0.5


def test_equal_features_make_equal_files(tmp_path, reader, program):
    one, other = (export_features(reader, program, tmp_path / name) for name in ("one", "other"))

    assert [path.read_bytes() for path in one] == [path.read_bytes() for path in other]


def test_what_is_there_is_not_replaced(tmp_path, reader, program):
    (path, *_) = export_features(reader, program, tmp_path)
    before = path.read_bytes()

    with pytest.raises(BadRecipeError, match="already exists"):
        export_features(reader, program, tmp_path)

    assert path.read_bytes() == before


LIMITED = """
import resource, signal, sys
from pathlib import Path
from pipeline.export.features.exchange import export_features
from pipeline.store.reading.reader import StoreReader
from training.foundation.errors import DiskFullError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
reader = StoreReader(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
for program in ("trident", "clam", "stamp"):
    try:
        export_features(reader, program, Path(sys.argv[2]) / program)
    except DiskFullError as error:
        print(error)
"""


def test_a_file_size_limit_is_one_clear_error_and_leaves_nothing(tmp_path, reader):
    command = [sys.executable, "-c", LIMITED, str(reader.path), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)

    assert done.stdout.count("cannot be written (File too large") == 3, done.stdout + done.stderr
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_slides_of_a_cohort_get_one_id_unless_something_else_is_stated(tmp_path, reader, finer_reader, features):
    def id_of(name="lite", program="stamp", *, into=reader, values=None, given=None, **attributes):
        path = written(tmp_path, program, features, values=values, attributes=attributes)
        return import_features(into, FeatureFile(path, program, name, given or GIVEN[program])).encoder_id

    same = {id_of(), id_of(values=with_one(features.values_nd, (0, 0), 2.0)), id_of(into=finer_reader)}
    others = {
        id_of("other"), id_of(program="clam"), id_of(program="clam", given=TileSize(16, 1.0)),
        id_of(extractor="another"), id_of(values=features.values_nd[:, :4].astype(np.float32)),
    }  # fmt: skip

    (one,) = same
    assert (one[:-8], len(one)) == ("lite-", 13)
    assert len(others - same) == 5


def test_other_features_under_a_name_are_not_mixed_with_those_that_are_there(copy, tmp_path, features):
    reader = StoreReader(copy.store_path("S-1"))

    def store(values=None, name="uni", coords=None):
        path = written(tmp_path, "trident", features, values=values, coords=coords)
        return store_imported(reader, import_features(reader, FeatureFile(path, "trident", name)))

    assert (store(), store()) == (True, False)
    before = list_features(reader.path)
    for changes in (
        {"values": with_one(features.values_nd, (0, 0), 2.0)},
        {"coords": features.xy0_n2[::-1]},
    ):
        with pytest.raises(BadManifestError, match=r"has other features imported as uni-.* made with other weights"):
            store(**changes)
    with pytest.raises(BadManifestError, match=f"an encoder 'lite0' that were made here .{ENCODER_ID}"):
        store(name="lite0")
    assert list_features(reader.path) == before
    (uni,) = set(before) - {ENCODER_ID}
    shutil.rmtree(features_path(reader.path, uni) / "xy0")
    assert store(values=with_one(features.values_nd, (0, 0), 2.0))


def test_a_name_in_no_known_encoding_is_as_good_as_any(tmp_path, reader, features):
    path = written(tmp_path, "stamp", features, attributes={"extractor": np.bytes_(b"M\xfcller")})

    taken = import_features(reader, FeatureFile(path, "stamp", "lite"))

    assert taken.attributes["encoder"]["stated_name_sha256"] is not None
    assert "ller" not in json.dumps(taken.attributes)


def test_imported_features_state_no_name_of_the_file(tmp_path, reader, features):
    path = written(tmp_path, "trident", features)

    taken = import_features(reader, FeatureFile(path, "trident", "lite"))

    assert "jane" not in json.dumps(taken.attributes)
    assert str(path.name) not in json.dumps(taken.attributes)


@pytest.fixture
def copy(project, tmp_path):
    """The project, to be changed."""
    shutil.copytree(project.slides_dir, tmp_path / "p/slides")
    return Project(tmp_path / "p")


def lines_of(done):
    return [json.loads(line) for line in done.out.splitlines()]


def test_features_are_listed_exported_and_imported_by_verbs(gemslide, copy, tmp_path):
    listed = gemslide("features", "list", "--project", copy.root, "--json")
    exported = gemslide(
        "features",
        "export",
        "S-1",
        "S-2",
        "--to",
        "trident",
        "--out",
        tmp_path / "Doe",
        "--project",
        copy.root,
        "--json",
    )
    arguments = (
        tmp_path / "Doe/S-2.h5",
        "--slide",
        "S-2",
        "--from",
        "trident",
        "--encoder",
        "uni",
        "--project",
        copy.root,
    )
    imported, again = (gemslide("features", "import", *arguments, "--json") for _ in range(2))

    assert (listed.code, exported.code, imported.code, again.code) == (0, 0, 0, 0), exported.err + imported.err
    assert [(line["slide_id"], [f["encoder_id"] for f in line["features"]]) for line in lines_of(listed)] == [
        ("S-1", [ENCODER_ID]), ("S-2", [ENCODER_ID]),
    ]  # fmt: skip
    assert lines_of(listed)[1]["features"][0] == {
        "encoder_id": ENCODER_ID, "tiles": 20, "dims": 5, "side_px0": 64, "stride_px0": 48, "imported": None,
    }  # fmt: skip
    ((line,), (line_again,)) = lines_of(imported), lines_of(again)
    assert (line["status"], line_again["status"]) == ("done", "skipped")
    (new_id,) = set(list_features(copy.store_path("S-2"))) - {ENCODER_ID}
    assert line["output"] == str(features_path(copy.store_path("S-2"), new_id))
    assert new_id in line["message"]
    np.testing.assert_array_equal(
        read_features(copy.store_path("S-2"), new_id).values_nd,
        read_features(copy.store_path("S-2"), ENCODER_ID).values_nd,
    )
    assert "Doe" not in listed.out + exported.out + imported.out
    records = [path.read_text() for path in copy.runs_dir.glob("*.json")]
    assert sorted(json.loads(record)["verb"] for record in records) == ["features export", *["features import"] * 2]
    assert not any("Doe" in record for record in records)
    assert gemslide("verify", "S-2", "--project", copy.root).code == 0
    shown = gemslide("features", "list", "S-2", "--project", copy.root).out
    assert f"{new_id}: 20 tiles of 64 px0, 5 features each" in shown


def test_clam_s_list_has_the_cases_and_labels_of_the_manifest(gemslide, copy, tmp_path):
    manifest = tmp_path / "cohort.csv"
    manifest.write_text('path,slide_id,patient_id,label\na.tiff,S-1,P-9,"tumour, large"\nb.tiff,S-2,P-8,\n')
    export = ("features", "export", "--to", "clam", "--project", copy.root, "--out")

    with_cases = gemslide(*export, tmp_path / "one", manifest)
    without = gemslide(*export, tmp_path / "two", "S-2")
    again = gemslide(*export, tmp_path / "two", "S-1")

    assert (with_cases.code, without.code, again.code) == (0, 0, 1), with_cases.err + without.err
    with (tmp_path / "one/slides.csv").open(newline="") as stream:
        assert list(csv.reader(stream)) == [
            ["case_id", "slide_id", "label"], ["P-9", "S-1", "tumour, large"], ["P-8", "S-2", ""],
        ]  # fmt: skip
    assert (tmp_path / "two/slides.csv").read_text() == "case_id,slide_id,label\nS-2,S-2,\n"
    assert "has no labels" in without.err
    assert "slides.csv: already exists" in again.err
    assert not (tmp_path / "two/pt_files/S-1.pt").exists()


def test_a_slide_that_fails_does_not_stop_the_others(gemslide, copy, tmp_path):
    chunk = features_path(copy.store_path("S-1"), ENCODER_ID) / "values/c/0/0"
    chunk.write_bytes(chunk.read_bytes()[:-1])

    done = gemslide(
        "features", "export", "S-1", "S-2", "--to", "stamp", "--out", tmp_path / "out", "--project", copy.root, "--json"
    )

    assert done.code == 1
    assert [(line["slide_id"], line["status"]) for line in lines_of(done)] == [("S-1", "unreadable"), ("S-2", "done")]
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["S-2.h5"]


def test_of_several_encoders_one_must_be_chosen(gemslide, copy, tmp_path):
    reader = StoreReader(copy.store_path("S-1"))
    with new_features(reader.path, made_features(reader, 3, encoder_id="wide-00000001")):
        pass
    export = ("features", "export", "S-1", "--to", "stamp", "--out", tmp_path / "out", "--project", copy.root)

    unclear = gemslide(*export)
    unknown = gemslide(*export, "--encoder", "none-00000000")
    chosen = gemslide(*export, "--encoder", "wide-00000001")

    assert (unclear.code, unknown.code, chosen.code) == (1, 1, 0)
    assert f"Choose one with --encoder: {ENCODER_ID}, wide-00000001" in unclear.err
    assert "no readable features" in unknown.err
    assert len(read_as_stamp(tmp_path / "out/S-1.h5")[0]) == 3


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["uni", "conch"], "--encoder uni, conch: one file holds the features of one encoder"),
        (["lite0"], "is an encoder of this project"),
        (["../x"], "allowed are"),
        (["uni conch"], "allowed are"),
        (["x" * 56], "at most 55"),
    ],
)
def test_an_encoder_s_name_that_cannot_be_given_is_refused(gemslide, copy, tmp_path, features, names, message):
    (copy.root / "encoders").mkdir()
    (copy.root / "encoders/lite0.toml").write_text("")
    path = written(tmp_path, "trident", features)
    options = [option for name in names for option in ("--encoder", name)]

    done = gemslide("features", "import", path, "--slide", "S-1", "--from", "trident", *options, "--project", copy.root)

    assert done.code == 1
    assert message in " ".join(done.err.split())
    assert list_features(copy.store_path("S-1")) == [ENCODER_ID]


def test_a_json_line_of_a_refused_import_names_no_file(gemslide, copy, tmp_path, features):
    path = written(tmp_path, "clam", features).rename(tmp_path / "Mustermann^Erika.h5")
    arguments = (
        "features",
        "import",
        path,
        "--slide",
        "S-1",
        "--from",
        "clam",
        "--encoder",
        "uni",
        "--project",
        copy.root,
    )

    done, shown = gemslide(*arguments, "--json"), gemslide(*arguments)

    assert (done.code, lines_of(done)[0]["code"]) == (1, "bad_recipe")
    assert "Mustermann" not in done.out + done.err
    assert "Mustermann" in shown.err
