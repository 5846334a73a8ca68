"""Every act of the web app, attempted by every role where it is performed, and over a page's WebSocket as if a
browser had been shown the form."""

from __future__ import annotations

import ast
import asyncio
import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import select
from starlette.applications import Starlette
from streamlit.proto.WidgetStates_pb2 import WidgetState

import pathology_app
from pathology_app.app_pages.runs import acts as run_actions
from pathology_app.app_pages.studies.acts import retry_slides, review_slide, set_study_state
from pathology_app.asgi import app_routes
from pathology_app.jobs.commands import Command
from pathology_app.links.reading import ReadingLink
from pathology_app.people.account_file import ACCOUNTS_FILE, Account, changing_accounts
from pathology_app.people.acts import RIGHTS, Act, check_act
from pathology_app.people.person import MAY, PERSON_KEY, ForbiddenError, Person, Role
from pathology_app.project.ledger import close_study_ledgers
from pathology_app.project.served import PROJECT_VARIABLE
from pathology_app.readings.acts import give_disagreements, keep_answers, lay_out_readings, sign_reading, start_reading
from pipeline.errors import BadManifestError
from pipeline.ledger import Ledger
from pipeline.ledger.opening import open_ledger
from pipeline.ledger.tables import audit
from pipeline.project import Project
from pipeline.review import SlideReview
from pipeline.settings.site import LEDGER_VARIABLE
from tests.pathology_app.signed_in import browser, cookie_of, hashed, sign_in
from tests.pathology_app.small_project import MODEL_ID
from tests.pathology_app.small_reading import STUDY, make_reading_study, of_study, read_one
from tests.pathology_app.started_app import StartedApp, started_app
from tests.pathology_app.streamlit_socket import Tab, components_of, form_of, signed_form_of, tab, texts, trigger_of
from training.foundation.errors import GemslideError

pytestmark = pytest.mark.xdist_group("sign_in")

PEOPLE = {role: Person(str(role), frozenset({role}), "r1" if role is not Role.ADMIN else None) for role in Role}
NOBODY = Person("nobody", frozenset(), "r1")
ANSWERS = {"diagnosis": "benign", "sure": 80}
PASSIVE = ("signed in", "slide opened", "refused")
WHY: Mapping[str, Any] = {"actor": "ada", "why": "because"}
R1, CHIEF = ReadingLink(STUDY, "r1", 1, 1), ReadingLink(STUDY, "chief", 1, 1)


def deciding(person: Person) -> Person:
    """The same person, named adjudicator by the study."""
    return Person(person.name, person.roles, "chief")


def reading(person: Person) -> Person:
    return Person(person.name, person.roles, "r1")


def direct(ledger: Ledger, root: Path) -> dict[Act, Callable[[Person], object]]:
    """Call of the application that performs each act."""
    readings, command = of_study(ledger), Command("ingest", ("none.csv",), ("none.csv",), "nothing")
    signature: Mapping[str, Any] = {"seconds": 1, "seen": {}}
    return {
        Act.START_READING: lambda who: start_reading(reading(who), readings, R1),
        Act.ANSWER: lambda who: keep_answers(reading(who), readings, R1, ANSWERS),
        Act.SIGN: lambda who: sign_reading(reading(who), readings, R1, ANSWERS, **signature),
        Act.START_DECIDING: lambda who: start_reading(deciding(who), readings, CHIEF),
        Act.DECIDE: lambda who: keep_answers(deciding(who), readings, CHIEF, ANSWERS),
        Act.SIGN_DECISION: lambda who: sign_reading(deciding(who), readings, CHIEF, ANSWERS, **signature),
        Act.LAY_OUT: lambda who: lay_out_readings(who, ledger, readings, **WHY),
        Act.GIVE_DISAGREEMENTS: lambda who: give_disagreements(who, readings, "diagnosis", "unassisted", **WHY),
        Act.RETRY: lambda who: retry_slides(who, ledger, STUDY, ["S-001"], **WHY),
        Act.PAUSE: lambda who: set_study_state(who, ledger, STUDY, "paused", **WHY),
        Act.RESUME: lambda who: set_study_state(who, ledger, STUDY, "running", **WHY),
        Act.REVIEW: lambda who: review_slide(who, "S-001", SlideReview("", "Ada")),
        Act.START_RUN: lambda who: run_actions.start(Project(root), command, who),
        Act.STOP_RUN: lambda who: run_actions.stop(Project(root), "20260102T030405Z-abcdef", who),
    }


