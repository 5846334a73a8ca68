"""Rows and pages of the worklist."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from pathology_app.html_tables import Link, Picture
from pathology_app.tiles.cache import SlideCache
from pathology_app.worklist_link import WorklistLink
from pathology_app.worklist_rows import COLUMNS, ROWS_PER_PAGE, find_slides, page_of, read_row
from pipeline.project import Project
from tests.pathology_app.many_slides import make_many_slides
from tests.pathology_app.small_project import MODEL_ID, MPP0, SLIDE_ID


@pytest.fixture
def copied(project: Project, tmp_path: Path) -> SlideCache:
    """A copy of the small project, to be damaged."""
    shutil.copytree(project.root, tmp_path, dirs_exist_ok=True)
    return SlideCache(Project(tmp_path))


def test_a_row_says_what_the_slide_is(cache: SlideCache) -> None:
    picture, *shown = read_row(cache, SLIDE_ID).cells(WorklistLink("s", page=2))

    assert isinstance(picture, Picture)
    assert picture.url.startswith(f"/thumbnails/{SLIDE_ID}.jpg?v=")
    assert 0.2 < float(str(shown.pop(4))) < 0.6
    link = Link(SLIDE_ID, {"find": "s", "page": "2", "slide": SLIDE_ID})
    assert shown == [link, "", "1800 × 1300 px (0.9 × 0.7 mm)", f"{MPP0}", MODEL_ID, "0.97"]
    assert len(COLUMNS) == len(shown) + 2


@pytest.mark.parametrize(
    ("text", "only_predicted", "found"),
    [
        ("", False, True),
        ("s-001", True, True),
        ("001 demo", True, True),
        ("demo", False, False),
        ("002", False, False),
        ("s 1", False, True),
    ],
)
def test_the_filter_wants_every_word(cache: SlideCache, text: str, only_predicted: bool, found: bool) -> None:
    assert find_slides(cache, text, only_predicted=only_predicted) == ([SLIDE_ID] if found else [], 1)


def test_slides_without_predictions_can_be_hidden(copied: SlideCache) -> None:
    shutil.rmtree(copied.project.store_path(SLIDE_ID) / "predictions")

    assert find_slides(copied, "", only_predicted=True) == ([], 1)
    assert read_row(copied, SLIDE_ID).top_score is None


@pytest.mark.parametrize(
    ("wanted", "number", "first", "count"),
    [
        ("1", 1, 0, ROWS_PER_PAGE), ("2", 2, ROWS_PER_PAGE, ROWS_PER_PAGE), ("3", 3, 2 * ROWS_PER_PAGE, 7),
        ("4", 3, 2 * ROWS_PER_PAGE, 7), ("0", 1, 0, ROWS_PER_PAGE), ("-1", 1, 0, ROWS_PER_PAGE),
        ("x", 1, 0, ROWS_PER_PAGE), ("٣", 1, 0, ROWS_PER_PAGE), ("9" * 5000, 1, 0, ROWS_PER_PAGE),
    ],
)  # fmt: skip
def test_a_link_names_a_page(wanted: str, number: int, first: int, count: int) -> None:
    slide_ids = [f"s{index}" for index in range(2 * ROWS_PER_PAGE + 7)]
    page = page_of(slide_ids, WorklistLink.of({"page": wanted}).page)
    assert (page.number, page.pages) == (number, 3)
    assert list(page.slide_ids) == slide_ids[first : first + count]


def test_an_empty_list_has_one_page() -> None:
    assert (page_of([], 7).number, page_of([], 7).pages) == (1, 1)


def test_a_slide_of_which_it_is_not_known_whether_it_was_predicted_is_not_left_out(copied: SlideCache) -> None:
    shutil.rmtree(copied.project.store_path(SLIDE_ID) / "predictions")
    (copied.project.store_path(SLIDE_ID) / "predictions").symlink_to("x" * 300)  # cannot be looked at, root or not

    assert find_slides(copied, "", only_predicted=True) == ([SLIDE_ID], 1)
    assert read_row(copied, SLIDE_ID).note


def test_damaged_hotspots_are_said_in_the_row(copied: SlideCache) -> None:
    (copied.project.result_dir(SLIDE_ID, MODEL_ID) / "hotspots.json").write_text("[")

    row = read_row(copied, SLIDE_ID)

    assert row.note.startswith(f"Hotspots unknown: results/{MODEL_ID}/{SLIDE_ID}")
    assert (row.size, row.top_score) == ("1800 × 1300 px (0.9 × 0.7 mm)", None)


def test_a_damaged_slide_is_a_row_that_says_so(copied: SlideCache) -> None:
    (copied.project.store_path(SLIDE_ID) / "zarr.json").write_text("{")

    row = read_row(copied, SLIDE_ID)

    assert (row.slide_id, row.size) == (SLIDE_ID, None)
    assert row.note.startswith(f"slides/{SLIDE_ID}.ome.zarr: ")
    assert str(copied.project.root) not in row.note


def test_a_store_put_in_anothers_place_is_seen_whatever_its_time(copied: SlideCache) -> None:
    root = copied.project.store_path(SLIDE_ID) / "zarr.json"
    before, text, found = copied.slide(SLIDE_ID), root.read_bytes(), root.stat()

    other = root.with_name("other")
    other.write_bytes(text)
    os.utime(other, ns=(found.st_atime_ns, found.st_mtime_ns))
    other.replace(root)

    assert root.stat().st_mtime_ns == found.st_mtime_ns
    assert copied.slide(SLIDE_ID).version != before.version
    assert read_row(copied, SLIDE_ID).thumbnail_url != f"/thumbnails/{SLIDE_ID}.jpg?v={before.version}"


def test_a_page_of_many_slides_reads_that_page_only(project: Project, tmp_path: Path) -> None:
    """Stores of other pages are not even looked at: here they cannot be read."""
    make_many_slides(project, tmp_path, 2 * ROWS_PER_PAGE)
    cache = SlideCache(Project(tmp_path))
    slide_ids, total = find_slides(cache, "", only_predicted=False)
    for slide_id in slide_ids[ROWS_PER_PAGE:]:
        (cache.project.store_path(slide_id) / "zarr.json").unlink()
    read_row(cache, slide_ids[0])  # zarr opens an event loop once
    opened = len(os.listdir("/proc/self/fd"))

    rows = [read_row(cache, slide_id) for slide_id in page_of(slide_ids, 1).slide_ids]

    assert (total, len(rows)) == (2 * ROWS_PER_PAGE, ROWS_PER_PAGE)
    assert not any(row.note for row in rows)
    assert len(os.listdir("/proc/self/fd")) == opened
    assert "has no zarr.json" in read_row(cache, slide_ids[-1]).note


def test_a_folder_that_is_a_link_to_itself_hides_no_slide(copied: SlideCache) -> None:
    loop = copied.project.store_path("S-000")
    loop.symlink_to(loop)

    assert find_slides(copied, "", only_predicted=False) == ([SLIDE_ID], 1)
