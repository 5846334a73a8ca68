"""Readers who search every page and route for information they must not see yet: before the readings are laid out,
while they read, without help and with a model's, and in the washout between two sessions; and adjudicators before they
have decided.

    python -m tests.attacks.blinded_readers --times 600 --seed 1

Promised: no byte of any page's WebSocket or of any route's response contains a model's name, one of its classes, a
score, a figure of its training or a word of its card (unless the reader is being helped by it), nor a slide's reference
label, a review, an annotation or another reader's answer. Controls: a coordinator is sent all of these, and so is a
reader who has signed everything.
"""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx
from shapely import box

from pathology_app.jobs.record import job_path
from pathology_app.jobs.state import name_of_this_process
from pathology_app.people.account_file import ACCOUNTS_FILE, Account, changing_accounts
from pipeline.ledger import Ledger, find_ledger
from pipeline.ledger.opening import open_ledger
from pipeline.project import Project
from pipeline.review import Draft, SlideReview, ViewContext, add_review, save
from pipeline.study import lay_out
from tests.attacks.attack import Result, main
from tests.pathology_app.signed_in import browser, cookie_of, hashed, sign_in
from tests.pathology_app.small_attention import SLIDE_MODEL, write_small_attention
from tests.pathology_app.small_project import MODEL_ID, make_project
from tests.pathology_app.small_reading import STUDY, copy_slide, make_reading_study, of_study
from tests.pathology_app.started_app import StartedApp, started_app
from tests.pathology_app.streamlit_socket import tab

