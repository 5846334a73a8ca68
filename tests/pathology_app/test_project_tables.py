"""Tables of a whole project reveal nothing of slides that a person may not see: no class, site or author."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from shapely.geometry import box

from pathology_app.people.account_file import ACCOUNTS_FILE, Account, changing_accounts
from pipeline.ledger import open_ledger
from pipeline.project import Project
from pipeline.review import Draft, class_colours, save
from tests.pathology_app.signed_in import browser, cookie_of, hashed, sign_in
from tests.pathology_app.small_project import SLIDE_ID, make_project
from tests.pathology_app.started_app import StartedApp, started_app
from tests.pathology_app.streamlit_socket import tab, texts

pytestmark = pytest.mark.xdist_group("sign_in")

OTHER = "S-002"
PLANTED = ("sarcoma-of-others", "professor-of-others", "site-of-others", "scanner-of-others", "P-of-others", OTHER)
"""The other slide's class, its author, its manifest entries, and its name."""
QUERIES = (
    "", "by=case", "view=gallery", "sort=site", "find=others", f"slide={SLIDE_ID}", f"slide={OTHER}", "log=",
    f"log=&slide_of={OTHER}", "log=&person=professor", "runs=", "new=ingest", "study=", f"compare={SLIDE_ID}",
)  # fmt: skip
ROUTES = (
    f"/annotations/{SLIDE_ID}/changes?since=0", f"/annotations/{SLIDE_ID}/found?words=others", "/log.csv",
    f"/annotations/{SLIDE_ID}/qupath.geojson", f"/annotations/{SLIDE_ID}/tiles/0/0_0", f"/annotations/{OTHER}/changes",
    f"/annotations/{OTHER}/found?words=sarcoma",
)  # fmt: skip


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tables")
    project = make_project(root)
    shutil.copytree(project.store_path(SLIDE_ID), project.store_path(OTHER))
    stored = project.store_path(OTHER) / "zarr.json"
    stored.write_text(stored.read_text().replace(f'"slide_id": "{SLIDE_ID}"', f'"slide_id": "{OTHER}"'))
    (root / "cohort.csv").write_text(
        "path,slide_id,patient_id,site,scanner\n"
        f"a.tiff,{SLIDE_ID},P-own,site-own,\nb.tiff,{OTHER},P-of-others,site-of-others,scanner-of-others\n"
    )
    with open_ledger(project) as ledger:
        save(ledger, OTHER, [Draft(box(9, 9, 99, 99), "polygon", "sarcoma-of-others")], "professor-of-others (web app)")
        save(ledger, SLIDE_ID, [Draft(box(9, 9, 99, 99), "polygon", "own-class")], "ada (web app)")
    with changing_accounts(root / ACCOUNTS_FILE) as accounts:
        accounts.append(Account(name="sam", roles=("admin",), password=hashed(), slides=(SLIDE_ID,)))  # type: ignore[arg-type]
        accounts.append(Account(name="ada", roles=("admin",), password=hashed()))  # type: ignore[arg-type]
    return root


@pytest.fixture(scope="module")
def app(root: Path) -> Iterator[StartedApp]:
    with started_app(root, root / "server.log") as app:
        yield app


def all_that_is_shown(app: StartedApp, client: httpx.Client) -> dict[str, str]:
    shown = {path: client.get(path).text for path in ROUTES}
    with tab(app, cookie_of(client)) as pages:
        ends = time.monotonic() + 30
        while "site-own" not in (first := texts(pages.run("sort=site"))) and time.monotonic() < ends:
            pass  # the manifest is read beside the pages
        shown["first"] = first
        shown |= {query: texts(pages.run(query)) for query in QUERIES}
    return shown


def test_somebody_with_one_slide_reads_nothing_of_the_others_anywhere(app: StartedApp) -> None:
    with browser(app.url) as client:
        sign_in(client, "sam")
        shown = all_that_is_shown(app, client)
    own = f"/annotations/{SLIDE_ID}/changes?since=0"
    assert "own-class" in shown[own]
    assert f"slide {SLIDE_ID}" in shown["/log.csv"]
    # The refusal repeats the requested name to the person who sent it.
    asked_for = {query: query for query in (*QUERIES, *ROUTES) if OTHER in query or "others" in query}
    leaks = {
        (where, word)
        for where, text in shown.items()
        for word in PLANTED
        if word in text and word not in asked_for.get(where, "")
    }
    log_of_own_tries = {("/log.csv", OTHER), ("log=", OTHER)}
    assert leaks - log_of_own_tries == set()


def test_somebody_with_all_slides_reads_all_of_it(app: StartedApp) -> None:
    with browser(app.url) as client:
        sign_in(client, "ada")
        shown = all_that_is_shown(app, client)
    together = "\n".join(shown.values())
    assert [word for word in PLANTED if word not in together] == []


def test_colours_stay_those_of_all_classes_together(root: Path) -> None:
    with open_ledger(Project(root)) as ledger:
        every, own = class_colours(ledger), class_colours(ledger, lambda slide_id: slide_id == SLIDE_ID)
    assert own == {"own-class": every["own-class"]}
    assert len(every) == 2