BY_ROUTE: Mapping[Act, tuple[str, str, object]] = {
    Act.JUDGE: ("POST", f"/hotspots/S-001/{MODEL_ID}.json", {"judged": []}),
    Act.NOTE_LOOKS: ("POST", "/coverage/S-001.json", {"looks": [], "seconds": 1}),
    Act.ANNOTATE: ("POST", "/annotations/S-001", {"changes": []}),
    Act.REGISTER: ("POST", "/registrations/S-001/S-002/remove", {}),
    Act.IMPORT: ("POST", "/annotations/S-001/import", {}),
    Act.EXPORT_ANNOTATIONS: ("GET", "/annotations/S-001/qupath.geojson", None),
    Act.EXPORT_RESULTS: ("GET", f"/exports/S-001/{MODEL_ID}/predictions.csv", None),
    Act.SEE_LOG: ("GET", "/log.csv", None),
}
BY_PAGE_ALONE = {Act.VERIFY_LOG}
"""Acts that only the log page performs, for people who may see it."""


def make(root: Path, project: Project) -> Path:
    """Make a study in which all readings are signed, so that nobody is blinded, and one slide needs a decision."""
    make_reading_study(project, root, slides=1, readers=["r1", "r2"])
    (root / "gemslide.toml").write_text("[app]\nmax_jobs = 0\n")
    with open_ledger(Project(root)) as ledger:
        readings = of_study(ledger)
        read_one(readings, "r1", "benign")
        read_one(readings, "r2", "malignant")
        readings.adjudicate("diagnosis", "unassisted", actor="ada")
    with changing_accounts(root / ACCOUNTS_FILE) as accounts:
        for role in Role:
            reader = "chief" if role is Role.READER else ""
            accounts.append(Account(name=f"the-{role}", roles=(role,), password=hashed(), reader=reader))
    return root


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory, project: Project) -> Path:
    return make(tmp_path_factory.mktemp("acts"), project)


