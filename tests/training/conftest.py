"""What the tests of models that go out and come in share."""

from __future__ import annotations

import pytest


@pytest.fixture
def own_trust(tmp_path, monkeypatch):
    """A user who has not trusted anything yet."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture(scope="session")
def package(road):
    return road.project.model_path(road.model_id)


@pytest.fixture(scope="session")
def tiles(road):
    """Real tiles that differ, uint8 (12, 32, 32, 3)."""
    from pipeline.sample_tiles import sample_tiles

    found = sample_tiles(road.project, [road.test_slide], tile_px=32, mpp=1.0, count=12)
    assert len({tile.tobytes() for tile in found}) == 12
    return found


@pytest.fixture(scope="session")
def exports(package, tiles, tmp_path_factory):
    """By format, the folder and the report; made once."""
    from training.export_model import export_package

    folder = tmp_path_factory.mktemp("exports")
    made = {to: export_package(package, to, folder / to, tiles) for to in ("onnx", "torchscript", "wsinfer")}
    return {to: (folder / to, report) for to, report in made.items()}
