"""The report of a slide: saved views, counts, measurements and annotations on a page that needs nothing else."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator

import httpx
import pytest
from shapely.geometry import LineString, Point, box
from starlette.applications import Starlette

from pathology_app.people import acts
from pathology_app.people import person as people
from pathology_app.people.person import Person, Role
from pathology_app.slides.cache import SlideCache
from pathology_app.tiles import case_reports
from pathology_app.tiles.case_reports import case_report_routes
from pipeline.case_report import case_report, page_of
from pipeline.case_report.snapshots import view_of
from pipeline.ledger import open_ledger
from pipeline.project import Project
from pipeline.review import Draft, save
from pipeline.store.reading.reader import StoreReader
from tests.pathology_app.small_project import MODEL_ID, SLIDE_ID, make_project

COUNT = Draft(box(100, 100, 500, 400), "count")
DRAWN = [
    COUNT,
    *(Draft(Point(120 + 9 * n, 200), "mark", "positive", parent_id=COUNT.annotation_id) for n in range(5)),
    Draft(LineString([(0, 0), (300, 400)]), "ruler", note="<b>invasive front</b>"),
    Draft(box(600, 600, 800, 900), "rectangle", "tumour"),
    Draft(Point(700, 700), "bookmark", note="edge", view="at=350,350,0.7&layers=x"),
    Draft(Point(700, 700), "bookmark", note="spoilt", view="at=nan,1,0"),
]


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = make_project(tmp_path_factory.mktemp("reported"))
    ledger = open_ledger(project)
    save(ledger, SLIDE_ID, DRAWN, "ada (web app)")
    ledger.database.close()
    return project


@pytest.fixture(scope="module")
def page(reported: Project) -> Iterator[str]:
    ledger = open_ledger(reported)
    card = reported.model_path(MODEL_ID) / "card.md"
    card.parent.mkdir(parents=True, exist_ok=True)
    card.write_text("# Card\n\n## Limits\n\n- Trained on one scanner only.\n\n## Data\n\n- nothing\n")
    yield page_of(case_report(reported, StoreReader(reported.store_path(SLIDE_ID)), ledger, "grace", [MODEL_ID]))
    ledger.database.close()


def ask(project: Project, path: str) -> httpx.Response:
    async def send() -> httpx.Response:
        app = Starlette(routes=case_report_routes(SlideCache(project)))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://slides") as client:
            return await client.get(path)

    return asyncio.run(send())


def test_the_page_states_what_was_measured_and_counted_by_whom(page: str) -> None:
    assert "Research use only" in page
    assert "Made by grace" in page
    for text in ("Count 1", "positive", "100.0 % (56.6 to 100.0)", "ada (web app)", "250", "tumour"):
        assert text in page, text
    # 5 objects in 400 × 300 px at 0.5 µm.
    assert "167" in page
    assert "Trained on one scanner only." in page
    assert "<b>invasive" not in page
    assert "&lt;b&gt;invasive front" in page


def test_saved_views_are_images_with_outlines_and_nothing_is_fetched(page: str) -> None:
    assert page.count("data:image/jpeg;base64,") == 1  # the spoilt view is left out
    assert re.search(r'<path d="M [\d.]+ [\d.]+ L', page)
    assert not re.findall(r'(?:src|href)="(?!data:)', page)


def test_a_view_that_makes_no_sense_is_none() -> None:
    for text in (None, "", "at=", "at=1,2", "at=1,2,-1", "at=inf,1,1", "at=1e9,1,1", "layers=1"):
        assert view_of(text) is None
    assert view_of("at=1.5,2,0.5,90,m") is not None


def test_the_routes_serve_page_and_pdf_and_refuse_who_may_not_export(
    reported: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = ask(reported, f"/reports/{SLIDE_ID}/report.html")
    assert page.status_code == 200, page.text
    pdf = ask(reported, f"/reports/{SLIDE_ID}/report.pdf")
    assert pdf.content.startswith(b"%PDF-")
    assert ask(reported, f"/reports/{SLIDE_ID}/report.exe").status_code == 400
    assert ask(reported, "/reports/nobody/report.html").status_code == 404
    reader = Person("ada", frozenset({Role.READER}))
    assert people.MAY[Role.READER]
    assert acts.RIGHTS[acts.Act.EXPORT_ANNOTATIONS] not in people.MAY[Role.READER]
    monkeypatch.setattr(case_reports, "person_of", lambda scope: reader)
    assert ask(reported, f"/reports/{SLIDE_ID}/report.html").status_code == 403
