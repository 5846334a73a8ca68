"""The only complete real slide, ingested once for all its tests, which form one xdist group."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.ingest.ingest import IngestReport, IngestRequest, ingest_slide
from pipeline.project import Project
from pipeline.settings.config import IngestConfig


@pytest.fixture(scope="session")
def polyp(real_slides: Path) -> Path:
    """Colon slide of 27392 × 15104 px and 4 levels."""
    return real_slides / "kangyeolk+colorectal-cancer-segmentation/P2_0039_section1.tiff"


@pytest.fixture(scope="session")
def polyp_store(polyp: Path, tmp_path_factory: pytest.TempPathFactory) -> IngestReport:
    request = IngestRequest(polyp, "polyp", mpp_option=0.5)
    return ingest_slide(request, Project(tmp_path_factory.mktemp("polyp")), IngestConfig())
