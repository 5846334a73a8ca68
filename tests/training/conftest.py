"""Fixtures shared by the tests of model export and import."""

from __future__ import annotations

import pytest


@pytest.fixture
def own_trust(tmp_path, monkeypatch):
    """User settings without any trusted packages."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture(scope="session")
def package(small_project):
    return small_project.project.model_path(small_project.model_id)


@pytest.fixture(scope="session")
def tiles(small_project):
    """Distinct real tiles, uint8 (12, 32, 32, 3)."""
    from pipeline.models.sample_tiles import sample_tiles

    samples = sample_tiles(small_project.project, [small_project.test_slide], tile_px=32, mpp=1.0, count=12)
    assert len({tile.tobytes() for tile in samples}) == 12
    return samples


@pytest.fixture(scope="session")
def exports(package, tiles, tmp_path_factory):
    """Folder and report of an export by format, made once."""
    from training.tools.export_model import export_package

    folder = tmp_path_factory.mktemp("exports")
    made = {to: export_package(package, to, folder / to, tiles) for to in ("onnx", "torchscript", "wsinfer")}
    return {to: (folder / to, report) for to, report in made.items()}
