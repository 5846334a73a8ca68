"""The study pages without a browser: their text, their changes to the ledger, and what they leave alone."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from pathology_app.html.text import as_markdown
from pathology_app.links.studies import SLIDES_PER_PAGE
from pathology_app.project.ledger import close_study_ledgers
from pathology_app.project.served import PROJECT_VARIABLE
from pipeline.ledger.ledger import NewSlide
from pipeline.ledger.opening import actor_here, open_ledger
from pipeline.project import Project
from pipeline.settings.site import LEDGER_VARIABLE
from pipeline.study.outcomes.retries import retry
from pipeline.study.proof.verify import verify_log
from pipeline.study.work.leases import Ended
from tests.pathology_app.opened import hrefs, html_of, linked, open_page, viewer_data, visible_text
from tests.pathology_app.small_study import STUDY, make_study, take, worker

ACTOR = f"Ada (web app, {actor_here()})"


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Folder of the project that the pages show, empty at first."""
    monkeypatch.setenv(PROJECT_VARIABLE, str(tmp_path))
    monkeypatch.delenv(LEDGER_VARIABLE, raising=False)
    yield tmp_path
    close_study_ledgers()


@pytest.fixture
def studied(served: Path) -> Path:
    make_study(served)
    return served


def press(page: AppTest, label: str) -> None:
    """Press a form's button."""
    next(button for button in page.button if button.label == label).click().run()


def texts(page: AppTest) -> str:
    kinds = ("markdown", "caption", "error", "warning", "info", "success")
    return "\n".join(visible_text(element) for kind in kinds for element in page.get(kind))


def states(root: Path) -> dict[str, str]:
    with open_ledger(Project(root)) as ledger:
        assert not verify_log(ledger.database, STUDY).findings
        return {row.slide_id: row.state for row in ledger.slides(STUDY)}


def test_a_project_without_a_ledger_has_no_link_and_gets_no_ledger(served: Path) -> None:
    page = open_page()
    assert "to_studies" not in [button.key for button in page.button]
    assert "No study has begun" in open_page(study="").info[0].value
    assert "No study has begun" in open_page(study=STUDY).info[0].value
    assert list(served.iterdir()) == []


def test_a_ledger_without_studies_has_no_link(served: Path) -> None:
    open_ledger(Project(served)).database.close()
    assert "to_studies" not in [button.key for button in open_page().button]


def test_the_worklist_leads_to_the_only_study_and_back(studied: Path) -> None:
    page = open_page()
    page.button(key="to_studies").click().run()
    assert page.query_params == {"study": STUDY}
    assert "#### Three sites" in texts(page)
    page.button(key="to_worklist").click().run()
    assert page.header[0].value == "Worklist"
    assert "study" not in page.query_params


def test_several_studies_are_listed(studied: Path) -> None:
    with open_ledger(Project(studied)) as ledger:
        ledger.begin("other", {}, "0" * 64, [NewSlide("a")], ("ingest",), actor="ada")
    page = open_page()
    assert page.button(key="to_studies").label == "Studies (2)"
    page.button(key="to_studies").click().run()
    assert linked(page) == ["other", STUDY]
    assert hrefs(page)[1] == f"?study={STUDY}"
    assert re.findall(r'<td class="number">([^<]*)</td></tr>', html_of(page)) == ["0", "3"]


def test_the_overview_says_how_far_the_study_is(studied: Path) -> None:
    page = open_page(study=STUDY)

    shown, drawn = texts(page), html_of(page)
    assert "Does the model find tumour?" in shown
    assert "running" in shown
    assert "protocol version 1" in shown
    for part in ("5 of 7 (71.4%)", "unreadable", "28.6%", "infer demo-0a1b2c3d", "1 min", "node-1, process 4123"):
        assert part in drawn, part
    assert "updated every 5 s" in shown
    assert linked(page) == [f"S-00{number}" for number in range(1, 8)]
    assert hrefs(page)[0] == f"?study={STUDY}&study_slide=S-001"
    assert "ingest: held" in drawn
    assert "ingest: ready" in drawn


