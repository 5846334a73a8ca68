"""Store contract for other programs: NGFF 0.5, zarr v3, the `gemslide` attribute, nothing that names a person."""

from __future__ import annotations

import base64
import json
import re
from xml.etree import ElementTree

import google_crc32c
import numpy as np
import pytest
import tifffile
import zarr
from ome_zarr_models import v05
from PIL import ImageCms

from pipeline.box import Box
from pipeline.ingest import store_writer
from pipeline.ingest.icc.strip import strip_icc_text
from pipeline.ingest.source_comparison import verify_store
from pipeline.store.layers.labels import read_tissue
from pipeline.store.layers.overlays import Predictions, read_predictions, write_predictions
from pipeline.store.reading.reader import StoreReader
from pipeline.store.view.colour import ToSrgb
from tests.pipeline.make import halved, ingest, overwrite_tag, sample_image, write_jpeg_pyramid, write_pyramid

ICC_TAG = 34675
GEMSLIDE_KEYS = {
    "contract_version", "slide_id", "mpp0", "source", "levels", "associated", "icc", "objective_power", "scanner_model",
    "bounds_px0", "mpp_source", "stain", "qc", "link", "ingest", "nanometres", "planes_um",
}  # fmt: skip
SECRETIVE = (
    "Aperio Image Library v11.2.1\r\n900x700 (256x256) JPEG/RGB Q=30|AppMag = 20|StripeWidth = 2040|"
    "ScanScope ID = CPAPERIOCS|Filename = Mustermann-1234|Date = 12/29/09|Time = 09:59:15|User = b414003d-95c6|"
    "MPP = 0.4990|Barcode = 998877"
)
SECRETS = ("Mustermann", "CPAPERIOCS", "b414003d", "12/29/09", "09:59:15", "998877", "geheim")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Store of two passed levels and one built level, ingested under an id that is not its file name."""
    folder = tmp_path_factory.mktemp("contract")
    source = write_jpeg_pyramid(folder / "geheim-Mustermann.tiff", halved(sample_image(1300, 900), 1), tile_px=240)
    return ingest(source, folder, slide_id="S-7", smallest_level_px=400).store


def meta(store, *path):
    return json.loads(store.joinpath(*path, "zarr.json").read_text())


def every_zarr_json(store):
    return [(path.relative_to(store), path.read_text()) for path in store.rglob("zarr.json")]


def predict(store, cells_yx=(100, 70)):
    rng = np.random.default_rng(0)
    second = rng.random(cells_yx)
    probabilities = np.stack([1 - second, second]).astype(np.float16)
    probabilities[:, :3] = np.nan
    write_predictions(store, Predictions("m-1", ("no", "yes"), probabilities, 13.0, 20.0, {}), mpp0=0.5)
    return probabilities


def test_ngff_models_accept_root_image_label_and_predictions(store):
    predict(store)

    root = v05.BioFormats2Raw.from_zarr(zarr.open_group(store, mode="r"))
    image = v05.Image.from_zarr(zarr.open_group(store / "0", mode="r"))
    labels = v05.Labels.from_zarr(zarr.open_group(store / "0/labels", mode="r"))
    tissue = v05.ImageLabel.from_zarr(zarr.open_group(store / "0/labels/tissue", mode="r"))
    predictions = v05.Image.from_zarr(zarr.open_group(store / "predictions/m-1", mode="r"))

    assert root.ome_attributes.bioformats2raw_layout == 3
    assert [d.path for d in image.ome_attributes.multiscales[0].datasets] == ["0", "1", "2"]
    assert labels.ome_attributes.labels == ["tissue"]
    assert len(tissue.ome_attributes.multiscales[0].datasets) == 3
    assert [a.name for a in predictions.ome_attributes.multiscales[0].axes] == ["c", "y", "x"]
    assert meta(store, "OME")["attributes"]["ome"] == {"version": "0.5", "series": ["0"]}


@pytest.mark.parametrize(
    ("level", "shape", "shard", "chunk", "codecs"),
    [
        ("0", [3, 900, 1300], 480, 240, ["transpose", "imagecodecs_jpeg", "crc32c"]),
        ("1", [3, 450, 650], 480, 240, ["transpose", "imagecodecs_jpeg", "crc32c"]),
        ("2", [3, 225, 325], 480, 240, ["transpose", "bytes", "zstd", "crc32c"]),
    ],
)
def test_a_level_is_described_as_the_contract_says(store, level, shape, shard, chunk, codecs):
    array = meta(store, "0", level)

    assert array["shape"] == shape
    assert array["data_type"] == "uint8"
    assert array["fill_value"] == 255
    assert array["dimension_names"] == ["c", "y", "x"]
    assert array["chunk_grid"]["configuration"]["chunk_shape"] == [3, shard, shard]
    (sharding,) = array["codecs"]
    assert sharding["name"] == "sharding_indexed"
    assert sharding["configuration"]["chunk_shape"] == [3, chunk, chunk]
    assert sharding["configuration"]["index_location"] == "end"
    assert [c["name"] for c in sharding["configuration"]["index_codecs"]] == ["bytes", "crc32c"]
    inner = sharding["configuration"]["codecs"]
    assert [c["name"] for c in inner] == codecs
    assert inner[0] == {"name": "transpose", "configuration": {"order": [1, 2, 0]}}
    assert {"name": "imagecodecs_jpeg"} in inner or level == "2"


def test_scales_and_translations_put_all_levels_over_one_another(store):
    datasets = meta(store, "0")["attributes"]["ome"]["multiscales"][0]["datasets"]
    tissue = meta(store, "0/labels/tissue")["attributes"]["ome"]["multiscales"][0]["datasets"]

    scales = [d["coordinateTransformations"][0]["scale"] for d in datasets]
    assert scales == [[1.0, 0.5, 0.5], [1.0, 1.0, 1.0], [1.0, 2.0, 2.0]]
    assert "translation" not in str(datasets[0])
    assert [d["coordinateTransformations"][1]["translation"] for d in datasets[1:]] == [
        [0.0, 0.25, 0.25],
        [0.0, 0.75, 0.75],
    ]
    assert [d["coordinateTransformations"][0]["scale"] for d in tissue] == [[8.0, 8.0], [16.0, 16.0], [32.0, 32.0]]
    assert tissue[0]["coordinateTransformations"][1]["translation"] == [3.75, 3.75]


def test_the_tissue_label_is_coarse_and_has_as_many_datasets_as_the_image(store):
    mask, mpp = read_tissue(store)

    assert (mask.dtype, mask.shape, mpp) == (np.uint8, (56, 81), 8.0)
    assert sorted(p.name for p in (store / "0/labels/tissue").iterdir()) == ["0", "1", "2", "zarr.json"]


def test_a_shard_ends_with_an_index_in_c_order_and_every_part_of_it_has_its_checksum(store):
    shard = (store / "0/0/c/0/1/2").read_bytes()  # rows 2–3, columns 4–5 of a grid of 4 × 6 chunks
    index = np.frombuffer(shard[-(16 * 4 + 4) : -4], "<u8").reshape(2, 2, 2)

    assert int.from_bytes(shard[-4:], "little") == google_crc32c.value(shard[-(16 * 4 + 4) : -4])
    stored = [shard[offset : offset + count] for offset, count in index.reshape(-1, 2)]
    streams = [chunk[:-4] for chunk in stored]
    assert [google_crc32c.value(s).to_bytes(4, "little") for s in streams] == [chunk[-4:] for chunk in stored]
    assert all(s[:2] == b"\xff\xd8" and s[-2:] == b"\xff\xd9" for s in streams)
    assert b"".join(stored) == shard[: -(16 * 4 + 4)]
    assert StoreReader(store).chunk(0, 2, 5) == streams[1]


def test_chunks_outside_the_grid_and_white_ones_are_left_out_of_the_index(tmp_path):
    pixels = np.full((700, 1100, 3), 255, np.uint8)
    pixels[:40, :40] = 90
    reader = StoreReader(
        ingest(
            write_pyramid(tmp_path / "a.tiff", [pixels], compression="lzw"), tmp_path,
            decode_chunk_px=256, smallest_level_px=1100,
        ).store
    )  # fmt: skip

    shards = sorted(str(p.relative_to(reader.path / "0/0/c")) for p in reader.path.glob("0/0/c/**/*") if p.is_file())
    index = np.frombuffer((reader.path / "0/0/c/0/0/0").read_bytes()[-(16 * 4 + 4) : -4], "<u8").reshape(-1, 2)

    assert shards == ["0/0/0"]
    assert (index[1:] == 2**64 - 1).all()
    np.testing.assert_array_equal(reader.read_region(0, Box(0, 0, 1100, 700)), pixels)


def test_metadata_is_never_consolidated(store):
    assert all("consolidated_metadata" not in text for _, text in every_zarr_json(store))


def test_the_root_says_exactly_what_the_contract_lists(store):
    root = meta(store)["attributes"]
    ours = root["gemslide"]

    assert root["ome"] == {"version": "0.5", "bioformats2raw.layout": 3}
    assert set(root) == {"ome", "gemslide"}
    assert set(ours) == GEMSLIDE_KEYS
    assert set(ours["source"]) == {"sha256", "bytes", "format", "files", "series"}
    in_level = {"path", "downsample", "route", "codec", "gate", "quality", "rebuilt"}
    assert [set(level) for level in ours["levels"]] == [in_level] * 3
    assert [(level["path"], level["downsample"], level["route"]) for level in ours["levels"]] == [
        ("0", 1.0, "pass-through"),
        ("1", 2.0, "pass-through"),
        ("2", 4.0, "built"),
    ]
    assert {"versions", "seconds", "utc", "checksums_sha256"} <= set(ours["ingest"])
    assert (ours["contract_version"], ours["slide_id"], ours["mpp0"], ours["associated"]) == (6, "S-7", 0.5, [])


def test_nothing_in_the_store_names_the_file_or_what_its_description_says(tmp_path):
    source = tmp_path / "geheim-Mustermann.svs"
    write_pyramid(source, [sample_image(900, 700)], compression="lzw", description=SECRETIVE, mpp=None)

    store = ingest(source, tmp_path, slide_id="S-8").store

    texts = [text for _, text in every_zarr_json(store)] + [(store / "OME/METADATA.ome.xml").read_text()]
    names = [str(path.relative_to(store)) for path in store.rglob("*")]
    assert not [secret for secret in SECRETS for text in [*texts, *names] if secret in text]
    ours = meta(store)["attributes"]["gemslide"]
    assert (ours["mpp0"], ours["objective_power"]) == (0.499, 20.0)


@pytest.mark.data
@pytest.mark.parametrize(
    ("file", "num_secrets"),
    [
        ("Dana-Farber-AIOS+pathml/tests/testdata/small_HE.svs", 6),
        ("BhavyaKohli+MoNuSAC-Instance-Segmentation/code/sample_original/A9K0_1.svs", 1),  # its secrets are pixels
    ],
)
def test_a_real_aperio_slide_leaves_its_identifiers_and_label_behind(real_slides, tmp_path, file, num_secrets):
    source = real_slides / file
    with tifffile.TiffFile(source) as tiff:
        description = tiff.pages[0].description
    pairs = dict(part.split(" = ", 1) for part in description.split("|") if " = " in part)
    keys = ("ScanScope ID", "Filename", "Date", "Time", "User", "ImageID", "Title", "Barcode")
    secrets = {source.stem, *(v.strip() for k, v in pairs.items() if k.strip() in keys and len(v.strip()) > 3)}

    store = ingest(source, tmp_path, slide_id="S-9").store

    assert len(secrets) >= num_secrets, secrets
    assert not [s for s in secrets for path, text in every_zarr_json(store) if s in text or s in str(path)]
    assert meta(store)["attributes"]["gemslide"]["associated"] == []
    assert sorted(p.name for p in store.iterdir()) == ["0", "OME", "zarr.json"]


@pytest.mark.data
def test_associated_images_that_are_asked_for_become_series_of_the_store(real_slides, tmp_path):
    source = real_slides / "Dana-Farber-AIOS+pathml/tests/testdata/small_HE.svs"

    store = ingest(source, tmp_path, keep_associated=("macro", "label")).store

    root = v05.BioFormats2Raw.from_zarr(zarr.open_group(store, mode="r"))
    assert root.ome_attributes.bioformats2raw_layout == 3
    assert meta(store, "OME")["attributes"]["ome"]["series"] == ["0", "1", "2"]
    assert meta(store)["attributes"]["gemslide"]["associated"] == ["macro", "label"]
    v05.Image.from_zarr(zarr.open_group(store / "1", mode="r"))
    with tifffile.TiffFile(source) as tiff:
        macro = next(s for s in tiff.series if s.name.lower() == "macro").asarray()
    stored = np.moveaxis(zarr.open(store / "1/0", mode="r")[...], 0, -1)
    np.testing.assert_array_equal(stored, macro)
    xml = ElementTree.parse(store / "OME/METADATA.ome.xml")
    assert [image.get("Name") for image in xml.findall("{*}Image")] == ["slide", "macro", "label"]


@pytest.mark.data
def test_a_large_associated_image_is_cut_into_chunks(real_slides, tmp_path, monkeypatch):
    source = real_slides / "Dana-Farber-AIOS+pathml/tests/testdata/small_HE.svs"
    whole = ingest(source, tmp_path / "whole", keep_associated=("macro",)).store
    monkeypatch.setattr(store_writer, "ASSOCIATED_CHUNK_PX", 200)

    store = ingest(source, tmp_path / "cut", keep_associated=("macro",)).store

    expected = zarr.open(whole / "1/0", mode="r")[...]
    assert StoreReader(store).associated()["macro"].spec.chunk_px == 200
    np.testing.assert_array_equal(zarr.open(store / "1/0", mode="r")[...], expected)
    assert verify_store(store)


def test_the_icc_profile_s_colours_are_kept_and_its_texts_are_not(tmp_path):
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    tag = (ICC_TAG, 7, len(profile), profile, True)
    source = write_pyramid(tmp_path / "a.tiff", [sample_image(300, 200)], compression="lzw", extratags=[tag])

    reader = StoreReader(ingest(source, tmp_path).store)

    assert reader.icc == strip_icc_text(profile) == base64.b64decode(reader.attributes.icc)
    pixels = sample_image(300, 200)
    np.testing.assert_array_equal(ToSrgb(reader.icc)(pixels), ToSrgb(profile)(pixels))


def test_predictions_read_back_as_written_and_coarser_datasets_leave_out_what_was_not_predicted(store):
    probabilities = predict(store)

    read_back = read_predictions(store, "m-1")
    coarse = zarr.open(store / "predictions/m-1/1", mode="r")[...]

    np.testing.assert_array_equal(read_back.probabilities_cyx, probabilities)
    assert read_back.class_names == ("no", "yes")
    assert coarse.dtype == np.float16
    assert np.isnan(coarse[:, 0]).all()  # rows 0 and 1
    np.testing.assert_allclose(coarse[:, 1, 0], probabilities[:, 3, :2].mean(1), atol=1e-3)  # row 2 is NaN, 3 is not


def test_model_and_scanner_texts_that_are_not_product_names_are_not_kept(tmp_path):
    for number, (model, kept) in enumerate([("SN 4711 / Dr. Mustermann", None), ("Pannoramic 250", "Pannoramic 250")]):
        source = tmp_path / f"{number}.tiff"
        tag = (272, 2, 0, model, True)
        write_pyramid(source, [sample_image(300, 200)], compression="lzw", extratags=[tag])

        store = ingest(source, tmp_path / str(number)).store

        assert meta(store)["attributes"]["gemslide"]["scanner_model"] == kept


def test_the_message_of_an_error_names_the_file_but_no_text_from_inside_it(tmp_path):
    source = tmp_path / "a.svs"
    write_pyramid(source, [sample_image(300, 200)], compression="lzw", description=SECRETIVE, mpp=None)
    overwrite_tag(source, 259, 52479)

    with pytest.raises(Exception, match=re.escape("a.svs: TIFF compression 52479")) as caught:
        ingest(source, tmp_path)

    assert not [secret for secret in SECRETS if secret in str(caught.value)]
