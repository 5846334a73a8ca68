from __future__ import annotations

from pathlib import Path

import pytest

from pathology_app.tiles.cache import PROJECT_VARIABLE, SlideCache
from pipeline.project import Project
from tests.pathology_app.small_project import make_damaged_project, make_project


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project with one slide; tests must not change it."""
    return make_project(tmp_path_factory.mktemp("project"))


@pytest.fixture(scope="session")
def cache(project: Project) -> SlideCache:
    return SlideCache(project)


@pytest.fixture(scope="session")
def damaged_project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The same with damaged tiles; tests must not change it."""
    return make_damaged_project(tmp_path_factory.mktemp("damaged"))


@pytest.fixture
def serve_project(monkeypatch: pytest.MonkeyPatch, project: Project) -> Path:
    """Make the small project the one the pages show."""
    monkeypatch.setenv(PROJECT_VARIABLE, str(project.root))
    return project.root