JOB = "20260102T030405Z-abcdef"
FIGURE, CARD = "0.8731946", "zebrafish-of-the-card"
ANSWER = "okapi-of-an-answer"
SECRETS = (MODEL_ID, "positive", "0.97", FIGURE, CARD, SLIDE_MODEL, ANSWER)
"""Planted: the model's name, a class, a hotspot's score, an area under a curve, words of the card; a slide-level
model's name, and what it says."""
TRUTH, REVIEW, DRAWN, REMARK = "quagga-of-the-manifest", "dodo-of-a-review", "aurochs-drawn", "moa-of-rolf"
PEOPLES = (TRUTH, REVIEW, DRAWN, REMARK)
"""Planted: what people say of each slide of the study; the last is an answer of rolf's."""
READERS = {"rita": "r1", "rolf": "r2", "carl": "chief"}
SLIDES = ("S-001", "S-002")
OUTSIDE = "S-003"
"""A slide of no study, with predictions of the same model."""
PAGES: Mapping[str, tuple[str, ...]] = {
    "slide": ("slide=S-001", "slide=S-002&class=positive", f"slide=S-001&model={MODEL_ID}", f"slide={OUTSIDE}"),
    "compare": ("compare=S-001,S-002", f"compare=S-001~{MODEL_ID},S-001", f"compare={OUTSIDE},S-002"),
    "log": ("log=", "log=&slide_of=S-001"),
    "study": ("study=",),
    "check": ("check=screen",),
    "runs": ("page=runs", f"page=runs&run={JOB}", "page=runs&new=infer", "page=runs&new=train", "page=runs&new=study"),
    "unknown": ("page=nosuch",),
    "worklist": ("", "view=gallery&sort=score", "group=case", "sort=score", "predicted=1&find=demo", "score=0.5"),
    "study slide": (f"study={STUDY}&study_slide=S-001", f"study={STUDY}&study_slide=S-002"),
    "failures": (f"study={STUDY}&view=failures",),
    "readings": (f"study={STUDY}&view=readings",),
    "read": (f"study={STUDY}&view=read",),
    "overview": (f"study={STUDY}", f"study={STUDY}&find=S-001"),
}
"""Queries of every page (`page_table.PAGES`, `studies.VIEWS`), by its name."""
CONTROLS = (
    "slide=S-001", f"page=runs&run={JOB}", "", f"study={STUDY}&study_slide=S-001", "/annotations/S-001/found?words=a",
)  # fmt: skip
"""Pages and a route that together show all secrets to people who may see them."""
ROUTES: Mapping[str, tuple[str, ...]] = {
    "/tiles/{slide_id}/{rest:path}": ("/tiles/S-001/0/0_0",),
    "/overlays/{slide_id}/{model_id}/{rest:path}": (
        f"/overlays/S-001/{MODEL_ID}/1.png",
        f"/overlays/{OUTSIDE}/{MODEL_ID}/1.png",
        "/overlays/S-001/none/0.png",
        f"/overlays/S-001/{SLIDE_MODEL}/attention.png",
        f"/overlays/{OUTSIDE}/{SLIDE_MODEL}/attention.png",
    ),
    "/layers/{slide_id}/{rest:path}": ("/layers/S-001/tissue.png", "/layers/S-001/quality/0.png"),
    "/colour/{rest:path}": ("/colour/S-001",),
    "/damaged/{rest:path}": ("/damaged/S-001.png",),
    "/thumbnails/{rest:path}": ("/thumbnails/S-001.jpg",),
    "/heatmaps/{slide_id}/{model_id}/{rest:path}": (f"/heatmaps/S-001/{MODEL_ID}/1.png",),
    "/viewer/{rest:path}": ("/viewer/none.js",),
    "/annotations/{slide_id}/changes": ("/annotations/S-001/changes?since=0",),
    "/annotations/{slide_id}/tiles/{rest:path}": ("/annotations/S-001/tiles/0/0_0",),
    "/annotations/{slide_id}/at/{rest:path}": ("/annotations/S-001/at/10_10",),
    "/annotations/{slide_id}/found": ("/annotations/S-001/found?words=a", "/annotations/S-002/found?words=a"),
    "/annotations/{slide_id}/qupath.geojson": ("/annotations/S-001/qupath.geojson",),
    "/annotations/{slide_id}/table": ("/annotations/S-001/table", "/annotations/S-002/table"),
    "/annotations/{slide_id}/table.csv": ("/annotations/S-001/table.csv",),
    "/annotations/{slide_id}/counts": ("/annotations/S-001/counts",),
    "/annotations/{slide_id}/counts.csv": ("/annotations/S-001/counts.csv",),
    "/annotations/{slide_id}/some": ("/annotations/S-001/some?ids=00000000-0000-4000-8000-000000000000",),
    "/annotations/{slide_id}/about": ("/annotations/S-001/about?id=00000000-0000-4000-8000-000000000000",),
    "/annotations/{slide_id}/changed": ("/annotations/S-001/changed",),
    "/reports/{slide_id}/{rest:path}": ("/reports/S-001/report.html", f"/reports/{OUTSIDE}/report.html"),
    "/registrations/{slide_id}.json": ("/registrations/S-001.json?to=S-002",),
    "/ahead/{slide_id}/{rest:path}": ("/ahead/S-001/slide.json", "/ahead/S-001/0/0_0"),
    "/opened/{rest:path}": ("/opened/S-001.json", f"/opened/S-001.json?model={MODEL_ID}"),
    "/tray/{rest:path}": ("/tray/S-001.json", f"/tray/{OUTSIDE}.json?model={MODEL_ID}"),
    "/find/slides.json": ("/find/slides.json?words=s&beside=S-001",),
    "/coverage/{slide_id}.json": ("/coverage/S-001.json",),
    "/hotspots/{slide_id}/{model_id}.json": (
        f"/hotspots/S-001/{MODEL_ID}.json",
        f"/hotspots/{OUTSIDE}/{MODEL_ID}.json",
    ),
    "/crops/{slide_id}/{rest:path}": ("/crops/S-001/480_864.jpg",),
    "/exports/{slide_id}/{model_id}/{rest:path}": (
        f"/exports/S-001/{MODEL_ID}/predictions.csv",
        f"/exports/S-001/{MODEL_ID}/hotspots.json",
    ),
    "/log.csv": ("/log.csv",),
    "/sign-in": ("/sign-in",),
    "/sign-out": ("/sign-out",),
    "/static/{path:path}": ("/static/none.js",),
}
"""Links of every GET route, except dead links."""


@dataclass(frozen=True)
class Visit:
    """One request: a page's query, or a route's link."""

    name: str
    link: str
    is_page: bool


