"""The worklist page without a browser: sorting, filters, gallery, cases, and unread slides."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from shapely.geometry import Point, box
from streamlit.testing.v1 import AppTest

from pathology_app.app_pages.worklist import page as worklist
from pathology_app.people.person import Person, Role
from pathology_app.people.visitor import current_person
from pathology_app.project.ledger import close_study_ledgers
from pathology_app.project.served import PROJECT_VARIABLE
from pathology_app.readings.status import reading_states
from pathology_app.slides.cache import current_cache
from pathology_app.slides.index.index import SlideIndex
from pipeline.ledger.opening import open_ledger
from pipeline.ledger.project_log import Change, log_in_project
from pipeline.ledger.rows import slide_subject
from pipeline.project import Project
from pipeline.review import Draft, save
from tests.pathology_app.many_slides import make_many_slides
from tests.pathology_app.opened import hrefs, html_of, linked, open_page
from tests.pathology_app.small_project import MODEL_ID, SLIDE_ID

ADA = Person("ada", frozenset({Role.READER}))


@pytest.fixture
def several(monkeypatch: pytest.MonkeyPatch, project: Project, tmp_path: Path) -> Iterator[Project]:
    """Project with the small slide, three others without predictions, and a manifest."""
    make_many_slides(project, tmp_path, 3)
    for folder in ("slides", "results"):
        shutil.copytree(project.root / folder, tmp_path / folder, dirs_exist_ok=True)
    for store in (tmp_path / "slides").glob("many-*"):
        shutil.rmtree(store / "predictions")
    rows = (f"x,{SLIDE_ID},P-2,north", "x,many-00000,P-1,south", "x,many-00001,P-2,south")
    (tmp_path / "cohort.csv").write_text("\n".join(["path,slide_id,patient_id,site", *rows]))
    monkeypatch.setenv(PROJECT_VARIABLE, str(tmp_path))
    yield Project(tmp_path)
    close_study_ledgers()


def captions(page: AppTest) -> str:
    return "\n".join(caption.value for caption in page.caption)


def test_the_link_sorts_and_filters_and_each_heading_is_a_link(several: Project) -> None:
    assert linked(open_page(sort="score"))[0] == SLIDE_ID
    assert linked(open_page(sort="-slide"))[0] == "many-00002"
    assert linked(open_page(score="0.9")) == [SLIDE_ID]
    assert linked(open_page(score="0.98")) == []
    assert linked(open_page(site="south")) == ["many-00000", "many-00001"]
    page = open_page(site="south", sort="case")
    assert 'href="?site=south&amp;sort=-case">Case ▲</a>' in html_of(page)
    assert "No slide matches these filters." in open_page(site="nowhere").info[0].value


def test_a_filter_chosen_on_the_page_stands_in_the_link(several: Project) -> None:
    page = open_page(page="1", sort="score")
    page.selectbox(key="site ").set_value("south").run()
    assert dict(page.query_params) == {"site": "south", "sort": "score"}
    page.selectbox(key="sort score").set_value("slide").run()
    page.button(key="clear_filters").click().run()
    assert dict(page.query_params) == {}
    page.number_input(key="min_score None").set_value(0.5).run()
    page.selectbox(key="of ").set_value(f"{MODEL_ID}/positive").run()
    assert dict(page.query_params) == {"of": f"{MODEL_ID}/positive", "score": "0.5"}
    assert linked(page) == [SLIDE_ID]


def test_the_gallery_has_a_card_for_each_slide_with_its_heat_map(several: Project) -> None:
    page = open_page(view="gallery")

    drawn = html_of(page)
    assert drawn.count('role="listitem"') == len(linked(page)) == 4
    assert len(re.findall(rf'src="/heatmaps/{SLIDE_ID}/{MODEL_ID}/1\.png\?v=\w+-0\.5"', drawn)) == 1
    assert hrefs(page)[0] == f"?view=gallery&slide={SLIDE_ID}"


def test_slides_of_a_case_unfold_under_it(several: Project) -> None:
    page = open_page(group="case", sort="score")

    cases = re.findall(r"<summary><strong>(.*?)</strong><span>(.*?)</span>", html_of(page))
    assert cases == [("P-2", "2 slides"), ("P-1", "1 slide"), ("many-00002", "case unknown")]
    assert linked(page) == [SLIDE_ID, "many-00001", "many-00000", "many-00002"]
    assert "3 cases, 4 of 4 slides." in captions(page)


def test_a_bad_manifest_is_said_and_hides_no_slide(several: Project) -> None:
    (several.root / "cohort.csv").write_text("path,nothing\n")
    page = open_page()
    assert len(linked(page)) == 4
    assert "Cases, labels and sites are unavailable" in captions(page)


def test_unread_is_what_the_projects_log_does_not_connect_with_the_person(
    several: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_ledger(several) as ledger:
        entries = [(ADA, "many-00000"), (Person("eve"), SLIDE_ID)]
        opened = [Change(person.actor, "slide opened", slide_subject(slide_id)) for person, slide_id in entries]
        log_in_project(ledger, opened)
    monkeypatch.setattr(worklist, "current_person", lambda: ADA)

    page = open_page(sort="state")
    assert linked(page) == [SLIDE_ID, "many-00001", "many-00002", "many-00000"]
    (button,) = re.findall(r'class="gs-go gs-button"[^>]*href="(.*?)">(.*?)<', html_of(page))
    assert button == (f"?sort=state&amp;slide={SLIDE_ID}", "Next unread (3)")
    assert linked(open_page(state="opened")) == ["many-00000"]
    assert 'class="gs-go gs-button"' not in html_of(open_page(find="00000"))


@pytest.mark.usefixtures("serve_project")
def test_where_nobody_signs_in_nothing_is_read_or_unread() -> None:
    assert reading_states(current_cache().project, Person()) is None
    assert "State" not in html_of(open_page())


def test_a_person_of_whom_the_log_says_nothing_has_read_nothing(several: Project) -> None:
    states = reading_states(several, ADA)
    assert states is not None
    assert (states.statuses[0], dict(states.states), states.readers([SLIDE_ID])) == ("unread", {}, {})


def test_what_is_still_being_read_is_said(several: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worklist, "WAIT_S", 0.0)
    monkeypatch.setattr("pathology_app.slides.index.index.SlideIndex._sweep", lambda self: None)

    page = open_page()

    assert len(linked(page)) == 4
    assert "4 of 4 slides. Still loading 4 slides" in captions(page)


def test_a_press_on_next_counts_also_where_the_last_slide_was_read_just_then(
    several: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worklist, "ROWS_PER_PAGE", 2)
    page = open_page()
    # The list is begun while slides are still being read, and they have all been read when it is drawn.
    states = iter([False, False])
    monkeypatch.setattr(SlideIndex, "is_swept", property(lambda _: next(states, True)))

    page.button(key="to_Next").click().run()

    assert next(states, None) is None
    assert dict(page.query_params) == {"page": "2"}


def test_an_author_is_told_in_the_worklist_on_which_slides_others_changed_their_annotations(several: Project) -> None:
    drawn = Draft(box(10, 10, 200, 200), "rectangle", "tumour")
    with open_ledger(several) as ledger:
        save(ledger, SLIDE_ID, [drawn], current_person().actor)
        assert "Others have changed" not in html_of(open_page())
        save(ledger, SLIDE_ID, [replace(drawn, revision=1, is_deleted=True)], "bea (web app)")
    page = html_of(open_page(site="north"))
    assert "Others have changed annotations of yours on" in page
    assert f'href="?site=north&amp;slide={SLIDE_ID}"' in page


def test_the_review_of_a_slide_lists_what_was_counted(several: Project) -> None:
    area = Draft(box(100, 100, 500, 500), "count")
    marks = [Draft(Point(200 + n, 200), "mark", "mitosis", parent_id=area.annotation_id) for n in range(3)]
    with open_ledger(several) as ledger:
        save(ledger, SLIDE_ID, [area, *marks], "bea (web app)")
    page = html_of(open_page(slide=SLIDE_ID))
    assert "Share (95 % interval)" in page
    assert "mitosis" in page
    assert "100.0 % (43.9 to 100.0)" in page
    assert ">75<" in page, "3 in 0.04 mm²"
