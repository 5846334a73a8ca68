import shutil

import pytest

from pipeline.project import Project


@pytest.fixture
def own(small_project, tmp_path):
    """Writable project with its own copy of the test slide and the small project's models."""
    shutil.copytree(
        small_project.project.store_path(small_project.test_slide),
        tmp_path / "slides" / f"{small_project.test_slide}.ome.zarr",
    )
    shutil.copytree(small_project.project.models_dir, tmp_path / "models")
    return Project(tmp_path)