VISITS = [
    *(Visit(name, query, True) for name, queries in PAGES.items() for query in queries),
    *(Visit(path, link, False) for path, links in ROUTES.items() for link in links),
]


class Readers:
    """People with sessions in a started app."""

    def __init__(self, app: StartedApp) -> None:
        self.app = app
        self.clients: dict[str, httpx.Client] = {}
        for name in (*READERS, "cora"):
            self.clients[name] = browser(app.url)
            sign_in(self.clients[name], name)

    def heard(self, name: str, visit: Visit) -> bytes:
        """All bytes sent to a person for this visit."""
        client = self.clients[name]
        if visit.is_page:
            with tab(self.app, cookie_of(client)) as opened:
                opened.run(visit.link)
                return bytes(opened.heard)
        answer = client.get(visit.link)
        return answer.content if answer.status_code != 200 or _is_text(answer) else answer.content + SECRETS[0].encode()

    def close(self) -> None:
        for client in self.clients.values():
            client.close()


def _is_text(answer: httpx.Response) -> bool:
    """Whether a response is text; an image of a result has no words, but must not be sent at all."""
    is_picture_of_result = answer.url.path.split("/")[1] in ("overlays", "heatmaps", "crops")
    return not is_picture_of_result


def plant(root: Path, small: Project) -> None:
    """Make a project whose study is not laid out, with a run that names the model and its figures, and its card."""
    make_reading_study(
        small, root, slides=len(SLIDES), laid_out=False, arms=["unassisted", "assisted"], order="sequential"
    )
    project = Project(root)
    copy_slide(small, project, OUTSIDE)
    said = {"grade": {"kind": "class", "values": [0.75, 0.25], "classes": [ANSWER, "other"]}}
    for name in (*SLIDES, OUTSIDE):
        write_small_attention(project, name, slides=(name,), targets=said)
    _plant_words_of_people(project)
    (project.models_dir / MODEL_ID).mkdir(parents=True)
    (project.models_dir / MODEL_ID / "card.md").write_text(f"# {MODEL_ID}\n{CARD}\nAUC {FIGURE}\n")
    project.jobs_dir.mkdir(parents=True, exist_ok=True)
    job = {
        "version": 1, "job_id": JOB, "verb": "infer", "argv": ["infer", "--", MODEL_ID], "about": MODEL_ID,
        "by": "cora (web app)", "utc": "2026-01-02T03:04:05Z", "slides": 2,
        "process": {**name_of_this_process().model_dump(), "began": "1"},
    }  # fmt: skip
    job_path(project, JOB).write_text(json.dumps(job))
    job_path(project, JOB, "log").write_text(f"Model {MODEL_ID}: positive, AUC {FIGURE}, {CARD}\n")
    ending = {"version": 1, "utc": "2026-01-02T03:06:05Z", "exit_code": 0, "is_stopped": False}
    job_path(project, JOB, "end.json").write_text(json.dumps(ending))
    with changing_accounts(root / ACCOUNTS_FILE) as accounts:
        for name, reader in READERS.items():
            roles = ("admin",) if name == "carl" else ("reviewer", "coordinator")
            accounts.append(Account(name=name, roles=roles, password=hashed(), reader=reader))
        accounts.append(Account(name="cora", roles=("admin",), password=hashed()))


def _plant_words_of_people(project: Project) -> None:
    """Give each slide of the study a reference label, a review and an annotation."""
    rows = [f"{name}.svs,{name},P-{name},{TRUTH}\n" for name in SLIDES]
    (project.root / "cohort.csv").write_text("path,slide_id,patient_id,label\n" + "".join(rows))
    with open_ledger(project) as ledger:
        for name in SLIDES:
            add_review(ledger, ViewContext(name, "bob", "bob"), SlideReview("agree", "Bob", comment=REVIEW))
            save(ledger, name, [Draft(box(9, 9, 99, 99), "polygon", DRAWN)], "bob")