@pytest.fixture
def root(tmp_path: Path, project: Project, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv(PROJECT_VARIABLE, str(tmp_path))
    monkeypatch.delenv(LEDGER_VARIABLE, raising=False)
    yield make(tmp_path, project)
    close_study_ledgers()


def test_the_table_has_every_act_and_every_act_is_tried(root: Path) -> None:
    with open_ledger(Project(root)) as ledger:
        tried = {*direct(ledger, root), *BY_ROUTE, *BY_PAGE_ALONE}
    assert tried == set(Act) == set(RIGHTS)


def test_every_act_asks_for_its_right_where_it_is_done(root: Path) -> None:
    with open_ledger(Project(root)) as ledger:
        for act, do in direct(ledger, root).items():
            for who in (*PEOPLE.values(), NOBODY):
                assert (refusal_of(do, who) is None) == who.may(RIGHTS[act]), (act, who)


def refusal_of(do: Callable[[Person], object], who: Person) -> str | None:
    """Message of a refusal for lack of rights; None for success or any other error."""
    try:
        do(who)
    except ForbiddenError as error:
        return str(error)
    except GemslideError:
        return None
    return None


def test_every_route_asks_for_the_right_of_its_act(root: Path) -> None:
    inner = Starlette(routes=app_routes())
    for act, (method, url, body) in BY_ROUTE.items():
        for who in (*PEOPLE.values(), NOBODY):
            status = asyncio.run(status_of(inner, who, method, url, body))
            assert (status == 403) != who.may(RIGHTS[act]), (act, who, status)


async def status_of(inner: Starlette, who: Person, method: str, url: str, body: object) -> int:
    who = Person(who.name, who.roles)  # no reader, to keep blinding out of it

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await inner({**scope, PERSON_KEY: who}, receive, send)

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://slides") as client:
        answer = await client.request(method, url, json=body if method == "POST" else None)
        return answer.status_code


def test_who_has_no_right_by_role_is_named_by_list_in_vain_and_the_other_way_round(root: Path) -> None:
    with open_ledger(Project(root)) as ledger:
        readings = of_study(ledger)
        for who, link, words in (
            (Person("a", frozenset({Role.READER}), "chief"), CHIEF, "You may not decide"),
            (Person("b", frozenset({Role.COORDINATOR}), "r1"), R1, "You may not read"),
            (Person("c", frozenset(Role), "r2"), R1, "You may not take part in a reading of r1"),
            (Person("d", frozenset(Role)), CHIEF, "You may not take part in a reading of chief"),
        ):
            with pytest.raises(ForbiddenError, match=words):
                keep_answers(who, readings, link, ANSWERS)
        unnamed = ReadingLink(STUDY, "mallory", 1, 1)
        with pytest.raises(BadManifestError, match="mallory: has no slide"):
            keep_answers(Person("e", frozenset(Role), "mallory"), readings, unnamed, ANSWERS)


MUTATIONS = {
    "start", "give", "give_all", "sign", "begin", "adjudicate", "retry", "set_state", "add_review", "start_job",
    "stop_job", "judge_hotspots", "save_looks", "import_file",
    "save_registration", "remove_registration",
}  # fmt: skip


def test_no_page_does_anything_but_by_a_function_that_asks() -> None:
    calls_found = []
    folder = Path(pathology_app.__file__).parent / "app_pages"
    pages = [path for path in folder.rglob("*.py") if path.stem != "acts"]  # these are the functions that check
    assert len(pages) > 20
    for path in pages:
        calls = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        names = [call.attr if isinstance(call, ast.Attribute) else getattr(call, "id", "") for call in calls]
        calls_found += [(str(path.relative_to(folder)), name) for name in names if name in MUTATIONS]
    assert calls_found == [("runs/forms.py", "start")], "but run_actions.start, which asks"


@pytest.fixture(scope="module")
def app(small: Path) -> Iterator[StartedApp]:
    with started_app(small, small / "server.log") as app:
        yield app


def session(app: StartedApp, role: Role) -> str:
    with browser(app.url) as client:
        sign_in(client, f"the-{role}")
        return cookie_of(client)


def test_what_an_admins_browser_would_send_does_nothing_for_other_roles(app: StartedApp, small: Path) -> None:
    pages = {
        f"study={STUDY}&view=readings": "Start adjudication",
        "log=": "Verify the log",
    }
    slide = "slide=S-001"
    acts = {"Start adjudication": Act.GIVE_DISAGREEMENTS, "Verify the log": Act.VERIFY_LOG}
    may = {query: acts[label] for query, label in pages.items()} | {slide: Act.REVIEW}
    with tab(app, session(app, Role.ADMIN)) as admins:
        forms = {query: form_of(admins.run(query), label) for query, label in pages.items()}
        forms[slide] = signed_form_of(admins.run(slide), verdict="Agree", name="Ada")
        before = entries(small)
        for role in Role:
            with tab(app, session(app, role)) as opened:
                for query, act in may.items():
                    if not PEOPLE[role].may(RIGHTS[act]):
                        opened.run(query)
                        assert "entries verified" not in texts(opened.run(query, forms[query]))
        assert entries(small) - before == Counter()
        admins.run(slide, forms[slide])
        assert entries(small) - before == {"slide reviewed": 1}, "what was sent is what does it"


@pytest.mark.parametrize("query", ["slide=S-001", "", f"study={STUDY}&view=readings"])
def test_what_no_component_says_ends_no_page(app: StartedApp, query: str) -> None:
    values = (None, 5, "\0", [], {"x_px0": "a", "y_px0": 1e300}, {"answers": {"verdict": [1]}}, {"x_px0": {}})
    with tab(app, session(app, Role.ADMIN)) as opened:
        components = components_of(opened.run(query))
        assert components
        for component in components:
            for event in ("click", "sign", "keep", "go", "find"):
                for value, states in itertools.product(values, ([], [WidgetState(id=component.id, json_value="{}")])):
                    drawn = opened.run(query, [*states, trigger_of(component, event, value)])
                    assert not [element for element in drawn if element.WhichOneof("type") == "exception"], (
                        event,
                        value,
                    )


def entries(root: Path) -> Counter[str]:
    """Actions in the logs, except sign-ins, views and refusals."""
    with open_ledger(Project(root)) as ledger, ledger.database.read() as connection:
        actions = connection.execute(select(audit.c.action).order_by(audit.c.seq)).scalars()
        return Counter(action for action in actions if action not in PASSIVE)


def test_a_named_adjudicator_without_the_right_is_drawn_no_form(app: StartedApp, small: Path) -> None:
    query = f"study={STUDY}&view=read"
    with tab(app, session(app, Role.READER)) as opened:
        drawn = opened.run(query)
        assert "You may not decide where readers disagree" in texts(drawn)
        assert "Start reading" not in texts(drawn)
        assert "malignant" not in opened.heard.decode(errors="replace")
        start_anyway(opened, query)
    with open_ledger(Project(small)) as ledger:
        assert of_study(ledger).row("chief", 1, 1).state == "open"


def start_anyway(opened: Tab, query: str) -> None:
    """Start a reading anyway, with guessed ids of the form's widgets."""
    value = json.dumps({"place": "x", "answers": ANSWERS})
    for name in ("start_reading", "sign", "questionnaire"):
        states = [WidgetState(id=f"$$ID-{'0' * 32}-{name}", trigger_value=True)]
        states += [WidgetState(id=f"$$ID-{'0' * 32}-{name}", string_value=value)]
        for state in states:
            opened.run(query, [state])


def test_nothing_is_asked_of_a_table_that_is_not_there() -> None:
    assert {role for role in Role if MAY[role]} == set(Role)
    for act in Act:
        check_act(PEOPLE[Role.ADMIN], act)
        with pytest.raises(ForbiddenError):
            check_act(NOBODY, act)
