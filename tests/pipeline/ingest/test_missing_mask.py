"""A store without its tissue mask gets a new one from its own pixels."""

from __future__ import annotations

import shutil

import pytest

from pipeline.ingest.ingest import IngestRequest, ingest_slide
from pipeline.ingest.source_comparison import verify_store
from pipeline.project import Project
from pipeline.settings.config import IngestConfig
from pipeline.store.layers.labels import read_tissue
from tests.small_trained_project import TISSUE, make_slide
from training.foundation.errors import UnreadableError


@pytest.mark.parametrize("mpp", [0.5, 4.0, 5.3])
def test_ingesting_the_slide_again_makes_the_missing_mask_as_it_was_and_touches_nothing_else(tmp_path, mpp):
    make_slide(tmp_path / "a.tiff", 1)
    config = IngestConfig(shard_px=512, tissue=TISSUE.model_copy(update={"mpp": mpp}))
    request, project = IngestRequest(tmp_path / "a.tiff", "S-1"), Project(tmp_path / "p")
    store = ingest_slide(request, project, config).store
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in store.rglob("*") if path.is_file()}
    shutil.rmtree(store / "0/labels/tissue")

    with pytest.raises(
        UnreadableError, match="`gemslide ingest` of the same slide recreates it from the store's pixels"
    ):
        read_tissue(store)
    again = ingest_slide(request, project, config)

    assert again.skipped
    after = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in store.rglob("*") if path.is_file()}
    assert {path: content for path, (content, _) in after.items()} == {p: content for p, (content, _) in before.items()}
    assert all(after[path][1] == before[path][1] for path in before if "labels" not in path.parts)
    assert "all files as written" in verify_store(store)
