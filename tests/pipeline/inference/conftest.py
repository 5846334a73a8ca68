import shutil

import pytest

from pipeline.project import Project


@pytest.fixture
def own(road, tmp_path):
    """A project that may be written: its own copy of the test slide, the road's models."""
    shutil.copytree(road.project.store_path(road.test_slide), tmp_path / "slides" / f"{road.test_slide}.ome.zarr")
    shutil.copytree(road.project.models_dir, tmp_path / "models")
    return Project(tmp_path)
