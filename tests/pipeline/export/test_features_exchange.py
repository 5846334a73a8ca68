"""Features for TRIDENT, CLAM and STAMP: they read what the store holds, and it takes what they hold, or refuses it."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
import zlib
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest

from pipeline.errors import BadManifestError, WrongSlideError
from pipeline.export.features.exchange import FeatureFile, export_features, import_features, store_imported
from pipeline.export.features.foreign import Wanted, limits_for, read_foreign
from pipeline.export.features.tile_size import TileSize
from pipeline.project import Project
from pipeline.store.layers.features import features_path, list_features, new_features, read_features
from pipeline.store.reading.reader import StoreReader
from tests.pipeline.make import ingest, sample_image, write_jpeg_pyramid
from tests.pipeline.store.made_features import ENCODER_ID, made_features
from training.foundation.errors import (
    BadRecipeError,
    DecompressionBombError,
    EmptyTableError,
    GemslideError,
    ImplausibleOutputError,
    UnreadableError,
)

SIDE_ONLY = TileSize(side_px0=32.0)
GIVEN = {"trident": TileSize(), "clam": SIDE_ONLY, "stamp": TileSize()}
FILES = {"trident": "S-1.h5", "clam": "h5_files/S-1.h5", "stamp": "S-1.h5"}


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """Two slides with features: S-1 of 400 × 300 px at 0.5 µm/px, and S-2, the same at 0.25 µm/px with 800 × 600 px."""
    root = tmp_path_factory.mktemp("exchange")
    for number, (scale, mpp) in enumerate(((1, 0.5), (2, 0.25)), start=1):
        pixels = np.kron(sample_image(400, 300), np.ones((scale, scale, 1), np.uint8))
        source = write_jpeg_pyramid(root / f"{number}.tiff", [pixels], mpp=mpp)
        reader = StoreReader(ingest(source, root, slide_id=f"S-{number}").store)
        made = made_features(StoreReader(root / "slides/S-1.ome.zarr"), 20)
        made_from = made.attributes["made_from"] | {"source_sha256": reader.source_sha256}
        with new_features(
            reader.path,
            replace(
                made, xy0_n2=made.xy0_n2 * np.int32(scale), side_px0=32.0 * scale, stride_px0=24.0 * scale,
                attributes={**made.attributes, "made_from": made_from},
            ),
        ):  # fmt: skip
            pass
    return Project(root)


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


def written(folder: Path, program: str, features, *, coords=None, values=None, attributes=None) -> Path:
    """A file as the program itself writes it, with parts replaced; an attribute that is None is left out."""
    path = folder / "in.h5"
    values = features.values_nd.astype(np.float32) if values is None else values
    own = {"unit": "um", "tile_size_um": 16.0, "tile_size_px": 16, "extractor": "e", "feat_type": "tile"}
    if program == "trident":
        own = {
            "patch_size": 16, "patch_size_level0": 32, "overlap": 4, "level0_width": 400, "level0_height": 300,
            "target_magnification": 10, "level0_magnification": 20, "name": "x", "savetodir": "/home/jane",
        }  # fmt: skip
    corners = features.xy0_n2 * (0.5 if program == "stamp" else 1)
    with h5py.File(path, "w") as file:
        file["feats" if program == "stamp" else "features"] = values
        file["coords"] = corners if coords is None else coords
        if program != "clam":
            kept = {name: value for name, value in {**own, **(attributes or {})}.items() if value is not None}
            (file if program == "stamp" else file["coords"]).attrs.update(kept)
    return path


def refused(reader, path, program, given=None):
    """The error of an import that must be refused; it names the file, in one sentence or a few."""
    with pytest.raises(GemslideError) as caught:
        import_features(reader, FeatureFile(path, program, "lite", GIVEN[program] if given is None else given))
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    return type(caught.value), str(caught.value)


def with_one(array, index, value):
    changed = array.astype(np.float64)
    changed[index] = value
    return changed


WRONG_VALUES = {
    "NaN": (lambda v: with_one(v, (3, 1), np.nan), ImplausibleOutputError, "feature 1 of tile 3 is nan"),
    "infinite": (lambda v: with_one(v, (3, 1), -np.inf), ImplausibleOutputError, "feature 1 of tile 3 is -inf"),
    "too large": (lambda v: with_one(v, (19, 4), 1e9), ImplausibleOutputError, "feature 4 of tile 19 is 1e+09"),
    "a tile more": (lambda v: np.vstack([v, v[:1]]), BadManifestError, "features of 21 tiles"),
    "whole numbers": (lambda v: v.astype(np.int32), UnreadableError, "values of type int32"),
    "one vector": (lambda v: v[0], UnreadableError, "has the shape (5,)"),
    "a batch of two": (lambda v: np.stack([v, v]), UnreadableError, "has the shape (2, 20, 5)"),
    "no tiles": (lambda v: v[:0], EmptyTableError, "has the shape (0, 5)"),
    "a number": (lambda v: np.float32(1), UnreadableError, "has the shape ()"),
}


@pytest.mark.parametrize("case", WRONG_VALUES)
def test_values_that_cannot_be_are_refused(tmp_path, reader, features, program, case):
    change, kind, message = WRONG_VALUES[case]
    path = written(tmp_path, program, features, values=change(features.values_nd.astype(np.float32)))

    assert refused(reader, path, program)[0] is kind
    assert message in refused(reader, path, program)[1]


WRONG_CORNERS = {
    "outside": (lambda c: with_one(c, (4, 0), 400), "tile 4 begins at (400, 0)"),
    "far outside": (lambda c: with_one(c, (4, 0), 1e300), "tile 4 begins at"),
    "negative": (lambda c: with_one(c, (4, 1), -3), "outside the slide of 400 × 300 px0"),
    "not a number": (lambda c: with_one(c, (4, 1), np.nan), "of tile 4 is"),
    "twice": (lambda c: with_one(c, 4, c[9]), "tiles 4 and 9 both begin at"),
    "too few": (lambda c: c[:-1], "has the shape (19, 2)"),
    "three axes": (lambda c: np.hstack([c, c[:, :1]]), "has the shape (20, 3)"),
}


@pytest.mark.parametrize("case", WRONG_CORNERS)
def test_corners_that_cannot_be_are_refused(tmp_path, reader, features, program, case):
    change, message = WRONG_CORNERS[case]
    corners = change(features.xy0_n2) * (0.5 if program == "stamp" else 1)
    path = written(tmp_path, program, features, coords=corners)

    kind, words = refused(reader, path, program)

    assert kind is BadManifestError
    assert message in words


@pytest.mark.parametrize("program", ["trident", "clam"])
def test_corners_between_pixels_are_refused_where_they_must_be_whole(tmp_path, reader, features, program):
    path = written(tmp_path, program, features, coords=with_one(features.xy0_n2, (2, 0), 48.5))

    assert refused(reader, path, program) == (BadManifestError, words_of_half_a_pixel(path))


def words_of_half_a_pixel(path):
    return (
        f"{path}: tile 2 begins at (48.5, 0.0); whole level-0 pixels are expected. Coordinates in µm or of another "
        "level are not imported."
    )


NOT_STATED = {
    "clam": ("clam", {}, TileSize(), BadRecipeError, "does not state how large a tile is"),
    "clam, no mpp": ("clam", {}, TileSize(tile_px=16), BadRecipeError, "--tile-px and --mpp"),
    "clam, no pixels": ("clam", {}, TileSize(mpp=1.0), BadRecipeError, "Add --side-px0"),
    "trident": (
        "trident", {"patch_size_level0": None, "target_magnification": None}, TileSize(), BadRecipeError, "--side-px0",
    ),
    "trident, overlap": (
        "trident", {"patch_size": None}, TileSize(), BadRecipeError, "its tiles overlap by 4 px. Add --tile-px",
    ),
    "trident, another side": ("trident", {}, TileSize(side_px0=40), BadRecipeError, "the file 32, --side-px0 40"),
    "trident, other pixels": ("trident", {}, TileSize(tile_px=224), BadRecipeError, "but --tile-px is 224"),
    "trident, another mpp": ("trident", {}, TileSize(mpp=0.5), BadRecipeError, "tile pixels × --mpp 16"),
    "trident, all overlap": ("trident", {"overlap": 16}, TileSize(), BadManifestError, "overlap by 16 px"),
    "trident, another slide": ("trident", {"level0_width": 300}, TileSize(), WrongSlideError, "S-1 has 400"),
    "trident, a text": ("trident", {"patch_size": "16"}, TileSize(), UnreadableError, "not a number"),
    "trident, negative": ("trident", {"patch_size_level0": -32}, TileSize(), BadManifestError, "cannot be"),
    "trident, NaN": ("trident", {"patch_size_level0": np.nan}, TileSize(), UnreadableError, "is nan"),
    "trident, huge": ("trident", {"patch_size_level0": 2**30}, TileSize(), BadManifestError, "which cannot be"),
    "stamp": ("stamp", {"tile_size_um": None}, TileSize(), BadRecipeError, "--side-px0"),
    "stamp, no unit": ("stamp", {"unit": None}, TileSize(), UnreadableError, "`unit` is None"),
    "stamp, pixels": ("stamp", {"unit": "px"}, TileSize(), UnreadableError, "`unit` is 'px'"),
    "stamp, unit 1": ("stamp", {"unit": 1}, TileSize(), UnreadableError, "`unit` is not a text"),
    "stamp, a slide's": ("stamp", {"feat_type": "slide"}, TileSize(), UnreadableError, "features of a 'slide'"),
    "stamp, two extractors": ("stamp", {"extractor": ["uni", "conch"]}, TileSize(), UnreadableError, "is not a text"),
    "stamp, half a pixel": ("stamp", {"tile_size_px": 15.5}, TileSize(), BadManifestError, "15.5 px cannot be"),
}  # fmt: skip


@pytest.mark.parametrize("case", NOT_STATED)
def test_what_is_not_stated_must_be_given_and_nothing_is_guessed(tmp_path, reader, features, case):
    program, attributes, given, kind, message = NOT_STATED[case]
    path = written(tmp_path, program, features, attributes=attributes)

    assert refused(reader, path, program, given)[0] is kind
    assert message in refused(reader, path, program, given)[1]


@pytest.mark.parametrize(
    ("program", "attributes", "given", "expected"),
    [
        ("clam", {}, TileSize(16, 1.0), (32, 32, 16, 1.0)),
        ("clam", {}, TileSize(side_px0=32.5), (32.5, 32.5, None, None)),
        ("clam", {}, TileSize(16, side_px0=32), (32, 32, 16, 1.0)),
        ("trident", {"patch_size_level0": None}, TileSize(), (32, 24, 16, 1.0)),
        ("trident", {"patch_size_level0": None, "level0_magnification": None}, TileSize(mpp=1), (32, 24, 16, 1)),
        ("trident", {"overlap": None, "patch_size": None}, TileSize(), (32, 32, None, None)),
        ("stamp", {"tile_size_um": None, "tile_size": 16.0}, TileSize(), (32, 32, 16, 1.0)),
        ("stamp", {"tile_size_px": None}, TileSize(mpp=0.5), (32, 32, None, 0.5)),
    ],
)
def test_what_is_given_completes_what_is_stated(tmp_path, reader, features, program, attributes, given, expected):
    path = written(tmp_path, program, features, attributes=attributes)

    taken = import_features(reader, FeatureFile(path, program, "lite", given))

    assert (taken.side_px0, taken.stride_px0, taken.tile_px, taken.mpp) == expected


def test_a_batch_of_one_is_read(tmp_path, reader, features):
    path = written(
        tmp_path, "trident", features, values=features.values_nd[None].astype(np.float32), coords=features.xy0_n2[None]
    )

    taken = import_features(reader, FeatureFile(path, "trident", "lite"))

    np.testing.assert_array_equal(taken.values_nd, features.values_nd)
    np.testing.assert_array_equal(taken.xy0_n2, features.xy0_n2)


def test_compressed_data_in_one_chunk_per_tile_are_read(tmp_path, reader, features):
    path = written(tmp_path, "trident", features)
    with h5py.File(path, "r+") as file:
        del file["features"]
        file.create_dataset("features", data=features.values_nd, chunks=(1, 5), compression="gzip", shuffle=True)

    taken = import_features(reader, FeatureFile(path, "trident", "lite"))

    np.testing.assert_array_equal(taken.values_nd, features.values_nd)


def objects(file, folder):
    file.create_dataset("features", (20, 5), h5py.string_dtype())


def compound(file, folder):
    file["features"] = np.zeros((20, 5), [("a", "f4"), ("b", "f4")])


def references(file, folder):
    file.create_dataset("features", (20, 5), h5py.ref_dtype)


def group(file, folder):
    file.create_group("features")["features"] = np.zeros((20, 5))


def elsewhere(folder):
    with h5py.File(folder / "secret.h5", "w") as other:
        other["features"] = np.ones((20, 5), np.float32)
    return folder / "secret.h5"


def external_link(file, folder):
    file["features"] = h5py.ExternalLink(str(elsewhere(folder)), "features")


def soft_link(file, folder):
    file["other"] = np.ones((20, 5), np.float32)
    file["features"] = h5py.SoftLink("/other")


def virtual(file, folder):
    layout = h5py.VirtualLayout((20, 5), np.float32)
    layout[...] = h5py.VirtualSource(elsewhere(folder), "features", (20, 5))
    file.create_virtual_dataset("features", layout)


def external_storage(file, folder):
    (folder / "secret.raw").write_bytes(os.urandom(400))
    file.create_dataset("features", (20, 5), "f4", external=[(str(folder / "secret.raw"), 0, 400)])


def nothing(file, folder):
    file["feature"] = np.ones((20, 5), np.float32)


def empty_dataspace(file, folder):
    file["features"] = h5py.Empty("f4")


def never_written(file, folder):
    file.create_dataset("features", (20, 5), "f4")


def declares_terabytes(file, folder):
    file.create_dataset("features", (2**30, 2**10), "f4", chunks=(1024, 1024))


def declares_more_than_is_read(file, folder):
    data = file.create_dataset("features", (2**20, 2**11), "f2", chunks=(64, 2**11), compression="gzip", shuffle=True)
    full = zlib.compress(bytes(64 * 2**12), 9)
    for first in range(0, 2**20, 64):
        data.id.write_direct_chunk((first, 0), full)


def billions_of_chunks(file, folder):
    file.create_dataset("features", (2**15, 2**10), "f4", chunks=(1, 1))


def a_chunk_that_holds_more_than_it_declares(file, folder):
    data = file.create_dataset("features", (20, 5), "f4", chunks=(20, 5), compression="gzip")
    num_mib = 700
    packer = zlib.compressobj(9, wbits=-15)
    block = packer.compress(bytes(2**20)) + packer.flush(zlib.Z_FULL_FLUSH)
    adler = ((num_mib * 2**20 % 65521) << 16 | 1).to_bytes(4, "big")
    data.id.write_direct_chunk((0, 0), b"\x78\x01" + block * num_mib + b"\x03\x00" + adler)


def junk_in_a_chunk(file, folder):
    data = file.create_dataset("features", (20, 5), "f4", chunks=(20, 5), compression="gzip")
    data.id.write_direct_chunk((0, 0), b"no zlib")


HOSTILE = {
    objects: (UnreadableError, "values of type object"),
    compound: (UnreadableError, "values of type"),
    references: (UnreadableError, "values of type object"),
    group: (UnreadableError, "not a data set stored in the file itself"),
    external_link: (UnreadableError, "a link to something else"),
    soft_link: (UnreadableError, "a link to something else"),
    virtual: (UnreadableError, "not a data set stored in the file itself"),
    external_storage: (UnreadableError, "not a data set stored in the file itself"),
    nothing: (UnreadableError, "has no data set `features`. It has: coords, feature"),
    empty_dataspace: (UnreadableError, "has the shape None"),
    never_written: (DecompressionBombError, "holds 0 bytes of them"),
    declares_terabytes: (DecompressionBombError, "declares 4,398,046,511,104 bytes"),
    declares_more_than_is_read: (DecompressionBombError, "declares 1,048,576 tiles with 2,048 features"),
    billions_of_chunks: (DecompressionBombError, "in 33,554,432 chunks"),
    a_chunk_that_holds_more_than_it_declares: ((UnreadableError, DecompressionBombError), ""),
    junk_in_a_chunk: (UnreadableError, "cannot be read as HDF5"),
}


@pytest.mark.parametrize("plant", HOSTILE, ids=lambda plant: plant.__name__)
def test_hostile_files_are_refused_and_lead_nowhere(tmp_path, reader, features, plant):
    path = written(tmp_path, "clam", features)
    with h5py.File(path, "r+") as file:
        del file["features"]
        plant(file, tmp_path)
    kinds, message = HOSTILE[plant]

    kind, words = refused(reader, path, "clam")

    assert issubclass(kind, kinds)
    assert message in words


def test_a_file_that_the_library_reads_forever_is_one_error_in_time(tmp_path, reader):
    (path,) = export_features(reader, "stamp", tmp_path)
    wanted, hasty = Wanted(("feats", "coords"), texts={"unit": "/"}), replace(limits_for(0), seconds=1.0)
    assert read_foreign(path, wanted, limits=hasty).texts == {"unit": "um"}
    content = bytearray(path.read_bytes())
    content[content.index(b"GCOL") + 24] = 1  # size of the first text; what follows are texts of no length, forever
    path.write_bytes(content)

    with pytest.raises(DecompressionBombError, match=r"S-1.h5: its data take more than 1 s to process"):
        read_foreign(path, wanted, limits=hasty)

    assert read_foreign(export_features(reader, "stamp", tmp_path / "again")[0], wanted, limits=hasty).texts


@pytest.mark.parametrize("content", [b"", b"\x89HDF\r\n\x1a\n", b"\x89HDF\r\n\x1a\n" + bytes(500), b"text"])
def test_what_is_no_hdf5_file_is_refused(tmp_path, reader, program, content):
    (tmp_path / "in.h5").write_bytes(content)

    assert refused(reader, tmp_path / "in.h5", program)[0] is UnreadableError


def test_a_cut_file_and_a_named_pipe_are_refused(tmp_path, reader, features):
    path = written(tmp_path, "clam", features)
    os.truncate(path, path.stat().st_size - 300)
    os.mkfifo(tmp_path / "pipe.h5")

    assert refused(reader, path, "clam")[0] is UnreadableError
    assert refused(reader, tmp_path / "pipe.h5", "clam")[0] is UnreadableError
    assert refused(reader, tmp_path / "none.h5", "clam")[0] is UnreadableError


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
