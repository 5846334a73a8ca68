from __future__ import annotations

from pathlib import Path

import pytest

from pathology_app.project.served import PROJECT_VARIABLE
from pathology_app.slides.cache import SlideCache
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
    """The same project with damaged tiles; tests must not change it."""
    return make_damaged_project(tmp_path_factory.mktemp("damaged"))


@pytest.fixture
def serve_project(monkeypatch: pytest.MonkeyPatch, project: Project) -> Path:
    """Make the pages show the small project."""
    monkeypatch.setenv(PROJECT_VARIABLE, str(project.root))
    return project.root
