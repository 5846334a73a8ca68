"""A stack is stored whole: every focal plane as if it were a slide of its own, under one mask and one set of levels."""

from __future__ import annotations

import struct
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import zarr

from pipeline.box import Box
from pipeline.errors import CorruptTileError, DamagedStoreError
from pipeline.ingest.ingest import IngestRequest, ingest_slide
from pipeline.ingest.linked import ingest_linked
from pipeline.ingest.source_comparison import verify_store
from pipeline.project import Project
from pipeline.settings.config import IngestConfig
from pipeline.slides.registry import open_slide
from pipeline.store.format.metadata import read_json
from pipeline.store.reading.reader import StoreReader
from pipeline.units import default_plane
from tests.pipeline.make import PLAIN_TISSUE, halved, sample_image
from tests.pipeline.slides.make_dicom import write_dicom_stack
from tests.pipeline.slides.make_ndpi import stack_images, write_ndpi_images, write_ndpi_stack
from training.foundation.errors import BadRecipeError, UnreadableError

CONFIG = IngestConfig(shard_px=1024, tissue=PLAIN_TISSUE, smallest_level_px=400)
HEIGHTS_UM = (-1.5, 0.0, 2.0)
DEFAULT = 1


def scanned(width_px: int, height_px: int, num_levels: int) -> dict[float, list[np.ndarray]]:
    """Levels at each height; no two tiles are alike, nor two planes."""
    return {um: halved(sample_image(width_px, height_px, seed), num_levels - 1) for seed, um in enumerate(HEIGHTS_UM)}


def write_hamamatsu(folder: Path, planes: dict[float, list[np.ndarray]]) -> Path:
    write_ndpi_stack(folder / "s.ndpi", {round(1000 * um): levels for um, levels in planes.items()})
    return folder / "s.ndpi"


def write_in_one(folder: Path, planes: dict[float, list[np.ndarray]], *, is_full: bool = False) -> Path:
    (folder / "s").mkdir()
    for level in range(len(next(iter(planes.values())))):
        at_level = {um: levels[level] for um, levels in planes.items()}
        write_dicom_stack(folder / "s" / f"{level}.dcm", at_level, downsample=2**level, is_full=is_full)
    return folder / "s"


def write_apart(folder: Path, planes: dict[float, list[np.ndarray]]) -> Path:
    """An instance for each plane."""
    (folder / "s").mkdir()
    for number, (um, levels) in enumerate(planes.items()):
        for level, pixels in enumerate(levels):
            write_dicom_stack(folder / "s" / f"{number}-{level}.dcm", {um: pixels}, downsample=2**level)
    return folder / "s"


SIZES = {"ndpi": (1536, 1088), "sparse": (700, 520), "apart": (700, 520)}
WRITERS = {"ndpi": write_hamamatsu, "sparse": write_in_one, "apart": write_apart}


def ingest(source: Path, root: Path, **settings: object) -> Path:
    config = CONFIG.model_copy(update=settings)
    return ingest_slide(IngestRequest(source, "S-1", mpp_option=0.5), Project(root), config).store


@pytest.fixture(params=WRITERS)
def kind(request) -> str:
    return request.param


@pytest.fixture
def planes(kind):
    return scanned(*SIZES[kind], 2)


@pytest.fixture
def source(kind, tmp_path, planes):
    return WRITERS[kind](tmp_path, planes)


def whole(reader: StoreReader, level: int) -> np.ndarray:
    array = reader.levels[level]
    return reader.read_region(level, Box(0, 0, array.width_px, array.height_px))


def chunks(reader: StoreReader):
    return [
        reader.chunk(level.level, *at)
        for level in reader.levels
        for at in product(range(level.rows), range(level.columns))
    ]


def test_each_plane_is_stored_as_a_slide_of_this_plane_alone_would_be(kind, tmp_path, planes, source):
    store = ingest(source, tmp_path / "p")

    for um, levels in planes.items():
        (tmp_path / str(um)).mkdir()
        alone = ingest(WRITERS[kind](tmp_path / str(um), {0.0: levels}), tmp_path / str(um) / "p")
        stored = StoreReader(store, um)
        assert stored.plane_um == um
        assert [level.route for level in stored.attributes.levels][:2] == ["pass-through", "pass-through"]
        assert chunks(stored) == chunks(StoreReader(alone))


def test_the_default_plane_is_the_one_that_is_read_unless_another_is_named(tmp_path, source):
    store = ingest(source, tmp_path / "p")

    default = StoreReader(store)
    assert (default.plane, default.plane_um, default.attributes.planes_um) == (DEFAULT, 0.0, HEIGHTS_UM)
    assert [plane.plane_um for plane in default.planes()] == list(HEIGHTS_UM)
    with pytest.raises(BadRecipeError, match=r"no focal plane at 1 µm. It has 3, at -1.5, 0, 2 µm"):
        StoreReader(store, 1)


