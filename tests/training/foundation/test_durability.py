"""Published files survive a power cut: contents are synced before names, and names before the old file is removed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from training.foundation import publish
from training.foundation.recipe_file import RECIPES_DIR
from training.foundation.run_record import RecordFile, RunRecord, recorded
from training.packages.write import PackageContent, write_packages
from training.recipe.config import load_recipe


@pytest.fixture
def trace(monkeypatch):
    """Syncs and renames, in order: ("fsync", inode) and ("rename", inode)."""
    events: list[tuple[str, int]] = []
    fsync, rename, replace, exchange, remove = os.fsync, Path.rename, Path.replace, publish.exchange, publish.remove

    def traced_fsync(descriptor):
        fsync(descriptor)
        events.append(("fsync", os.fstat(descriptor).st_ino))

    def named(real):
        def call(path, target):
            events.append(("rename", path.stat().st_ino))
            return real(path, target)

        return call

    def traced_remove(path):
        events.append(("remove", path.stat().st_ino))
        remove(path)

    monkeypatch.setattr(os, "fsync", traced_fsync)
    monkeypatch.setattr(Path, "rename", named(rename))
    monkeypatch.setattr(Path, "replace", named(replace))
    monkeypatch.setattr(publish, "exchange", named(exchange))
    monkeypatch.setattr(publish, "remove", traced_remove)
    return events


def assert_durable(events, folder, inside):
    """Assert that `inside` was flushed before its rename into the parent, and the parent afterwards."""
    ours, parent = inside.stat().st_ino, folder.stat().st_ino
    named = max(i for i, event in enumerate(events) if event == ("rename", ours))
    assert ("fsync", ours) in events[:named]
    assert ("fsync", parent) in events[named:]


def test_a_run_record_is_flushed_then_named_then_its_folder_is_flushed(tmp_path, trace):
    with recorded(RunRecord("train", {}), tmp_path / "runs") as record:
        pass

    assert_durable(trace, tmp_path / "runs", tmp_path / "runs" / f"{record.run_id}.json")


def test_a_record_without_its_lists_is_as_durable(tmp_path, trace):
    RecordFile(tmp_path / "runs", "a").write({"run_id": "a"})

    assert_durable(trace, tmp_path / "runs", tmp_path / "runs/a.json")


def _content(metrics):
    recipe = load_recipe(RECIPES_DIR / "demo.toml")
    return PackageContent(
        recipe=recipe, recipe_name="demo", classes=("a", "b"), tile_px=32, mpp=1.0, mean=[0.5] * 3, std=[0.1] * 3,
        stain=None, split_fingerprint="0" * 64, run_id="r", plan={"strategy": "single", "num_stages": 1,
        "num_microbatches": 1}, which="best", epoch=1, metrics=metrics,
    )  # fmt: skip


def test_every_file_of_a_model_package_is_flushed_before_the_package_has_its_name(tmp_path, trace):
    (model_id,) = write_packages(tmp_path, [({"w": torch.ones(3)}, _content({"loss": 1.0}))])

    package = tmp_path / model_id
    for path in package.iterdir():
        assert_durable(trace, package, path)
    assert_durable(trace, tmp_path, package)
    named = max(i for i, event in enumerate(trace) if event == ("rename", package.stat().st_ino))
    assert all(("fsync", path.stat().st_ino) in trace[:named] for path in package.iterdir())


def test_a_published_model_is_removed_only_when_the_new_one_has_its_name_on_the_disk(tmp_path, trace):
    (model_id,) = write_packages(tmp_path, [({"w": torch.ones(3)}, _content({"loss": 1.0}))])
    old = (tmp_path / model_id).stat().st_ino
    trace.clear()

    write_packages(tmp_path, [({"w": torch.ones(3)}, _content({"loss": 0.5}))])

    new = (tmp_path / model_id).stat().st_ino
    flushed = [i for i, event in enumerate(trace) if event == ("fsync", tmp_path.stat().st_ino)]
    assert new != old
    assert trace.index(("rename", new)) < min(flushed) < trace.index(("remove", old))
    assert '"loss": 0.5' in (tmp_path / model_id / "metrics.json").read_text()
