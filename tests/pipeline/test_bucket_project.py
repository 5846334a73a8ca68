"""A project whose slides are in a bucket: tiled, trained on, verified, exported and viewed as if they were in it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pathology_app.serving.installation import check_installation
from pathology_app.slides.cache import SlideCache
from pathology_app.slides.index.facts import read_facts, stamp_of
from pipeline.errors import OutsideFoldersError, ReadOnlyStoreError
from pipeline.naming.slides import find_store
from pipeline.places import bucket as bucket_requests
from pipeline.places import connection
from pipeline.places.object_path import ObjectPath
from pipeline.project import Project
from pipeline.settings.site import BUCKET_VARIABLE, SITE_VARIABLE, WITHIN_VARIABLE
from pipeline.store.layers.overlays import read_predictions
from pipeline.store.reading.reader import StoreReader
from pipeline.tiles.dataset import TileDataset
from tests.conftest import Done
from tests.pathology_app import small_project as one_slide
from tests.pathology_app.routes_in_process import get
from tests.pipeline.store.bucket_server import BUCKET, BucketServer, bucket_server
from tests.small_trained_project import SmallProject
from training.foundation.errors import BadRecipeError, UnreadableError

Gemslide = Callable[..., Done]
SECRETS = ("AKIASECRETKEYID", "secret-access-key")


@dataclass
class InBucket:
    """The small project twice: with its slides, and without them but with a bucket that has them."""

    local: Project
    remote: Project
    server: BucketServer
    model_id: str


@pytest.fixture(scope="module")
def server() -> Iterator[BucketServer]:
    with bucket_server() as running:
        yield running


@pytest.fixture(scope="module")
def projects(
    server: BucketServer, small_project_copy: SmallProject, tmp_path_factory: pytest.TempPathFactory
) -> InBucket:
    local = small_project_copy.project
    remote = Project(tmp_path_factory.mktemp("remote") / "p")
    shutil.copytree(local.root, remote.root, ignore=shutil.ignore_patterns("slides"))
    for slide_id in local.slide_ids():
        store = local.store_path(slide_id)
        server.put_folder(store, f"small/{store.name}")
    return InBucket(local, remote, server, small_project_copy.model_id)


@pytest.fixture
def with_bucket(projects: InBucket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[InBucket]:
    """The installation names the bucket for that project only."""
    site = tmp_path / "site.toml"
    site.write_text(f'[project."{projects.remote.root}"]\nbucket = "s3://{BUCKET}/small"\n')
    monkeypatch.setenv(SITE_VARIABLE, str(site))
    projects.server.reach(monkeypatch)
    yield projects
    connection.connect.cache_clear()


def files_of(project: Project) -> list[str]:
    return sorted(str(path.relative_to(project.root)) for path in project.root.rglob("*") if path.is_file())


def test_slides_of_the_bucket_are_slides_of_the_project(with_bucket: InBucket) -> None:
    assert with_bucket.remote.slide_ids() == with_bucket.local.slide_ids()
    store = with_bucket.remote.stored_at("small-test")
    assert str(store) == f"s3://{BUCKET}/small/small-test.ome.zarr"
    assert with_bucket.remote.owns(store)
    assert with_bucket.remote.has_store("small-test")
    assert not with_bucket.remote.has_store("no-such")
    assert with_bucket.remote.stored_at("no-such") == with_bucket.remote.slides_dir / "no-such.ome.zarr"


def test_a_slide_in_the_folder_comes_before_one_in_the_bucket(with_bucket: InBucket) -> None:
    copied = with_bucket.remote.slides_dir / "small-test.ome.zarr"
    shutil.copytree(with_bucket.local.store_path("small-test"), copied)
    try:
        assert with_bucket.remote.stored_at("small-test") == with_bucket.remote.store_path("small-test") == copied
        assert with_bucket.remote.slide_ids() == with_bucket.local.slide_ids()
    finally:
        shutil.rmtree(with_bucket.remote.slides_dir)


def test_tiles_are_those_of_local_slides(with_bucket: InBucket, gemslide: Gemslide) -> None:
    before = files_of(with_bucket.remote)
    for project in (with_bucket.local, with_bucket.remote):
        done = gemslide("tile", "--tile-set", "again", "--tile-px", 64, "--tile-mpp", 1, "--project", project.root)
        assert done.code == 0, done.err

    tables = [pd.read_parquet(project.tile_table_path("again")) for project in (with_bucket.local, with_bucket.remote)]
    pd.testing.assert_frame_equal(*tables)
    near, far = (TileDataset(project.root, "small") for project in (with_bucket.local, with_bucket.remote))
    assert far.fingerprint == near.fingerprint
    assert all(np.array_equal(far.read(index), near.read(index)) for index in range(0, len(near), 7))
    new = set(files_of(with_bucket.remote)) - set(before)
    assert not any(name.startswith("slides") for name in new)
    texts = [(with_bucket.remote.root / name).read_bytes() for name in new if name.endswith((".json", ".toml", ".log"))]
    assert texts
    assert not any(secret.encode() in text for text in texts for secret in SECRETS)


def test_verify_info_and_export_read_from_the_bucket(with_bucket: InBucket, gemslide: Gemslide, tmp_path: Path) -> None:
    verified = gemslide("verify", "--project", with_bucket.remote.root)
    assert verified.code == 0, verified.err
    assert verified.out.count("all files as written") == len(with_bucket.local.slide_ids())

    by_id = gemslide("info", "small-test", "--json", "--project", with_bucket.remote.root)
    by_address = gemslide("info", f"s3://{BUCKET}/small/small-test.ome.zarr", "--json", "--project", tmp_path)
    local = gemslide("info", "small-test", "--json", "--project", with_bucket.local.root)
    assert json.loads(by_id.out) == json.loads(by_address.out) == json.loads(local.out)

    for project, name in ((with_bucket.local, "near.tiff"), (with_bucket.remote, "far.tiff")):
        done = gemslide("export", "small-test", tmp_path / name, "--project", project.root)
        assert done.code == 0, done.err
    assert (tmp_path / "near.tiff").read_bytes() == (tmp_path / "far.tiff").read_bytes()


def test_what_would_write_into_a_store_is_refused_before_it_begins(with_bucket: InBucket, gemslide: Gemslide) -> None:
    before = files_of(with_bucket.remote)
    for command in (
        ("infer", with_bucket.model_id, "small-test"),
        ("qc", "small-test"),
        ("tissue", "small-test"),
    ):
        refused = gemslide(*command, "--json", "--project", with_bucket.remote.root)

        assert refused.code == 1, command
        assert "read_only_store" in refused.out + refused.err, command
        assert "from which slides are only read" in refused.out + refused.err, command
    new = [name for name in files_of(with_bucket.remote) if name not in before]
    assert all(name.startswith("runs/") for name in new), new
    with pytest.raises(ReadOnlyStoreError):
        with_bucket.remote.store_path("small-test")


def test_a_slide_of_the_bucket_is_not_ingested_again(with_bucket: InBucket, gemslide: Gemslide, tmp_path: Path) -> None:
    source = tmp_path / "small-test.tiff"
    one_slide.write_tiff(source)

    refused = gemslide("ingest", source, "--project", with_bucket.remote.root)

    assert refused.code == 1
    assert "bucket" in refused.err + refused.out
    assert not with_bucket.remote.slides_dir.exists()


def test_without_the_setting_or_the_bucket_the_slides_are_not_there(
    with_bucket: InBucket, monkeypatch: pytest.MonkeyPatch, gemslide: Gemslide
) -> None:
    monkeypatch.setenv(BUCKET_VARIABLE, f"s3://no-such-bucket/{'x' * 10}")
    connection.connect.cache_clear()
    missing = gemslide("info", "small-test", "--project", with_bucket.remote.root)
    assert missing.code == 1
    monkeypatch.setenv(BUCKET_VARIABLE, "s3://key:secret-access-key@scans/small")
    with pytest.raises(BadRecipeError, match="not the address") as refused:
        check_installation(with_bucket.remote)
    assert "secret-access-key" not in str(refused.value)
    monkeypatch.delenv(BUCKET_VARIABLE)
    monkeypatch.delenv(SITE_VARIABLE)
    assert with_bucket.remote.slide_ids() == []


def test_the_web_app_s_runs_read_no_other_bucket(with_bucket: InBucket, monkeypatch: pytest.MonkeyPatch) -> None:
    own = f"s3://{BUCKET}/small/small-test.ome.zarr"
    monkeypatch.setenv(WITHIN_VARIABLE, json.dumps([str(with_bucket.remote.root)]))

    assert str(find_store(own, with_bucket.remote)) == own
    with pytest.raises(OutsideFoldersError, match="not in this project's bucket"):
        find_store("s3://elsewhere/small/small-test.ome.zarr", with_bucket.remote)


@pytest.fixture
def viewed(
    server: BucketServer, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[SlideCache, SlideCache]]:
    """The viewer's cache of a slide with predictions: of the slide in the folder, and in the bucket."""
    near = one_slide.make_project(tmp_path_factory.mktemp("viewed"))
    far = Project(tmp_path_factory.mktemp("far"))
    shutil.copytree(near.results_dir, far.results_dir)
    server.put_folder(near.store_path(one_slide.SLIDE_ID), f"viewed/{one_slide.SLIDE_ID}.ome.zarr")
    site = far.root / "site.toml"
    site.write_text(f'[project."{far.root}"]\nbucket = "s3://{BUCKET}/viewed"\n')
    monkeypatch.setenv(SITE_VARIABLE, str(site))
    server.reach(monkeypatch)
    check_installation(far)
    yield SlideCache(near), SlideCache(far)
    connection.connect.cache_clear()