def test_slides_are_filtered_by_state_and_by_part_of_their_names(studied: Path) -> None:
    page = open_page(study=STUDY)
    page.selectbox[0].set_value("unreadable").run()
    assert linked(page) == ["S-002", "S-003"]
    assert page.query_params == {"study": STUDY, "state": "unreadable"}
    assert linked(open_page(study=STUDY, state="unreadable", find="s 003")) == ["S-003"]


def test_many_slides_are_paged_and_a_page_beyond_the_last_is_the_last(served: Path) -> None:
    make_study(served, slides=SLIDES_PER_PAGE + 3)
    page = open_page(study=STUDY)
    assert len(linked(page)) == SLIDES_PER_PAGE
    page.button(key="list_Next").click().run()
    assert linked(page) == ["S-051", "S-052", "S-053"]
    assert page.query_params["page"] == "2"
    assert "51 to 53 of 53 slides" in texts(open_page(study=STUDY, page="99"))


def test_failures_are_grouped_by_code_with_a_reason_and_a_remedy(studied: Path) -> None:
    page = open_page(study=STUDY, view="failures")

    shown = texts(page)
    assert "corrupt_tile: 2 slides ended as unreadable" in shown
    assert "For example, slide S-002: tile (3, 4) of level 0 cannot be decoded. Looked in …/S-002.svs." in shown
    assert "Copy the file again, or rescan the glass slide" in shown
    assert "internal_error: 1 slide ended as failed" in shown
    assert "/mnt/scans" not in shown


def test_a_group_is_retried_by_a_person_with_a_reason_and_the_log_says_so(studied: Path) -> None:
    page = open_page(study=STUDY, view="failures")
    page.button(key="open unreadable corrupt_tile").click().run()
    page.text_input(key="retry_name").set_value("Ada")
    page.text_input(key="retry_why").set_value("copied again")
    press(page, "Retry 2 slides")

    assert "2 slides can continue" in page.success[0].value
    assert f"gemslide study run {STUDY}" in page.success[0].value
    assert "corrupt_tile" not in texts(page)
    assert [states(studied)[name] for name in ("S-002", "S-003", "S-004")] == ["pending", "pending", "failed"]
    log = html_of(open_page(study=STUDY, study_slide="S-002"))
    assert log.index("slide ended (corrupt_tile)") < log.index("slide retried")
    assert ACTOR in log
    assert "copied again" in log


@pytest.mark.parametrize(("name", "why", "message"), [("", "x", "Type your name"), ("Ada", "  ", "Give the reason")])
def test_nothing_is_done_without_a_name_and_a_reason(studied: Path, name: str, why: str, message: str) -> None:
    before = states(studied)
    page = open_page(study=STUDY, study_slide="S-004")
    page.text_input(key="retry_name").set_value(name)
    page.text_input(key="retry_why").set_value(why)
    press(page, "Retry 1 slide")
    assert message in visible_text(page.error[0])
    assert states(studied) == before


def test_a_slide_that_has_gone_on_meanwhile_is_not_retried_again(studied: Path) -> None:
    page = open_page(study=STUDY, study_slide="S-004")
    with open_ledger(Project(studied)) as ledger:
        retry(ledger, STUDY, ["S-004"], None, actor="bob", why="first")
    page.text_input(key="retry_name").set_value("Ada")
    page.text_input(key="retry_why").set_value("second")
    press(page, "Retry 1 slide")
    assert states(studied)["S-004"] == "pending"
    drawn = html_of(page)
    assert ("first" in drawn, "second" in drawn, drawn.count("slide retried")) == (True, False, 1)


def test_a_study_is_paused_and_resumed_with_a_reason(studied: Path) -> None:
    page = open_page(study=STUDY)
    for label, state, why in (("Pause", "paused", "scanner recalled"), ("Resume", "running", "not this one")):
        page.text_input(key="state_name").set_value("Ada")
        page.text_input(key="state_why").set_value(why)
        press(page, label)
        assert page.success[0].value == f"The study is {state}."
        with open_ledger(Project(studied)) as ledger:
            last = ledger.history(STUDY, "study")[-1]
            assert (ledger.study(STUDY).state, last.actor, last.why) == (state, ACTOR, why)
    assert "scanner recalled" in html_of(page)


