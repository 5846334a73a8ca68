"""A project of real labelled colorectal tissue: training slides and test slides come from different patients."""

from functools import cache
from pathlib import Path

import pytest

from pipeline.cohort.manifest import load_cohort
from pipeline.config import IngestConfig, TileConfig
from pipeline.ingest.ingest import IngestRequest, ingest_slide
from pipeline.project import Project
from pipeline.tiles.tile import make_tile_table
from tests.small_road import share_tiles


def crc_project(real_slides: Path, temporary: pytest.TempPathFactory) -> Project:
    """A new project with the tile set "crc": 56 px at 2 µm/px, five classes."""
    folder = temporary.mktemp("crc")
    share_tiles(_ingested(real_slides, temporary.getbasetemp()), folder)
    return Project(folder)


@cache
def _ingested(real_slides: Path, base: Path) -> Project:
    """Slides and tiles, made once for all projects of a test run."""
    project = Project(base / "crc-ingested")
    make_crc_tiles(project, real_slides / "crc-mosaic", TileConfig(tile_px=56, mpp=2.0))
    return project


def make_crc_tiles(project: Project, mosaic: Path, tiles: TileConfig) -> None:
    """Ingest the mosaics and make the tile set "crc" of them; the manifest is `cohort.csv` in the project."""
    project.root.mkdir(parents=True, exist_ok=True)
    rows = ["path,slide_id,patient_id,annotations,split"]
    for path in sorted(mosaic.glob("*.tiff")):
        split = "test" if path.stem.startswith("test") else "val" if path.stem == "train_2" else "train"
        rows.append(f"{path},{path.stem},{path.stem},{path.with_suffix('.geojson')},{split}")
    (project.root / "cohort.csv").write_text("\n".join(rows) + "\n")
    cohort = load_cohort(project.root / "cohort.csv")
    for entry in cohort.included:
        ingest_slide(IngestRequest(cohort.slide_path(entry), entry.slide_id), project, IngestConfig())
    make_tile_table(project, "crc", tiles, cohort=cohort)