def test_the_viewer_shows_the_same(viewed: tuple[SlideCache, SlideCache]) -> None:
    near, far = viewed
    slide, model = one_slide.SLIDE_ID, one_slide.MODEL_ID
    paths = [f"/tiles/{slide}/0/1_1", f"/tiles/{slide}/1/0_0", f"/thumbnails/{slide}.jpg"]

    for path in paths:
        here, there = get(near, path), get(far, path)
        assert (here.status_code, here.content) == (there.status_code, there.content), path
    assert far.model_ids(slide) == [model]
    assert np.array_equal(
        far.predictions(slide, model).predictions.probabilities_cyx,
        near.predictions(slide, model).predictions.probabilities_cyx,
        equal_nan=True,
    )
    facts = [read_facts(cache, slide) for cache in (near, far)]
    own = {"stamp": "", "version": ""}
    assert facts[0].model_copy(update=own) == facts[1].model_copy(update=own)
    assert facts[1].stamp == stamp_of(far.project, slide)


def test_a_slide_that_was_replaced_is_shown_anew(
    viewed: tuple[SlideCache, SlideCache], server: BucketServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _, far = viewed
    slide = one_slide.SLIDE_ID
    first, stamp, mask = far.slide(slide), stamp_of(far.project, slide), far.tissue(slide)
    other = one_slide.make_damaged_project(tmp_path)
    server.put_folder(other.store_path(slide), f"viewed/{slide}.ome.zarr")
    monkeypatch.setattr(bucket_requests, "STATE_AGE_S", 1e-9)  # as some seconds later

    assert far.slide(slide).version != first.version
    assert far.slide(slide).damaged is not None
    assert stamp_of(far.project, slide) != stamp
    assert mask is not None
    assert far.tissue(slide).version != mask.version
    with pytest.raises(UnreadableError, match="replaced"):
        first.reader.chunk(1, 0, 0)


def test_predictions_in_the_bucket_are_read_with_their_slide(viewed: tuple[SlideCache, SlideCache]) -> None:
    near, far = viewed
    path = far.project.stored_at(one_slide.SLIDE_ID)
    assert isinstance(path, ObjectPath)
    assert StoreReader(path).attributes == near.slide(one_slide.SLIDE_ID).reader.attributes
    assert read_predictions(path, one_slide.MODEL_ID).class_names == one_slide.CLASS_NAMES
