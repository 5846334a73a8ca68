"""Checks of the committed JavaScript without npm."""

from __future__ import annotations

import hashlib
import re

from pathology_app.viewer.bundle import bundle_path


def test_the_bundles_name_is_the_hash_of_its_contents() -> None:
    path = bundle_path()
    assert path.stem == f"viewer-{hashlib.sha256(path.read_bytes()).hexdigest()[:12]}"


def test_the_viewer_writes_text_and_no_html() -> None:
    """Names of classes and models come from files that may be hostile."""
    sources = "".join(path.read_text() for path in (bundle_path().parents[1] / "src").rglob("*.ts"))
    assert "textContent" in sources
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser", sources)


def test_the_bundle_carries_its_licence() -> None:
    assert "OpenSeadragon contributors" in bundle_path().read_text()
    licences = (bundle_path().parents[1] / "THIRD_PARTY_LICENSES.md").read_text()
    assert "CodePlex Foundation" in licences
