"""What is done with a stack is done with one focal plane, as with a slide of that plane alone; records name it."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import tifffile
import zarr

from pipeline.batches.where import RunOn
from pipeline.box import Box
from pipeline.embedding.encoder import TileEncoder
from pipeline.ingest.ingest import IngestRequest, ingest_slide
from pipeline.project import Project
from pipeline.settings.config import IngestConfig
from pipeline.slides.registry import open_slide
from pipeline.store.layers.features import read_features
from pipeline.store.layers.overlays import read_predictions
from pipeline.store.layers.qc_scores import read_quality
from pipeline.store.reading.reader import StoreReader
from pipeline.tiles.dataset import TileDataset
from tests.pipeline.slides.make_dicom import write_dicom_stack
from tests.small_trained_project import CELL_PX0, COLD, SIZE_WH_PX0, TISSUE, WARM
from tests.training.encoders.tiny_encoders import TIMM_CONFIG, folder_row, timm_state

HEIGHTS_UM = (-1.0, 0.0, 2.5)
UPPER = 2.5
pytestmark = pytest.mark.usefixtures("one_thread")


def tissue(seed: int, left: tuple[int, int, int], right: tuple[int, int, int]) -> np.ndarray:
    """The same cells at each plane, in other colours."""
    random = np.random.default_rng(seed)
    width, height = SIZE_WH_PX0
    pixels = np.full((height, width, 3), 242, np.uint8)
    for row in range(1, height // CELL_PX0 - 1):
        for column in range(1, width // CELL_PX0 - 1):
            colour = left if column < width // CELL_PX0 // 2 else right
            cell = np.asarray(colour) + random.integers(-25, 25, 3) + random.integers(-30, 30, (CELL_PX0, CELL_PX0, 1))
            y, x = row * CELL_PX0, column * CELL_PX0
            pixels[y : y + CELL_PX0, x : x + CELL_PX0] = np.clip(cell, 0, 255)
    return pixels


@dataclass(frozen=True)
class Stacked:
    """A stack, and the upper of its planes as a slide of its own, each in a project with the small project's model."""

    stack: Project
    alone: Project
    model_id: str


@pytest.fixture(scope="module")
def made(small_project, tmp_path_factory) -> Stacked:
    folder = tmp_path_factory.mktemp("stacks")
    planes = {um: tissue(seed, *((WARM, COLD) if um == 0 else (COLD, WARM))) for seed, um in enumerate(HEIGHTS_UM)}
    write_dicom_stack(folder / "stack.dcm", planes, is_full=False)
    write_dicom_stack(folder / "alone.dcm", {0.0: planes[UPPER]})
    projects = {}
    for name in ("stack", "alone"):
        project = projects[name] = Project(folder / name)
        ingest_slide(IngestRequest(folder / f"{name}.dcm", "S-1"), project, IngestConfig(shard_px=512, tissue=TISSUE))
        shutil.copytree(small_project.project.models_dir, project.models_dir)
        folder_row(project.root / "encoders", timm_state(), TIMM_CONFIG)
        (project.root / "gemslide.toml").write_text("[tile]\ntile_px = 32\nmpp = 1.0\n")
    # The masks are of the planes at 0, which show the same cells.
    masks = [(project.store_path("S-1") / "0/labels/tissue/0").rglob("c/*/*") for project in projects.values()]
    assert [path.read_bytes() for path in masks[0]] == [path.read_bytes() for path in masks[1]]
    return Stacked(projects["stack"], projects["alone"], small_project.model_id)


def both(made: Stacked, gemslide, *arguments: object, plane: str = "--plane=2.5"):
    """The verb on the stack's upper plane, and on the slide of this plane alone."""
    done = gemslide(*arguments, "--project", made.stack.root, plane)
    assert done.code == 0, done.out + done.err
    alone = gemslide(*arguments, "--project", made.alone.root)
    assert alone.code == 0, alone.out + alone.err
    return done


def stores(made: Stacked) -> tuple[Path, Path]:
    return made.stack.store_path("S-1"), made.alone.store_path("S-1")


def test_predictions_are_those_of_the_plane_and_say_which(made, gemslide):
    both(made, gemslide, "infer", made.model_id, "S-1")

    stack, alone = (read_predictions(store, made.model_id) for store in stores(made))
    assert np.array_equal(stack.probabilities_cyx, alone.probabilities_cyx, equal_nan=True)
    assert (stack.plane_um, alone.plane_um) == (UPPER, None)
    assert stack.attributes["made_from"]["tiles"]["plane_um"] == UPPER
    report = (made.stack.result_dir("S-1", made.model_id) / "slide_report.html").read_text()
    assert "at the focal plane at +2.5 µm" in report
    assert "focal plane" not in (made.alone.result_dir("S-1", made.model_id) / "slide_report.html").read_text()
    kept = gemslide("infer", made.model_id, "S-1", "--project", made.stack.root, "--plane=2.5")
    assert "kept" in kept.out

    assert gemslide("infer", made.model_id, "S-1", "--project", made.stack.root).code == 0
    default = read_predictions(stores(made)[0], made.model_id)
    assert default.plane_um == 0.0
    assert not np.array_equal(default.probabilities_cyx, stack.probabilities_cyx, equal_nan=True)


def test_features_are_those_of_the_plane(made, gemslide):
    both(made, gemslide, "embed", "tiny", "S-1")

    encoder = TileEncoder.load(made.stack.root / "encoders/tiny.toml", RunOn("cpu")).encoder_id
    stack, alone = (read_features(store, encoder) for store in stores(made))
    assert np.array_equal(stack.values_nd, alone.values_nd)
    assert stack.attributes["made_from"]["tiles"]["plane_um"] == UPPER


