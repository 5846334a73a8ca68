"""Python's own pauses while tiles are served."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator

import pytest

from pathology_app.serving.interpreter import SWITCH_S, first_page_is_drawn, share_with_tiles
from tests.pathology_app.opened import open_page


@pytest.fixture
def interpreter() -> Iterator[None]:
    """Restore the interpreter's settings afterwards."""
    before_s = sys.getswitchinterval()
    assert gc.get_freeze_count() == 0
    yield
    sys.setswitchinterval(before_s)
    gc.unfreeze()


@pytest.mark.usefixtures("interpreter", "serve_project")
def test_what_is_loaded_is_not_looked_through_after_each_run_of_a_page() -> None:
    open_page()
    assert gc.get_freeze_count() == 0  # no effect in a process that serves no tiles

    share_with_tiles()
    open_page()

    assert sys.getswitchinterval() == pytest.approx(SWITCH_S)
    assert gc.get_freeze_count() > 50_000
    assert len(gc.get_objects()) < 50_000


@pytest.mark.usefixtures("interpreter")
def test_only_the_first_page_freezes() -> None:
    share_with_tiles()
    first_page_is_drawn()
    gc.unfreeze()

    first_page_is_drawn()

    assert gc.get_freeze_count() == 0