def test_a_slide_has_its_stages_and_its_history(studied: Path) -> None:
    page = open_page(study=STUDY, study_slide="S-001")
    drawn = html_of(page)
    for part in ("done", "Lund", "abababababab…", "cdcdcdcdcdcd…", "worker node-1 4123", "task taken", "slide entered"):
        assert part in drawn, part
    assert "to_viewer" not in [button.key for button in page.button]
    failed = texts(open_page(study=STUDY, study_slide="S-003"))
    assert "tile (3, 4) of level 0 cannot be decoded" in failed
    assert "What to do" in failed


def test_a_long_history_is_paged_from_its_end(studied: Path) -> None:
    with open_ledger(Project(studied)) as ledger:
        mine = worker(ledger)
        for _ in range(30):
            mine.release(take(mine), "the worker was ended")
    page = open_page(study=STUDY, study_slide="S-007")
    assert html_of(page).count("task given back") == 25
    page.button(key="earlier").click().run()
    assert "slide entered" in html_of(page)
    assert html_of(page).count("task given back") == 5
    page.button(key="newest").click().run()
    assert "slide entered" not in html_of(page)


def test_a_slide_with_a_store_leads_to_the_viewer_and_the_viewer_back(
    monkeypatch: pytest.MonkeyPatch, project: Project, tmp_path: Path
) -> None:
    shutil.copytree(project.root, tmp_path, dirs_exist_ok=True)
    monkeypatch.setenv(PROJECT_VARIABLE, str(tmp_path))
    make_study(tmp_path)
    page = open_page(study=STUDY, study_slide="S-001")
    page.button(key="to_viewer").click().run()
    assert viewer_data(page)
    assert page.button(key="back").label == "Study"
    page.button(key="back").click().run()
    assert page.query_params == {"study": STUDY, "study_slide": "S-001"}
    assert "#### Slide S-001" in texts(page)
    close_study_ledgers()


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"study": "nobody"}, f"study nobody: not in this ledger, which has {STUDY}"),
        ({"study": "![x](http://127.0.0.1:9/x.png) :red[r] \u202e<b>\x00" * 9}, "not in this ledger"),
        ({"study": "nobody", "view": "failures"}, "not in this ledger"),
        ({"study": "nobody", "study_slide": "S-001"}, "not in this ledger"),
        ({"study": STUDY, "study_slide": "S-999"}, "slide S-999: is not in study"),
        ({"study": STUDY, "study_slide": "<b>:red[x]</b>\x00"}, "is not in study"),
    ],
)
def test_a_wrong_link_is_one_sentence(studied: Path, query: dict[str, str], message: str) -> None:
    (error,) = open_page(**query).error
    assert message in visible_text(error)


@pytest.mark.parametrize(
    "query", [{"state": "<b>"}, {"page": "0"}, {"page": "x" * 500}, {"find": "%_\\' OR 1=1 --\x00"}, {"view": "\x00"}]
)
def test_what_a_link_cannot_mean_is_left_out(studied: Path, query: dict[str, str]) -> None:
    assert not open_page(study=STUDY, **query).error
    assert not open_page(
        study=STUDY, view="failures", code=":red[x]", **{k: v for k, v in query.items() if k != "view"}
    ).error


NAME, CODE = ":red[s] <img src=x>\u202e", "<b>:red[c]</b>"
HOSTILE = "![x](http://127.0.0.1:9/leak.png) :red[r] $x$ <img src=x onerror=alert(1)>\u202e\nrtl"


