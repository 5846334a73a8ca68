"""Existing OME-Zarr as a source: the pixels that zarr reads, in any axis order; or a refusal that states the cause."""

from __future__ import annotations

import json

import numpy as np
import pytest
import zarr

from pipeline.box import Box
from pipeline.errors import AmbiguousSeriesError, ChangedSourceError, CorruptTileError, NotBrightfieldRgbError
from pipeline.ingest.ingest import IngestRequest, ingest_slide
from pipeline.project import Project
from pipeline.settings.config import IngestConfig
from pipeline.slides.common.slide import NotCopied
from pipeline.slides.registry import open_slide
from pipeline.store.reading.reader import StoreReader
from tests.pipeline.make import halved, sample_image
from tests.pipeline.slides.make_ome_zarr import create, write_container, write_image, write_ome_zarr
from training.foundation.errors import DecompressionBombError, UnreadableError


@pytest.mark.parametrize("version", ["0.4", "0.5"])
@pytest.mark.parametrize("axes", ["cyx", "tczyx", "yxc", "zyxc"])
def test_every_level_has_the_pixels_that_were_put_in(tmp_path, version, axes):
    levels = halved(sample_image(300, 210), 2)
    path = write_ome_zarr(tmp_path / "a.zarr", levels, version=version, axes=axes)

    with open_slide(path) as slide:
        assert (slide.info.format, slide.info.mpp_xy) == ("ome-zarr", (0.25, 0.25))
        assert [(level.width_px, level.downsample) for level in slide.info.levels] == [(300, 1), (150, 2), (75, 4)]
        for level, pixels in enumerate(levels):
            around = np.pad(pixels, ((60, 60), (60, 60), (0, 0)), constant_values=255)
            height, width = around.shape[:2]
            np.testing.assert_array_equal(slide.read_region(level, Box(-60, -60, width, height)), around)
            np.testing.assert_array_equal(slide.read_region(level, Box(31, 17, 40, 30)), pixels[17:47, 31:71])
        assert isinstance(slide.encoded_level(0), NotCopied)


@pytest.mark.parametrize("version", ["0.4", "0.5"])
@pytest.mark.parametrize("listed", [True, False])
def test_of_a_container_the_slide_is_read_and_never_its_label_or_macro_image(tmp_path, version, listed):
    images = {
        "slide": halved(sample_image(300, 210), 1),
        "label image": [sample_image(50, 40)],
        "macro image": [sample_image(60, 30)],
    }
    path = write_container(tmp_path / "a.zarr", images, version=version, listed=listed)

    with open_slide(path) as slide:
        assert slide.info.associated == ("label", "macro")
        assert slide.info.objective_power == 20
        np.testing.assert_array_equal(slide.read_region(0, Box(0, 0, 300, 210)), images["slide"][0])
        np.testing.assert_array_equal(slide.associated_image("label"), images["label image"][0])
        assert slide.files == tuple(sorted(file for file in (path / "0").rglob("*") if file.is_file()))
    with pytest.raises(UnreadableError, match="series 2 is the macro image, which is never read as the slide"):
        open_slide(path, series="2")
    with pytest.raises(AmbiguousSeriesError, match=r"no series '7'. It has 0 \(300×210 px, 0.25 µm/px\)"):
        open_slide(path, series="7")


def test_two_images_of_one_container_are_two_slides_for_ingest(tmp_path):
    images = {"slide": [sample_image(300, 210)], "other": [sample_image(300, 210, 1)]}
    path = write_container(tmp_path / "a.zarr", images, version="0.5", listed=True)
    project = Project(tmp_path / "p")

    first = ingest_slide(IngestRequest(path, "S-1", mpp_option=0.5, series="0"), project, IngestConfig())

    assert ingest_slide(IngestRequest(path, "S-1", mpp_option=0.5, series="0"), project, IngestConfig()).skipped
    with pytest.raises(ChangedSourceError, match="made from other bytes"):
        ingest_slide(IngestRequest(path, "S-1", mpp_option=0.5, series="1"), project, IngestConfig())
    np.testing.assert_array_equal(StoreReader(first.store).read_region(0, Box(0, 0, 300, 210)), images["slide"][0])


def test_the_name_of_a_series_is_refused_where_there_is_one_image(tmp_path):
    path = write_ome_zarr(tmp_path / "a.zarr", [sample_image(100, 80)])

    with pytest.raises(UnreadableError, match="leave out --series"):
        open_slide(path, series="0")


