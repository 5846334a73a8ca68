"""Rows and cards of the worklist, and the targets of its links."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from pathology_app.app_pages.worklist.lists import cases_html, heat_legend, slides_html
from pathology_app.app_pages.worklist.rows import WorklistRow, columns, read_row
from pathology_app.html.tables import Link, Picture
from pathology_app.links.worklist import GALLERY, NO_VERDICT, WorklistLink
from pathology_app.slides.cache import SlideCache
from pathology_app.slides.index.facts import ModelFacts, read_facts
from pathology_app.slides.index.sweep import CohortFacts
from pathology_app.slides.index.table import Case, Listed
from pipeline.project import Project
from tests.pathology_app.small_project import MODEL_ID, MPP0, SLIDE_ID

LINK = WorklistLink()
HOSTILE = "<img src=x onerror=alert(1)>\"'\u202e"


@pytest.fixture
def copied(project: Project, tmp_path: Path) -> SlideCache:
    """Copy of the small project, to be damaged."""
    shutil.copytree(project.root, tmp_path, dirs_exist_ok=True)
    return SlideCache(Project(tmp_path))


def row_of(cache: SlideCache, link: WorklistLink = LINK, **facts: str) -> WorklistRow:
    listed = Listed(SLIDE_ID, None, CohortFacts(slide_id=SLIDE_ID, **facts), (("trial", "done"),), "unread")
    return read_row(cache, listed, read_facts(cache, SLIDE_ID), link, reading="unread", readers="r1: signed")


def test_a_row_says_what_the_slide_is(cache: SlideCache) -> None:
    link = WorklistLink("s", page=2)
    cells = row_of(
        cache, link, case_id="P-1", block="A2", stain="HE", site="north", label="tumour", scanner="GT450"
    ).cells(link)
    values = dict(zip([column.heading for column in columns(link)], cells, strict=True))

    picture = values.pop("Image")
    assert isinstance(picture, Picture)
    assert picture.url.startswith(f"/thumbnails/{SLIDE_ID}.jpg?v=")
    assert str(picture.over).startswith(f"/heatmaps/{SLIDE_ID}/{MODEL_ID}/1.png?v=")
    assert 0.2 < float(str(values.pop("Tissue mm²"))) < 0.6
    assert len(str(values.pop("Ingested"))) == len("2026-11-23")
    assert values == {
        "Slide": Link(SLIDE_ID, {"find": "s", "page": "2", "slide": SLIDE_ID}),
        "Case": "P-1",
        "Block": "A2",
        "Stain": "HE",
        "State": "unread",
        "Reader": "r1: signed",
        "Top score": "0.97",
        "Prediction": "",
        "Note": "",
        "Predictions of": MODEL_ID,
        "Quality": "",
        "Study": "done",
        "Size": "1800 × 1300 px (0.9 × 0.7 mm)",
        "µm/px": f"{MPP0}",
        "Scanner": "GT450",
        "Site": "north",
        "Label": "tumour",
    }


def test_none_found_is_not_the_same_as_not_known(cache: SlideCache) -> None:
    facts = read_facts(cache, SLIDE_ID)

    def score(tops: dict[str, float] | None, link: WorklistLink = LINK) -> str:
        model = ModelFacts(model_id=MODEL_ID, top_scores=tops)
        listed = Listed(SLIDE_ID, None, CohortFacts(slide_id=SLIDE_ID), (), "")
        return WorklistRow(listed, facts.model_copy(update={"models": (model,)})).score(link)

    assert [score({"positive": 0.5}), score({}), score(None)] == ["0.50", "none", ""]
    assert score({"positive": 0.5}, LINK.to(score_of=("another", ""))) == ""


def test_a_heading_sorts_by_its_column_and_the_other_way_round_the_second_time(cache: SlideCache) -> None:
    by_score = LINK.to(page=7).sorted_by("score")
    assert (by_score.page, by_score.query()) == (1, {"sort": "score"})
    assert by_score.sorted_by("score").query() == {"sort": "-score"}
    (heading,) = [column for column in columns(by_score) if column.heading == "Top score"]
    assert heading.sort is not None
    assert (heading.sort.now, heading.sort.query) == ("descending", {"sort": "-score"})
    drawn = slides_html([row_of(cache, by_score)], by_score)
    assert '<th scope="col" class="number" aria-sort="descending"><a class="gs-go gs-sort"' in drawn
    assert 'href="?sort=-score">Top score ▼</a>' in drawn


@pytest.mark.parametrize(
    "query",
    [
        {"find": "a b", "predicted": "1", "of": "m-1/tumour", "score": "0.5", "sort": "-size", "page": "3"},
        {"state": "done", "quality": "review", "site": "north", "scanner": "x", "case": "P-1"},
        {"quality": NO_VERDICT, "group": "case", "view": "gallery"},
    ],
)
def test_a_link_comes_back_as_it_was(query: dict[str, str]) -> None:
    assert WorklistLink.of(query).query() == query


@pytest.mark.parametrize("page", ["0", "-1", "x", "٣", "9" * 5000])
def test_of_a_link_that_nobody_means_the_nearest_is_taken(page: str) -> None:
    query = {"page": page, "score": "nan", "sort": "-nobody's", "view": "x", "group": "x", "predicted": "yes"}
    assert WorklistLink.of(query) == LINK
    assert WorklistLink.of({"score": "1.5", "find": "\ud800\0"}).find == "?\ufffd"


def test_damaged_hotspots_are_said_in_the_row(copied: SlideCache) -> None:
    (copied.project.result_dir(SLIDE_ID, MODEL_ID) / "hotspots.json").write_text("[")

    row = row_of(copied)

    assert row.facts.note.startswith(f"Hotspots unknown: results/{MODEL_ID}/{SLIDE_ID}")
    assert (row.size, row.score(LINK)) == ("1800 × 1300 px (0.9 × 0.7 mm)", "")


def test_a_damaged_slide_is_a_row_that_says_so(copied: SlideCache) -> None:
    (copied.project.store_path(SLIDE_ID) / "zarr.json").write_text("{")

    row = row_of(copied)

    assert (row.slide_id, row.size, row.picture) == (SLIDE_ID, "", None)
    assert row.facts.note.startswith(f"slides/{SLIDE_ID}.ome.zarr: ")
    assert str(copied.project.root) not in row.facts.note
    assert "No image" in slides_html([row], LINK.to(view=GALLERY))


def test_a_store_put_in_anothers_place_is_seen_whatever_its_time(copied: SlideCache) -> None:
    root = copied.project.store_path(SLIDE_ID) / "zarr.json"
    before, text, stat = copied.slide(SLIDE_ID), root.read_bytes(), root.stat()
    facts = read_facts(copied, SLIDE_ID)

    other = root.with_name("other")
    other.write_bytes(text)
    os.utime(other, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    other.replace(root)

    assert root.stat().st_mtime_ns == stat.st_mtime_ns
    assert copied.slide(SLIDE_ID).version != before.version
    assert read_facts(copied, SLIDE_ID).stamp != facts.stamp
    assert read_facts(copied, SLIDE_ID).version != facts.version


def test_a_folder_that_is_a_link_to_itself_hides_no_slide(copied: SlideCache) -> None:
    loop = copied.project.store_path("S-000")
    loop.symlink_to(loop)

    assert copied.project.slide_ids() == [SLIDE_ID]


def test_cards_and_cases_show_what_others_wrote_as_text(cache: SlideCache) -> None:
    row = row_of(cache, case_id=HOSTILE, label=HOSTILE, site=HOSTILE)
    drawn = cases_html([(Case(HOSTILE, SLIDE_ID, 30, 0.97), [row])], LINK.to(by_case=True))
    drawn += slides_html([row], LINK.to(view=GALLERY)) + heat_legend([row])

    assert "<img src=x" not in drawn
    assert "\u202e" not in drawn
    assert "All 30 slides of this case" in drawn
    assert "P(positive), from 0.5 to 1" in drawn
