"""A project of real labelled colorectal tissue: training slides and test slides come from different patients."""

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import pytest

from pipeline.cohort.manifest import Cohort, load_cohort
from pipeline.ingest.ingest import IngestRequest, ingest_slide
from pipeline.project import Project
from pipeline.settings.config import IngestConfig, TileConfig
from pipeline.tiles.tile import make_tile_table
from tests.small_trained_project import share_tiles


def crc_project(real_slides: Path, temporary: pytest.TempPathFactory) -> Project:
    """A new project with the tile set "crc": 56 px at 2 µm/px, five classes."""
    folder = temporary.mktemp("crc")
    share_tiles(_ingested(real_slides, temporary.getbasetemp()), folder)
    return Project(folder)


@cache
def _ingested(real_slides: Path, base: Path) -> Project:
    """Ingest slides and tiles once for all projects of a test run."""
    project = Project(base / "crc-ingested")
    slides = sorted((real_slides / "crc-mosaic").glob("*.tiff"))
    make_tile_set(project, "crc", slides, _split, TileConfig(tile_px=56, mpp=2.0))
    return project


def _split(slide_id: str) -> str:
    return "test" if slide_id.startswith("test") else "val" if slide_id == "train_2" else "train"


def make_tile_set(
    project: Project, name: str, slides: Sequence[Path], split_of: Callable[[str], str], tiles: TileConfig
) -> Cohort:
    """Ingest slides and make a tile set of them; each has its own patient, and its outlines beside it.

    Returns:
        the tile set's manifest, which is `<name>.csv` in the project.
    """
    project.root.mkdir(parents=True, exist_ok=True)
    manifest = project.root / f"{name}.csv"
    rows = [f"{path},{path.stem},{path.stem},{path.with_suffix('.geojson')},{split_of(path.stem)}" for path in slides]
    manifest.write_text("\n".join(["path,slide_id,patient_id,annotations,split", *rows]) + "\n")
    cohort = load_cohort(manifest)
    for entry in cohort.included:
        ingest_slide(IngestRequest(cohort.slide_path(entry), entry.slide_id), project, IngestConfig())
    make_tile_table(project, name, tiles, cohort=cohort)
    return cohort
