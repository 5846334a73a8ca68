"""Feature files of other programs are imported as they state it, or refused by name, whatever they hold."""

from __future__ import annotations

import os
import zlib
from dataclasses import replace

import h5py
import numpy as np
import pytest

from pipeline.errors import BadManifestError, WrongSlideError
from pipeline.export.features.exchange import FeatureFile, export_features, import_features
from pipeline.export.features.foreign import Wanted, limits_for, read_foreign
from pipeline.export.features.tile_size import TileSize
from pipeline.store.layers.features import read_features
from pipeline.store.reading.reader import StoreReader
from tests.pipeline.export.foreign_files import FILES, GIVEN, exchange_project, with_one, written
from tests.pipeline.store.made_features import ENCODER_ID
from training.foundation.errors import (
    BadRecipeError,
    DecompressionBombError,
    EmptyTableError,
    GemslideError,
    ImplausibleOutputError,
    UnreadableError,
)


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    return exchange_project(tmp_path_factory.mktemp("exchange"))


@pytest.fixture(scope="module")
def reader(project):
    return StoreReader(project.store_path("S-1"))


@pytest.fixture(scope="module")
def features(reader):
    return read_features(reader.path, ENCODER_ID)


@pytest.fixture(params=FILES)
def program(request):
    return request.param


def refused(reader, path, program, given=None):
    """The error of an import that must be refused; it names the file, in one sentence or a few."""
    with pytest.raises(GemslideError) as caught:
        import_features(reader, FeatureFile(path, program, "lite", GIVEN[program] if given is None else given))
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    return type(caught.value), str(caught.value)


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


def test_a_file_of_another_slide_of_the_project_is_refused(tmp_path, project, reader, features):
    path = written(tmp_path, "trident", features)
    with h5py.File(path, "r+") as file:
        file["coords"].attrs["name"] = "S-9"
    import_features(reader, FeatureFile(path, "trident", "lite"))  # whatever other programs call it
    other = project.store_path("S-9")
    other.mkdir()
    try:
        error = refused(reader, path, "trident")
    finally:
        other.rmdir()
    assert "made from slide S-9, which this project has, and not from S-1" in error[1]


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
    nothing: (UnreadableError, "has no data set `features`. Check which program wrote it"),
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