@pytest.mark.parametrize(
    ("unit", "mpp", "found"),
    [
        ("micrometer", 0.25, 0.25), ("nanometer", 250, 0.25), ("millimeter", 2.5e-4, 0.25), ("meter", 2.5e-7, 0.25),
        (None, None, None), ("foot", 0.25, None), ("micrometer", 1000, None),
    ],
)  # fmt: skip
def test_the_scale_is_read_in_any_unit_and_never_guessed(tmp_path, unit, mpp, found):
    path = write_ome_zarr(tmp_path / "a.zarr", [sample_image(100, 80)], unit=unit, mpp=mpp)

    with open_slide(path) as slide:
        assert slide.info.mpp_xy == (None if found is None else pytest.approx((found, found)))
        assert "OME-Zarr scale" in slide.info.mpp_looked_in


@pytest.mark.parametrize(
    ("pixels", "options", "found"),
    [
        (sample_image(100, 80)[..., 0], {"axes": "cyx", "colours": None}, "1 channels of uint8"),
        (sample_image(100, 80)[..., 0], {"axes": "yx", "colours": None}, "1 channels of uint8"),
        (sample_image(100, 80).astype(np.uint16), {}, "3 channels of uint16"),
        (np.concatenate([sample_image(100, 80)] * 2, -1), {"colours": None}, "6 channels of uint8"),
        (sample_image(100, 80), {"colours": ("0000FF", "00FF00", "FF0000")}, "0000FF, 00FF00, FF0000"),
        (sample_image(100, 80), {"model": "greyscale"}, "model greyscale"),
    ],
)
def test_what_is_not_eight_bit_rgb_is_refused_with_what_it_is(tmp_path, pixels, options, found):
    path = write_ome_zarr(tmp_path / "a.zarr", [pixels], **options)

    with pytest.raises(NotBrightfieldRgbError, match=found):
        open_slide(path)


def test_several_focal_planes_or_times_are_refused(tmp_path):
    group = create(tmp_path / "a.zarr")
    write_image(group, [sample_image(100, 80)], axes="czyx")
    del group["0"]
    group.create_array("0", shape=(3, 5, 80, 100), dtype="uint8", chunks=(3, 1, 64, 64))

    with pytest.raises(NotBrightfieldRgbError, match="3 channels of uint8, 5 along z"):
        open_slide(tmp_path / "a.zarr")


def test_levels_of_another_shape_or_from_another_corner_are_no_levels(tmp_path):
    finest = sample_image(400, 200)
    squeezed, moved, fine = finest[::4, ::2], finest[::2, ::2], finest[::4, ::4]
    paths = [
        write_ome_zarr(tmp_path / "a.zarr", [np.ascontiguousarray(level) for level in (finest, squeezed, fine)]),
        write_ome_zarr(tmp_path / "b.zarr", [finest, moved, fine], translations_px=[0, 7, 0.375]),
    ]

    for path in paths:
        with open_slide(path) as slide:
            assert [level.width_px for level in slide.info.levels] == [400, 100]
            np.testing.assert_array_equal(slide.read_region(1, Box(0, 0, 100, 50)), fine)


def test_a_gemslide_store_is_not_taken_for_a_source(tmp_path):
    group = create(tmp_path / "a.zarr")
    write_image(group, [sample_image(100, 80)])
    group.attrs["gemslide"] = {"contract_version": 1}

    with pytest.raises(UnreadableError, match="is already a gemslide store"):
        open_slide(tmp_path / "a.zarr")


def damage_metadata(path, change):
    file = path / "zarr.json"
    content = json.loads(file.read_text())
    change(content["attributes"]["ome"]["multiscales"][0], content["attributes"])
    file.write_text(json.dumps(content))


