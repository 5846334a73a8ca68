"""`gemslide ingest --link` killed at random moments: the slide is there or not, and the next run completes it."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipeline.project import Project
from pipeline.store.format.root import read_root
from tests.pipeline.ingest.test_linked_stores import chunks, links
from tests.pipeline.make import halved, sample_image, write_jpeg_pyramid
from tests.waiting import wait_until

GEMSLIDE = Path(sys.executable).parent / "gemslide"
SETTINGS = "[ingest]\nshard_px = 256\nsmallest_level_px = 128\n"
KILLS = 6


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    folder = tmp_path_factory.mktemp("killed")
    return write_jpeg_pyramid(folder / "s.tiff", halved(sample_image(2100, 1300), 2), tile_px=64)


def start(source: Path, root: Path) -> subprocess.Popen[str]:
    command = [GEMSLIDE, "ingest", "--link", source, "--project", root, "--slide-id", "S-1"]
    return subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def new_project(root: Path) -> Path:
    root.mkdir()
    (root / "gemslide.toml").write_text(SETTINGS)
    return root


@pytest.fixture(scope="module")
def unbroken(source, tmp_path_factory):
    """The store of a run that ends, and the seconds that it takes to verify."""
    root = new_project(tmp_path_factory.mktemp("unbroken") / "p")
    store = Project(root).store_path("S-1")
    run = start(source, root)
    wait_until(lambda: store.exists(), seconds=60)
    appeared = time.perf_counter()
    _, said = run.communicate(timeout=120)
    assert run.returncode == 0, said
    return store, time.perf_counter() - appeared


def test_killed_at_random_moments_it_is_completed_by_the_next_run(source, unbroken, tmp_path):
    chance, met = random.Random(5), []
    delays_s = [0.0, 0.0, *(chance.uniform(0, unbroken[1]) for _ in range(KILLS - 2))]
    for number, delay_s in enumerate(delays_s):
        root = new_project(tmp_path / f"p{number}")
        store = Project(root).store_path("S-1")
        run = start(source, root)
        wait_until(lambda run=run, store=store: store.exists() or run.poll() is not None, seconds=60)
        time.sleep(delay_s)  # at once, or at any moment of what follows
        run.kill()
        run.communicate(timeout=60)
        met.append(read_root(store).link.state)

        again = start(source, root)
        _, said = again.communicate(timeout=120)

        assert again.returncode == 0, said
        assert read_root(store).link.state == "verified"
        assert chunks(store) == chunks(unbroken[0])
        assert len(links(root)) == 1
        assert [path.name for path in Project(root).slides_dir.iterdir()] == ["S-1.ome.zarr"]
    assert "linked" in met, met
