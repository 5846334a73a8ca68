"""The one whole real slide, ingested once for all tests that look at it: they are one group of xdist's."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.config import IngestConfig
from pipeline.ingest.ingest import IngestReport, IngestRequest, ingest_slide
from pipeline.project import Project


@pytest.fixture(scope="session")
def polyp(real_slides: Path) -> Path:
    """27392 × 15104 px of colon, 4 levels."""
    return real_slides / "kangyeolk+colorectal-cancer-segmentation/P2_0039_section1.tiff"


@pytest.fixture(scope="session")
def polyp_store(polyp: Path, tmp_path_factory: pytest.TempPathFactory) -> IngestReport:
    request = IngestRequest(polyp, "polyp", mpp_option=0.5)
    return ingest_slide(request, Project(tmp_path_factory.mktemp("polyp")), IngestConfig())