@pytest.mark.parametrize(
    "change",
    [
        lambda image, _: image.pop("axes"),
        lambda image, _: image.pop("datasets"),
        lambda image, _: image.update(datasets=[]),
        lambda image, _: image.update(axes=[{"name": "x"}, {"name": "x"}, {"name": "y"}]),
        lambda image, _: image["datasets"][0].update(path="9"),
        lambda image, _: image["datasets"][0].update(path="../../etc"),
        lambda image, _: image["datasets"][0].update(path=""),
        lambda image, _: image["datasets"][0]["coordinateTransformations"][0].update(scale=[1, 2]),
        lambda image, _: image["datasets"][0]["coordinateTransformations"][0].update(scale=["a", "b", "c"]),
        lambda image, _: image["datasets"][0]["coordinateTransformations"][0].update(type="affine"),
        lambda _, attributes: attributes["ome"].update(version="0.6"),
        lambda _, attributes: attributes["ome"].update(multiscales=3),
        lambda _, attributes: attributes.update(ome=3),
        lambda _, attributes: attributes.pop("ome"),
        lambda _, attributes: attributes["ome"].update(omero={"channels": 3}),
    ],
)
def test_damaged_metadata_is_unreadable(tmp_path, change):
    path = write_ome_zarr(tmp_path / "a.zarr", [sample_image(100, 80)])
    damage_metadata(path, change)

    with pytest.raises(UnreadableError, match=r"^a\.zarr"):
        open_slide(path)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"zarr_format": 3}', b"\xff\xfe"])
@pytest.mark.parametrize("which", ["zarr.json", "0/zarr.json"])
def test_metadata_that_is_no_json_is_unreadable(tmp_path, which, content):
    path = write_ome_zarr(tmp_path / "a.zarr", [sample_image(100, 80)])
    (path / which).write_bytes(content)

    with pytest.raises(UnreadableError, match=r"^a\.zarr"):
        open_slide(path)


def test_a_damaged_chunk_is_a_corrupt_tile_and_the_others_are_read(tmp_path):
    pixels = sample_image(150, 120)
    path = write_ome_zarr(tmp_path / "a.zarr", [pixels])
    chunk = path / "0" / "c" / "0" / "1" / "1"
    chunk.write_bytes(chunk.read_bytes()[:50])

    with open_slide(path) as slide:
        with pytest.raises(CorruptTileError, match="x=70, y=70"):
            slide.read_region(0, Box(70, 70, 20, 20))
        np.testing.assert_array_equal(slide.read_region(0, Box(0, 0, 64, 64)), pixels[:64, :64])


@pytest.mark.parametrize("version", ["0.4", "0.5"])
def test_a_folder_that_claims_more_than_it_can_hold_is_refused_at_once(tmp_path, version):
    group = create(tmp_path / "a.zarr", version)
    write_image(group, [sample_image(100, 80)], version=version)
    del group["0"]
    group.create_array("0", shape=(3, 10**6, 10**6), dtype="uint8", chunks=(3, 256, 256))
    with pytest.raises(DecompressionBombError, match="1000000×1000000"):
        open_slide(tmp_path / "a.zarr")

    del group["0"]
    group.create_array("0", shape=(3, 20_000, 10_000), dtype="uint8", chunks=(3, 20_000, 10_000))
    with pytest.raises(DecompressionBombError, match="at most 256 MiB"):
        open_slide(tmp_path / "a.zarr")


def test_a_plate_and_a_bare_zarr_are_refused_by_name(tmp_path):
    create(tmp_path / "a.zarr").attrs["ome"] = {"version": "0.5", "plate": {}}
    create(tmp_path / "b.zarr")
    zarr.create_array(tmp_path / "c.zarr", shape=(3, 80, 100), dtype="uint8")

    for name, message in (("a.zarr", "plate of wells"), ("b.zarr", "no multiscales"), ("c.zarr", "zarr cannot read")):
        with pytest.raises(UnreadableError, match=message):
            open_slide(tmp_path / name)


@pytest.mark.parametrize(
    "change",
    [
        lambda ome: ome.update(version="Doe Jane"),
        lambda ome: ome["multiscales"][0]["axes"][0].update(name="Doe Jane"),
        lambda ome: ome["multiscales"][0]["axes"][1].update(name="Doe Jane"),
        lambda ome: ome["omero"]["rdefs"].update(model="Doe Jane"),
        lambda ome: ome["multiscales"][0]["datasets"][0].update(path="../Doe Jane"),
        lambda ome: ome["multiscales"][0]["datasets"][0]["coordinateTransformations"][0].update(type="Doe Jane"),
    ],
)
def test_messages_do_not_repeat_free_text_of_the_metadata(tmp_path, change):
    path = write_ome_zarr(tmp_path / "a.zarr", [sample_image(100, 80)])
    group = zarr.open_group(path)
    ome = group.attrs["ome"]
    change(ome)
    group.attrs["ome"] = ome

    with pytest.raises((UnreadableError, NotBrightfieldRgbError)) as error:
        open_slide(path)
    assert "Doe" not in str(error.value)