def test_what_others_wrote_is_shown_as_text(served: Path) -> None:
    """Every piece of Markdown that a hostile text reaches is escaped as a whole, and no tag of it is in any HTML."""
    with open_ledger(Project(served)) as ledger:
        protocol = {"study": {"title": HOSTILE, "question": HOSTILE}}
        stages = ("ingest", HOSTILE[:90])
        ledger.begin("h", protocol, "0" * 64, [NewSlide(NAME, HOSTILE, HOSTILE)], stages, actor=HOSTILE)
        mine = worker(ledger)
        mine.finish(take(mine, "h"), Ended("unreadable", CODE, HOSTILE))
    for query in (
        {},
        {"view": "failures"},
        {"view": "failures", "state": "unreadable", "code": CODE},
        {"study_slide": NAME},
    ):
        page = open_page(study="h", **query)
        kinds = ("markdown", "caption", "error", "warning", "info", "success")
        drawn = [element.value for kind in kinds for element in page.get(kind)]
        hostile = [text for text in drawn if "leak" in text]
        assert hostile
        assert all(as_markdown(HOSTILE) in text for text in hostile)
        assert "<img" not in html_of(page)
        assert "<b>" not in html_of(page)
        assert "\u202e" not in html_of(page)


def test_a_ledger_that_is_no_database_is_one_sentence_and_the_worklist_stays(served: Path) -> None:
    (served / "gemslide.db").write_bytes(b"no database at all" * 100)
    for page in (open_page(study=STUDY), open_page(study=""), open_page()):
        (error,) = page.error
        assert visible_text(error).startswith("gemslide.db: the ledger cannot be read")
        assert str(served) not in error.value
    assert page.header[0].value == "Worklist"


def test_a_damaged_ledger_is_one_sentence(studied: Path) -> None:
    close_study_ledgers()
    with sqlite3.connect(studied / "gemslide.db") as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    database.close()
    path = studied / "gemslide.db"
    content = path.read_bytes()
    path.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))
    (error,) = open_page(study=STUDY).error
    assert visible_text(error).startswith("gemslide.db: the ledger cannot be read")


def test_a_server_that_is_away_is_one_sentence_without_its_password(
    monkeypatch: pytest.MonkeyPatch, served: Path
) -> None:
    monkeypatch.setenv(LEDGER_VARIABLE, "postgresql://ada:secret@127.0.0.1:1/ledger")
    for page in (open_page(study=STUDY), open_page()):
        (error,) = page.error
        assert "the ledger cannot be reached" in visible_text(error)
        assert "secret" not in error.value


def test_a_ledger_that_was_put_back_from_a_backup_is_the_one_shown(studied: Path) -> None:
    close_study_ledgers()
    backup = (studied / "gemslide.db").read_bytes()
    assert "5 of 7" in html_of(open_page(study=STUDY))
    page = open_page(study=STUDY, study_slide="S-004")
    page.text_input(key="retry_name").set_value("Ada")
    page.text_input(key="retry_why").set_value("x")
    press(page, "Retry 1 slide")
    assert "4 of 7" in html_of(open_page(study=STUDY))

    (studied / "new.db").write_bytes(backup)
    for name in ("gemslide.db-wal", "gemslide.db-shm"):
        (studied / name).unlink(missing_ok=True)
    os.replace(studied / "new.db", studied / "gemslide.db")

    assert "5 of 7" in html_of(open_page(study=STUDY))


def test_a_study_that_is_over_is_not_asked_again(served: Path) -> None:
    with open_ledger(Project(served)) as ledger:
        ledger.begin(STUDY, {}, "0" * 64, [NewSlide("a")], ("ingest",), actor="ada")
        mine = worker(ledger)
        mine.finish(take(mine), Ended("done"))
    page = open_page(study=STUDY)
    assert "updated every" not in texts(page)
    assert "every slide has ended" in texts(page)
    assert "Every slide that has finished has a result" in open_page(study=STUDY, view="failures").info[0].value


def test_every_view_of_a_study_says_that_its_log_does_not_verify(studied: Path) -> None:
    assert "does not verify" not in texts(open_page(study=STUDY))
    close_study_ledgers()
    with sqlite3.connect(studied / "gemslide.db") as database:
        database.execute("UPDATE task SET seconds = 7 WHERE state = 'done'")
    for view in ("overview", "failures"):
        assert "**The log of this study failed verification**" in texts(open_page(study=STUDY, view=view))