@pytest.mark.parametrize(
    ("heights_um", "default"),
    [((-1.5, 0.0, 2.0), 1), ((0.0, 2.0, 4.0), 0), ((-4.0, -2.0, 0.0), 2), ((10.0, 12.0, 14.0), 1), ((-1.0, 1.0), 0)],
)
def test_the_default_is_the_plane_at_0_or_the_middle_one(heights_um, default):
    assert default_plane(heights_um) == default


def test_plain_zarr_reads_a_stack_as_c_z_y_x_with_its_spacing_in_micrometres(tmp_path, source):
    store = ingest(source, tmp_path / "p", decode_to="zstd", smallest_level_px=200)

    image = zarr.open_group(store / "0", mode="r")
    ome = image.attrs["ome"]
    axes = [(axis["name"], axis.get("unit")) for axis in ome["multiscales"][0]["axes"]]
    um = "micrometer"
    assert axes == [("c", None), ("z", um), ("y", um), ("x", um)]
    assert ome["omero"]["rdefs"]["defaultZ"] == DEFAULT
    for level, dataset in enumerate(ome["multiscales"][0]["datasets"]):
        scale, translation = (step[step["type"]] for step in dataset["coordinateTransformations"])
        assert scale[:2] == [1.0, 1.75]  # the mean of 1.5 and 2
        assert translation[:2] == [0.0, -1.5]
        array = image[dataset["path"]]
        reader = StoreReader(store)
        assert array.shape == (3, 3, reader.levels[level].height_px, reader.levels[level].width_px)
        assert array.shards[:2] == (3, 1)
        for plane in reader.planes():
            assert np.array_equal(np.moveaxis(array[:, plane.plane], 0, -1), whole(plane, level))


