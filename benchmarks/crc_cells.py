"""Tile sets of labelled colorectal tissue: the mosaics of crc-mosaic, and the published tiles laid out as slides.

Cells of 112 µm; a cell counts where nine tenths of it have one class. Training cells share half with their neighbours.
The validation slide has 30 tiles per class, from the published training tiles that are in no mosaic. Test tiles and
training tiles come from different slides.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.crc_slides import LabelledTile, jpegs_of, lay_out, tiles_in
from pipeline.cohort.manifest import Cohort
from pipeline.project import Project
from pipeline.settings.config import TileConfig
from tests.crc_project import make_tile_set

CELL_UM = 112.0
CLASSES = ("AC", "H", "S", "T", "V")
VAL_TILES = 30
"""Number of validation tiles per class."""
TEST_SLIDES = ("test_10", "test_12", "labelled_test")
TESTED = ("mosaics", "labelled")
"""Names of the tile sets that have test cells."""
LABELLED = "Flagy+Colorectal_Carcinoma_Classifier/images"


def make_tile_sets(
    project: Project, data: Path, tile_px: int, *, train: str = "train", with_published: bool = False
) -> dict[str, Cohort]:
    """Ingest and tile the mosaics and the published tiles' slides; return the manifest of each tile set by name.

    Args:
        train: name of the training tile set.
        with_published: also train on the published training tiles that are in no mosaic, except the validation tiles.
    """
    project.root.mkdir(parents=True, exist_ok=True)
    mosaics = sorted((data / "crc-mosaic").glob("*.tiff"))
    train_mosaics = [path for path in mosaics if path.stem not in TEST_SLIDES]
    names = ("train", "val", "test") if with_published else ("val", "test")
    published = _published_slides(project.root, data / LABELLED, train_mosaics, names)
    chosen = {
        train: [*train_mosaics, *(published[name] for name in names if name != "test")],
        "mosaics": mosaics,
        "labelled": [published["test"]],
    }
    return {
        name: make_tile_set(project, name, slides, _split, cells_of(tile_px, tile_px // 2 if name == train else 0))
        for name, slides in chosen.items()
    }


def cells_of(tile_px: int, shared_px: int) -> TileConfig:
    """Settings that cut slides into cells of this many pixels, with overlap between neighbours."""
    return TileConfig(
        tile_px=tile_px, mpp=CELL_UM / tile_px, overlap_px=shared_px, min_label_fraction=0.9, classes=CLASSES
    )


def _split(slide_id: str) -> str:
    return "test" if slide_id in TEST_SLIDES else "val" if slide_id == "labelled_val" else "train"


def _published_slides(
    folder: Path, published: Path, train_mosaics: list[Path], names: Sequence[str]
) -> dict[str, Path]:
    """Slides of published tiles: for training and validation those that are in no mosaic, for testing all."""
    slides = {name: folder / f"labelled_{name}.tiff" for name in names}
    missing = [name for name, path in slides.items() if not path.exists()]
    if missing:
        in_mosaics = set().union(*map(jpegs_of, train_mosaics))
        unseen = [tile for tile in tiles_in(published / "training") if tile.jpeg not in in_mosaics]
        by_class = [[tile for tile in unseen if tile.class_name == name] for name in CLASSES]
        tiles: dict[str, list[LabelledTile]] = {
            "train": [tile for of_class in by_class for tile in of_class[VAL_TILES:]],
            "val": [tile for of_class in by_class for tile in of_class[:VAL_TILES]],
            "test": tiles_in(published / "test"),
        }
        for name in missing:
            lay_out(slides[name], tiles[name])
    return slides
