"""Who may sign, which slides come first, and what a validation asks: as the protocol says, and in the log."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from pipeline.errors import BadManifestError
from pipeline.study.amendments import changed_sections
from pipeline.study.anchors import countersign, make_anchor
from pipeline.study.leases import Leases
from pipeline.study.limits import Limits
from pipeline.study.owner import this_process
from pipeline.study.priorities import prioritize
from pipeline.study.protocol import TEMPLATES
from pipeline.study.reading_order import lay_out
from pipeline.study.readings import Readings
from pipeline.study.report.facts import gather
from pipeline.study.report.readers import reader_tables
from pipeline.study.sign_off import sign_report
from pipeline.study.signing import SigningKey, new_key, open_key
from pipeline.study.study import Study
from pipeline.study.verify import verify_log
from tests.pipeline.study.test_study_report import begun, protocol

on_sqlite = pytest.mark.parametrize("url", ["sqlite"], indirect=True)
WORDS = "correct horse battery"


@pytest.fixture(scope="module")
def keys(tmp_path_factory) -> tuple[SigningKey, SigningKey]:
    folder = tmp_path_factory.mktemp("signers")
    for name in ("ada", "bob"):
        new_key(folder / name, WORDS)
    return open_key(folder / "ada", WORDS), open_key(folder / "bob", WORDS)


@on_sqlite
def test_only_those_sign_whom_the_protocol_names_and_only_as_it_says(ledger, tmp_path, keys):
    ada, bob = keys
    may = [{"name": "Ada", "key_id": ada.public.key_id, "may": ["authored", "anchor"]}]
    study = begun(ledger, tmp_path / "p", protocol(signers=may, endpoints=[]), done=1)
    report = tmp_path / "report.pdf"
    report.write_bytes(b"%PDF-")

    def sign(key: SigningKey, meaning: str, name: str) -> None:
        sign_report(ledger, "s", report, key, meaning=meaning, name=name, actor="x")  # type: ignore[arg-type]

    for key, meaning, name in ((bob, "authored", "Ada"), (ada, "approved", "Ada"), (ada, "authored", "Bob")):
        with pytest.raises(BadManifestError, match="its protocol does not let"):
            sign(key, meaning, name)
    sign(ada, "authored", "Ada")
    with pytest.raises(BadManifestError, match=r"does not let key .* sign \(anchor\)"):
        make_anchor(ledger, "s", bob, tmp_path, actor="x")
    anchor = make_anchor(ledger, "s", ada, tmp_path, actor="x")
    with pytest.raises(BadManifestError, match="does not let"):
        countersign(ledger, anchor, bob)
    assert study.ledger.history("s", "report")[-1].action == "report signed"


def test_an_amendment_s_entry_names_the_sections_that_changed():
    before, after = (protocol(signers=signers).frozen() for signers in ([], [_signer("a" * 16)]))
    assert changed_sections(before, after) == ["signers"]


def _signer(key_id: str) -> dict[str, object]:
    return {"name": "Ada", "key_id": key_id, "may": ["approved"]}


def test_slides_of_a_higher_priority_are_taken_first_and_the_log_says_who_wanted_it(begun):
    prioritize(begun, "s", ["S-4"], 5, actor="ada", why="the board meets tomorrow")
    mine = Leases(begun, this_process(), Limits(), actor="worker")
    assert mine.take("s").slide_id == "S-4"
    [*_, entry] = [each for each in begun.history("s", "slide S-4") if each.action == "slide prioritized"]
    assert (entry.why, json.loads(entry.details)) == ("the board meets tomorrow", {"priority": 5})
    assert verify_log(begun.database, "s").findings == ()
    with pytest.raises(BadManifestError, match="is not in study s"):
        prioritize(begun, "s", ["S-1", "nobody"], 5, actor="ada", why="x")
    assert begun.slides("s")[0].priority == 0, "all or none"


def cap(**changes: object) -> dict[str, object]:
    template = TEMPLATES["cap-validation"]
    return {"endpoints": [], "validation": template["validation"] | changes, "reading": template["reading"]}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"min_washout_days": 21.0}, "washout_days = 14 is below"),
        ({"question": "remarks"}, "question remarks: of kind choice or yes_no"),
    ],
)
def test_a_validation_that_its_readings_cannot_answer_is_refused(changes, said):
    with pytest.raises(ValidationError, match=said):
        protocol(**cap(**changes))
    with pytest.raises(ValidationError, match=r"needs .reading. with arms"):
        protocol(validation=cap()["validation"])


@on_sqlite
def test_a_validation_is_met_by_enough_cases_that_agree(ledger, tmp_path):
    study = begun(ledger, tmp_path / "p", protocol(**cap(min_cases=20, min_washout_days=0.0) | quick()))
    read(study, differing=1)
    rows = {row[0]: row[1:] for row in table(study)}
    assert rows["reader-1: cases"] == ("at least 20", "20", "yes")
    assert rows["reader-1: concordance"] == ("at least 0.95", "0.950 (0.751 to 0.999)", "yes")


@on_sqlite
def test_a_validation_is_not_met_by_too_few_cases_or_too_little_agreement(ledger, tmp_path):
    study = begun(ledger, tmp_path / "p", protocol(**cap(min_washout_days=0.0) | quick()))
    read(study, differing=2)
    rows = {row[0]: row[1:] for row in table(study)}
    assert (rows["reader-1: cases"][2], rows["reader-1: concordance"][2]) == ("no", "no")


def quick() -> dict[str, object]:
    return {"reading": TEMPLATES["cap-validation"]["reading"] | {"washout_days": 0.0}}


def read(study: Study, differing: int) -> None:
    """One reader reads twenty slides on glass and on the screen; some differently."""
    config = study.protocol.reading
    assert config is not None
    readings = Readings(study.ledger, "s", config)
    slides = [f"S-{number:02d}" for number in range(20)]
    readings.begin(lay_out(config, slides, 0), actor="ada")
    while row := readings.next_of("reader-1"):
        at = ("reader-1", row.session, row.position)
        is_other = row.arm == "digital" and row.slide_id in slides[:differing]
        readings.start(*at)
        readings.give(*at, "diagnosis", "malignant" if is_other else "benign")
        readings.sign(*at, seconds=5.0)


def table(study: Study) -> list[tuple[object, ...]]:
    [found] = [each for each in reader_tables(gather(study)) if each.name == "validation"]
    return list(found.rows)


def test_the_template_makes_a_protocol_that_holds(gemslide, road_copy):
    done = gemslide(
        "study", "init", "v", "--cohort", road_copy.cohort, "--model", road_copy.model_id,
        "--template", "cap-validation", "--project", road_copy.project.root,
    )  # fmt: skip
    assert done.code == 0, done.err
    text = (road_copy.project.root / "studies" / "v" / "study.toml").read_text()
    assert 'arms = [\n    "glass",\n    "digital",\n]' in text
    assert "min_cases = 60" in text