def test_levels_that_are_built_are_the_halves_of_the_same_plane(tmp_path, source):
    store = ingest(source, tmp_path / "p", smallest_level_px=200)

    for plane in StoreReader(store).planes():
        parent, built = whole(plane, 1), whole(plane, 2)
        height, width = (side // 2 * 2 for side in parent.shape[:2])
        means = parent[:height, :width].reshape(height // 2, 2, width // 2, 2, 3).mean((1, 3))
        assert np.abs(means - built[: height // 2, : width // 2]).max() <= 0.5


def test_planes_that_are_decoded_are_stored_without_loss(tmp_path, source):
    copied, decoded = ingest(source, tmp_path / "p"), ingest(source, tmp_path / "q", pass_through=False)

    for one, other in zip(StoreReader(copied).planes(), StoreReader(decoded).planes(), strict=True):
        assert [level.route for level in other.attributes.levels[:2]] == ["decode", "decode"]
        for level in range(2):
            assert np.array_equal(whole(one, level), whole(other, level))


def test_a_stack_is_verified_at_every_plane(tmp_path, source):
    store = ingest(source, tmp_path / "p")
    verify_store(store, source=source, every_chunk=True)
    shard = next(store.glob("0/0/c/0/2/*/*"))
    content = bytearray(shard.read_bytes())
    content[len(content) // 3] ^= 0xFF
    shard.write_bytes(content)

    with pytest.raises(DamagedStoreError, match=r"0/0 at 2 µm: chunk"):
        verify_store(store, every_chunk=True)


def test_planes_that_were_exchanged_are_found_by_comparison_with_the_slide(tmp_path, source):
    store = ingest(source, tmp_path / "p")
    planes = store / "0/0/c/0"
    (planes / "0").rename(planes / "x")
    (planes / "2").rename(planes / "0")
    (planes / "x").rename(planes / "2")

    with pytest.raises(DamagedStoreError, match="was"):
        verify_store(store)


def test_a_killed_ingest_of_a_stack_goes_on_with_the_planes_that_are_missing(tmp_path, source):
    class Dying:
        left = 4

        def expect(self, count: int) -> None: ...

        def __call__(self, count: int) -> None:
            self.left -= count
            if not self.left:
                raise KeyboardInterrupt

    request, project = IngestRequest(source, "S-1", mpp_option=0.5), Project(tmp_path / "p")
    with pytest.raises(KeyboardInterrupt):
        ingest_slide(request, project, CONFIG, advance=Dying())
    resumed = ingest_slide(request, project, CONFIG).store
    unbroken = ingest(source, tmp_path / "q")

    for one, other in zip(StoreReader(resumed).planes(), StoreReader(unbroken).planes(), strict=True):
        assert chunks(one) == chunks(other)
    verify_store(resumed, source=source, every_chunk=True)


def test_a_stack_is_not_linked(tmp_path, source):
    with pytest.raises(BadRecipeError, match="cannot be linked: it has 3 focal planes"):
        ingest_linked(IngestRequest(source, "S-1", mpp_option=0.5), Project(tmp_path / "p"), CONFIG)
    assert not Project(tmp_path / "p").store_path("S-1").exists()


def test_a_tile_that_is_damaged_at_one_plane_is_masked_at_all(tmp_path):
    planes = scanned(700, 520, 1)
    source = write_in_one(tmp_path, planes)
    content = (source / "0.dcm").read_bytes()
    with open_slide(source) as slide:
        level = slide.at_plane(2).encoded_level(0)
        (stream,) = level.streams(3, range(4, 5))
    broken = b"".join(stream)
    at = content.rindex(b"\xff\xd8\xff", 0, content.index(broken[-400:]))
    (source / "0.dcm").write_bytes(content[:at] + bytes(20) + content[at + 20 :])

    with pytest.raises(CorruptTileError, match="damaged"):
        ingest(source, tmp_path / "p", gate_tiles=1000)
    store = ingest(source, tmp_path / "p", damaged="mask")

    for um, (pixels,) in planes.items():
        reader = StoreReader(store, um)
        masked = reader.read_region(0, Box(4 * 64, 3 * 64, 64, 64))
        beside = reader.read_region(0, Box(5 * 64, 3 * 64, 64, 64)).astype(int)
        assert (masked == 255).all()
        assert np.abs(beside - pixels[3 * 64 : 4 * 64, 5 * 64 : 6 * 64]).mean() < 40
    assert StoreReader(store).attributes.damaged_tiles == 1


def test_a_level_that_only_one_plane_has_is_built_for_all_and_said(tmp_path):
    planes = scanned(700, 520, 2)
    source = write_in_one(tmp_path, planes)
    write_dicom_stack(source / "1.dcm", {0.0: planes[0.0][1]}, downsample=2, is_full=True)

    store = ingest(source, tmp_path / "p")

    attributes = StoreReader(store).attributes
    assert [level.route for level in attributes.levels] == ["pass-through", "built"]
    assert any("not all focal planes" in warning for warning in attributes.warnings)


def test_a_store_whose_root_names_other_planes_than_its_arrays_have_is_refused(tmp_path):
    store = ingest(write_hamamatsu(tmp_path, scanned(512, 512, 1)), tmp_path / "p")
    root = store / "zarr.json"
    text = root.read_text()

    for planes in ("null", "[0.0, 1.0]", "[0.0, 0.0, 1.0]", "[0.0]", '["a", 1, 2]', "[0.0, 1.0, NaN]", "[1, 2, 3e999]"):
        listed = read_json(root)["attributes"]["gemslide"]["planes_um"]
        assert listed == list(HEIGHTS_UM)
        old = text[text.index('"planes_um"') : text.index("]", text.index('"planes_um"')) + 1]
        root.write_text(text.replace(old, f'"planes_um": {planes}'))
        with pytest.raises(UnreadableError):
            StoreReader(store)
        root.write_text(text)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"interval_mcus": 12}, "restart intervals differ"),
        ({"interval_mcus": 0}, "intervals .* are not listed"),
    ],
)
def test_an_ndpi_stack_of_which_a_plane_cannot_be_cut_as_the_others_is_refused(tmp_path, changed, why):
    planes = {0: [sample_image(1536, 1088)], 500: [sample_image(1536, 1088, 1)]}
    images = [image for nm in planes for image in stack_images({nm: planes[nm]}, **(changed if nm else {}))]
    write_ndpi_images(tmp_path / "s.ndpi", images)

    with pytest.raises(UnreadableError, match=f"2 focal planes cannot be read: .*{why}"):
        open_slide(tmp_path / "s.ndpi")


def test_a_plane_of_an_ndpi_stack_without_a_level_leaves_that_to_be_built(tmp_path):
    planes = scanned(1536, 1088, 2)
    source = write_hamamatsu(tmp_path, {**planes, 2.0: planes[2.0][:1]})

    attributes = StoreReader(ingest(source, tmp_path / "p")).attributes
    assert [level.route for level in attributes.levels] == ["pass-through", "built", "built"]
    assert any("not all focal planes" in warning and "768×544 px" in warning for warning in attributes.warnings)


def test_an_ndpi_without_a_plane_at_0_is_refused_by_its_heights(tmp_path):
    write_ndpi_stack(tmp_path / "s.ndpi", {500: [sample_image(1536, 1088)], 0: [sample_image(1536, 1088, 1)]})
    content = (tmp_path / "s.ndpi").read_bytes()
    entry = struct.pack("<HHIi", 65424, 9, 1, 0)
    assert content.count(entry) == 1
    (tmp_path / "s.ndpi").write_bytes(content.replace(entry, struct.pack("<HHIi", 65424, 9, 1, -500)))

    with pytest.raises(UnreadableError):  # OpenSlide sees no level in it
        open_slide(tmp_path / "s.ndpi")
