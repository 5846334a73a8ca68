"""Fixtures shared by the tests of encoders."""

from __future__ import annotations

import pytest

from tests.training.encoders.tiny_encoders import install


@pytest.fixture
def their_code(tmp_path, monkeypatch):
    """Package that registers encoders, installed for this test."""
    install(tmp_path / "site")
    monkeypatch.syspath_prepend(tmp_path / "site")