def stages(ledger: Ledger) -> Iterator[tuple[str, set[str], set[str]]]:
    """Take the study through its readings; yield after each step its name, the people who must see nothing, and those
    among them to whom a model's results are open."""
    readings = of_study(ledger)
    everybody = set(READERS)
    yield "before the readings are laid out", everybody, set()
    readings.begin(lay_out(readings.config, SLIDES, 3), actor="ada")
    yield "before anybody has begun", everybody, set()
    due = readings.next_of("r1")
    assert due is not None
    readings.start("r1", due.session, due.position)
    yield "while a slide is read", everybody, set()
    _sign_session(ledger, "r1", 1, "benign")
    _sign_session(ledger, "r2", 1, "malignant")
    yield "in the washout", everybody, set()
    _end_washout(ledger)
    readings.start("r1", 2, 1)
    yield "while a slide is read with help", everybody, {"rita"}
    _sign_session(ledger, "r1", 2, "benign")
    yield "when one reader has signed all", {"rolf", "carl"}, set()
    _sign_session(ledger, "r2", 2, "malignant")
    yield "before an adjudicator is asked", {"carl"}, set()
    readings.adjudicate("diagnosis", "unassisted", actor="ada")
    yield "before an adjudicator has decided", {"carl"}, set()
    _sign_session(ledger, "chief", 1, "benign")
    yield "when all is signed", set(), set()


def _sign_session(ledger: Ledger, reader: str, session: int, diagnosis: str) -> None:
    readings = of_study(ledger)
    for position in range(1, readings.count(reader, session) + 1):
        at = (reader, session, position)
        if readings.row(*at).state == "open":
            readings.start(*at)
        remarks = {"remarks": REMARK} if reader == READERS["rolf"] else {}
        readings.sign(*at, seconds=61.0, answers={"diagnosis": diagnosis, "sure": 80, **remarks})


def _end_washout(ledger: Ledger) -> None:
    """Pretend that two weeks have passed; times in the ledger are not checked here."""
    from sqlalchemy import text

    earlier = "UPDATE reading SET signed_utc = '2020-01-01T00:00:00.000000Z' WHERE state = 'signed'"
    with ledger.database.write() as connection:
        connection.execute(text(earlier))


def attack(times: int, seed: int) -> Result:
    """Send `times` requests, spread over the study's stages and everybody who must see nothing."""
    result, rng = Result("blinded readers", 0), random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "project"
        for made in (root, Path(folder) / "small"):
            made.mkdir()
        plant(root, make_project(Path(folder) / "small"))
        opened = find_ledger(Project(root))
        assert opened
        with opened as ledger, started_app(root, Path(folder) / "server.log") as app:
            readers = Readers(app)
            for stage, blinded, helped in stages(ledger):
                words = {name: _hidden_from(name, is_helped=name in helped) for name in blinded}
                _look(result, readers, stage, words, rng, times)
            _control(result, readers)
            readers.close()
    return result


def _hidden_from(name: str, *, is_helped: bool) -> tuple[str, ...]:
    """The planted words that a person must not see."""
    return (*(() if is_helped else SECRETS), *(word for word in PEOPLES if (name, word) != ("rolf", REMARK)))


def _look(
    result: Result,
    readers: Readers,
    stage: str,
    hidden: Mapping[str, tuple[str, ...]],
    rng: random.Random,
    times: int,
) -> None:
    chosen = [(name, visit) for name in sorted(hidden) for visit in VISITS]
    rng.shuffle(chosen)
    for name, visit in chosen[: times // 8 + 1]:
        heard = readers.heard(name, visit)
        result.attempts += 1
        echoed = visit.link.encode()  # the attacker's own input
        leaked = [word for word in hidden[name] if word.encode() in heard.replace(echoed, b"")]
        result.check(not leaked, f"{stage}, {name}, {visit.name} {visit.link!r}: {', '.join(leaked)}")


def _control(result: Result, readers: Readers) -> None:
    """Check that the secrets searched for are sent to people who may see them."""
    shown = [visit for visit in VISITS if visit.link in CONTROLS]
    for name in ("cora", "rita"):
        heard = b"".join(readers.heard(name, visit) for visit in shown)
        missing = [word for word in (*SECRETS, *PEOPLES) if word.encode() not in heard]
        result.check(not missing, f"control: {name} is not sent {', '.join(missing)}")


if __name__ == "__main__":
    main(attack, times=600)