def test_quality_is_that_of_the_plane(made, gemslide):
    both(made, gemslide, "qc", "S-1")

    stack, alone = (read_quality(store) for store in stores(made))
    assert np.array_equal(stack.scores_cyx, alone.scores_cyx, equal_nan=True)
    assert StoreReader(stores(made)[0]).attributes.qc["made_from"]["plane_um"] == UPPER
    assert "plane_um" not in StoreReader(stores(made)[1]).attributes.qc["made_from"]


def test_tiles_are_read_from_the_plane_that_the_table_names(made, gemslide):
    both(made, gemslide, "tile", "S-1", "--tile-set", "upper")
    assert gemslide("tile", "S-1", "--tile-set", "default", "--project", made.stack.root).code == 0

    upper, default = (TileDataset(made.stack.root, name) for name in ("upper", "default"))
    alone = TileDataset(made.alone.root, "upper")
    assert len(upper) == len(alone) > 20
    assert all(np.array_equal(upper.read(i), alone.read(i)) for i in range(len(upper)))
    assert not np.array_equal(upper.read(3), default.read(3))
    assert upper.fingerprint != default.fingerprint


def test_scores_of_another_plane_do_not_choose_tiles(made, gemslide):
    both(made, gemslide, "qc", "S-1")
    settings = made.stack.root / "gemslide.toml"
    text = settings.read_text()
    settings.write_text(text + "max_qc = {blur = 0.9}\n")
    try:
        upper = gemslide("tile", "S-1", "--tile-set", "limited", "--project", made.stack.root, "--plane=2.5")
        default = gemslide("tile", "S-1", "--tile-set", "other", "--project", made.stack.root)
    finally:
        settings.write_text(text)
    assert upper.code == 0, upper.err
    assert default.code == 1
    assert "none of the focal plane of the tiles" in " ".join((default.out + default.err).split())


@pytest.mark.parametrize("verb", [("infer", "MODEL"), ("embed", "tiny"), ("qc",), ("tile",)], ids=lambda verb: verb[0])
def test_a_plane_that_the_slide_does_not_have_is_refused_by_name(made, gemslide, verb):
    words = [made.model_id if word == "MODEL" else word for word in verb]
    done = gemslide(*words, "S-1", "--project", made.stack.root, "--plane", "1", "--json")

    assert done.code == 1
    assert "no focal plane at 1 µm. It has 3, at -1, 0, 2.5 µm" in done.out + done.err


def test_an_export_holds_all_planes_or_names_the_one_it_holds(made, gemslide, tmp_path):
    store = stores(made)[0]
    readers = {um: StoreReader(store, um) for um in HEIGHTS_UM}
    width, height = readers[0.0].size_wh_px0
    pixels = {um: reader.read_region(0, Box(0, 0, width, height)) for um, reader in readers.items()}

    def export(name: str, *more: object) -> str:
        done = gemslide("export", store, tmp_path / name, *more)
        assert done.code == 0, done.out + done.err
        return " ".join(done.out.split())

    assert "all 3 focal planes" in export("all.zarr")
    group = zarr.open_group(tmp_path / "all.zarr", mode="r")
    assert group.attrs["gemslide_export"]["planes_um"] == list(HEIGHTS_UM)
    array = group["0/0"]
    assert array.shape == (3, 3, height, width)
    assert all(np.array_equal(np.moveaxis(array[:, z], 0, -1), pixels[um]) for z, um in enumerate(HEIGHTS_UM))

    assert "only the focal plane at 2.5 µm (of 3, at -1, 0, 2.5 µm)" in export("one.zarr", "--plane", 2.5)
    group = zarr.open_group(tmp_path / "one.zarr", mode="r")
    assert [axis["name"] for axis in group["0"].attrs["ome"]["multiscales"][0]["axes"]] == ["c", "y", "x"]
    assert np.array_equal(np.moveaxis(group["0/0"][:], 0, -1), pixels[UPPER])
    with open_slide(tmp_path / "one.zarr") as slide:
        assert np.array_equal(slide.read_region(0, Box(0, 0, width, height)), pixels[UPPER])

    assert "only the focal plane at 0 µm" in export("old.zarr", "--to", "ngff-0.4")
    assert np.array_equal(np.moveaxis(zarr.open_group(tmp_path / "old.zarr", mode="r")["0/0"][:], 0, -1), pixels[0.0])

    assert "only the focal plane at -1 µm" in export("one.ome.tiff", "--plane=-1")
    with tifffile.TiffFile(tmp_path / "one.ome.tiff") as tiff:
        assert 'PositionZ="-1"' in tiff.ome_metadata
        assert np.array_equal(tiff.series[0].asarray(), pixels[-1.0])

    for um in HEIGHTS_UM:
        export(f"dicom/{um}", "--to", "dicom", f"--plane={um}")
    with open_slide(tmp_path / "dicom") as slide:  # a stack again, an instance for each plane
        assert slide.info.planes_um == HEIGHTS_UM
        assert all(
            np.array_equal(slide.at_plane(z).read_region(0, Box(0, 0, width, height)), pixels[um])
            for z, um in enumerate(HEIGHTS_UM)
        )


def test_what_says_something_of_a_slide_names_its_planes(made, gemslide):
    for what in (stores(made)[0], made.stack.root.parent / "stack.dcm"):
        assert "focal planes" in (shown := gemslide("info", what).out)
        assert "3, at -1, 0, 2.5 µm" in shown
    assert "a single one, at 0 µm" in gemslide("info", stores(made)[1]).out
    assert json.loads((stores(made)[0] / "zarr.json").read_text())["attributes"]["gemslide"]["planes_um"] == list(
        HEIGHTS_UM
    )
