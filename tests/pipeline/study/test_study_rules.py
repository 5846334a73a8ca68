"""Signers, slide order and validation questions follow the protocol and are logged."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from pipeline.errors import BadManifestError
from pipeline.ledger.ledger import NewSlide
from pipeline.review import SeenRule
from pipeline.settings.config import Settings
from pipeline.study.new_protocol import TEMPLATES
from pipeline.study.outcomes.priorities import prioritize
from pipeline.study.proof.anchors import countersign, make_anchor
from pipeline.study.proof.sign_off import Signing, sign_report
from pipeline.study.proof.signing import SigningKey, new_key, open_key
from pipeline.study.proof.verify import verify_log
from pipeline.study.reading.order import lay_out
from pipeline.study.reading.readings import Readings
from pipeline.study.report.facts import gather
from pipeline.study.report.readers import reader_tables
from pipeline.study.stages.registry import KINDS, kind_of, settings_of, tasks_of
from pipeline.study.work.amendments import changed_sections
from pipeline.study.work.leases import Leases
from pipeline.study.work.limits import Limits
from pipeline.study.work.owner import this_process
from pipeline.study.work.study import Study, begun_study
from tests.pipeline.study.test_study_report import MODEL, begun, protocol
from tests.pipeline.study.whole_ledger import made_report
from training.foundation.errors import BadRecipeError

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
    report = made_report(ledger, tmp_path / "report.pdf", "%PDF-")

    def sign(key: SigningKey, meaning: str, name: str) -> None:
        sign_report(ledger, "s", report, key, Signing(name, meaning), actor="x")  # type: ignore[arg-type]

    for key, meaning, name in ((bob, "authored", "Ada"), (ada, "approved", "Ada"), (ada, "authored", "Bob")):
        with pytest.raises(BadManifestError, match="its protocol does not allow"):
            sign(key, meaning, name)
    sign(ada, "authored", "Ada")
    with pytest.raises(BadManifestError, match=r"does not allow key .* to sign \(anchor\)"):
        make_anchor(ledger, "s", bob, tmp_path, actor="x")
    anchor = make_anchor(ledger, "s", ada, tmp_path, actor="x")
    with pytest.raises(BadManifestError, match="does not allow"):
        countersign(ledger, anchor, bob)
    assert study.ledger.history("s", "report")[-1].action == "report signed"


def test_an_amendment_s_entry_names_the_sections_that_changed():
    before, after = (protocol(signers=signers).frozen() for signers in ([], [_signer("a" * 16)]))
    assert changed_sections(before, after) == ["signers"]


@on_sqlite
@pytest.mark.parametrize(("section", "key"), [("qc", None), ("infer", "require_qc"), ("endpoints", None)])
def test_a_study_frozen_without_a_stage_or_a_setting_of_this_version_is_refused(ledger, tmp_path, section, key):
    study = begun(ledger, tmp_path / "p", protocol(), done=1)
    frozen = study.protocol.frozen()
    table: dict[str, object] = frozen[section] if key else frozen  # type: ignore[assignment]
    del table[key or section]
    ledger.begin(
        "earlier", frozen, study.manifest_sha256, [NewSlide("S-00")], ("ingest", f"infer {MODEL}"), actor="ada"
    )
    where = f"frozen by a version of gemslide without {section}{'.' + key if key else ''}"
    with pytest.raises(BadRecipeError, match=where):
        begun_study(study.project, "earlier", ledger)


READING = {
    "readers": ["reader-1"],
    "questions": [{"name": "diagnosis", "ask": "?", "kind": "choice", "choices": ["benign", "malignant"]}],
}


@on_sqlite
def test_a_study_begun_before_a_rule_was_stated_goes_on_and_half_a_rule_is_refused(ledger, tmp_path):
    study = begun(ledger, tmp_path / "p", protocol(reading=READING), done=1)
    assert study.protocol.reading is not None
    for name, rule in (("earlier", None), ("half", {"magnification": 10.0})):
        frozen = json.loads(json.dumps(study.protocol.frozen()))
        frozen["reading"].pop("seen")
        frozen["reading"] |= {"seen": rule} if rule else {}
        ledger.begin(name, frozen, study.manifest_sha256, [NewSlide("S-00")], study.protocol.stages, actor="ada")
    earlier = begun_study(study.project, "earlier", ledger).protocol
    assert earlier.reading is not None
    assert earlier.reading.seen == SeenRule()
    with pytest.raises(BadRecipeError, match=r"without reading\.seen\.field_px, reading\.seen\.seconds"):
        begun_study(study.project, "half", ledger)


@pytest.mark.parametrize("rule", [{"magnification": 0}, {"seconds": 0.1}, {"field_px": 700}, {"pixels": 3}])
def test_a_rule_that_no_screen_could_meet_is_refused(rule):
    with pytest.raises(ValueError, match=next(iter(rule))):
        protocol(reading={**READING, "seen": rule})


@on_sqlite
def test_the_report_states_the_rule_and_how_much_tissue_was_seen_by_it(ledger, tmp_path):
    rule = {"magnification": 5.0, "seconds": 2.0, "field_px": 500}
    study = begun(ledger, tmp_path / "p", protocol(reading={**READING, "seen": rule}))
    config = study.protocol.reading
    assert config is not None
    readings = Readings(study.ledger, "s", config)
    slides = [f"S-{number:02d}" for number in range(4)]
    readings.begin(lay_out(config, slides, 0), actor="ada")
    by_rule = {"seen_rule": rule, "tissue_seen": {"5x": 0.75, "10x": 0.5}}
    for seen in (
        by_rule,
        by_rule | {"tissue_seen": {"5x": 0.25}},
        {"tissue_seen": {"5x": 1.0}},
        by_rule | {"tissue_seen": [1]},
    ):
        row = readings.next_of("reader-1")
        assert row is not None
        at = ("reader-1", row.session, row.position)
        readings.start(*at)
        readings.give(*at, "diagnosis", "benign")
        readings.sign(*at, seconds=5.0, seen=seen)
    [shown] = [table for table in reader_tables(gather(study)) if table.name == "readings"]
    assert shown.rows == [("reader-1", "unassisted", 4, 4, 5.0, 0.5, 2)]
    assert "within 250 screen pixels" in shown.note
    assert "5x or more (2 µm per screen pixel or finer), for at least 2 s" in shown.note


def test_every_stage_declares_one_section_and_stands_for_tasks_of_its_name():
    assert len({kind.name for kind in KINDS}) == len(KINDS)
    for kind in KINDS:
        [first, *others] = [
            task
            for task in tasks_of([("a", "tile"), ("b", "tile"), ("e", "slide"), ("f", "patient")], ["c", "d"])
            if kind_of(task) is kind
        ]
        assert first.partition(" ")[0] == kind.name
        assert len(others) == (kind.of_models or kind.of_encoders)
        assert settings_of(protocol(), kind) == kind.settings() == settings_of(Settings(), kind)


def _signer(key_id: str) -> dict[str, object]:
    return {"name": "Ada", "key_id": key_id, "may": ["approved"]}


def test_slides_of_a_higher_priority_are_taken_first_and_the_log_says_who_wanted_it(begun):
    prioritize(begun, "s", ["S-4"], 5, actor="ada", why="the board meets tomorrow")
    mine = Leases(begun, this_process(), Limits(), actor="worker")
    assert mine.take("s").slide_id == "S-4"
    [*_, entry] = [
        entry_found for entry_found in begun.history("s", "slide S-4") if entry_found.action == "slide prioritized"
    ]
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
        ({"question": "remarks"}, "question remarks: name one of kind choice or yes_no"),
    ],
)
def test_a_validation_that_its_readings_cannot_answer_is_refused(changes, said):
    with pytest.raises(ValidationError, match=said):
        protocol(**cap(**changes))
    with pytest.raises(ValidationError, match=r"needs .reading. with arms"):
        protocol(validation=cap()["validation"])


@on_sqlite
def test_a_validation_is_met_by_enough_cases_that_agree(ledger, tmp_path):
    study = begun(
        ledger, tmp_path / "p", protocol(**cap(min_cases=10, min_concordance=0.9, min_washout_days=0.0) | quick())
    )
    read(study, differing=1)
    rows = {row[0]: row[1:] for row in table(study)}
    assert rows["reader-1: cases"] == ("at least 10", "10", "yes"), "twenty slides of ten patients"
    assert rows["reader-1: concordance"] == ("at least 0.9", "0.900 (0.555 to 0.997)", "yes")
    assert rows["all criteria"] == ("each of them", "3 of 3", "yes")


@on_sqlite
def test_a_validation_is_not_met_by_too_few_cases_or_too_little_agreement(ledger, tmp_path):
    study = begun(ledger, tmp_path / "p", protocol(**cap(min_washout_days=0.0) | quick()))
    read(study, differing=2)
    rows = {row[0]: row[1:] for row in table(study)}
    assert (rows["reader-1: cases"][2], rows["reader-1: concordance"][2]) == ("no", "no")


def quick() -> dict[str, object]:
    return {"reading": TEMPLATES["cap-validation"]["reading"] | {"washout_days": 0.0}}


def read(study: Study, differing: int) -> None:
    """Let one reader read twenty slides on glass and on the screen, some of them differently."""
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
    [matching] = [candidate for candidate in reader_tables(gather(study)) if candidate.name == "validation"]
    return list(matching.rows)


def test_the_template_makes_a_protocol_that_holds(gemslide, small_project_copy):
    done = gemslide(
        "study", "init", "v", "--cohort", small_project_copy.cohort, "--model", small_project_copy.model_id,
        "--template", "cap-validation", "--question", "Can we read on screens?",
        "--project", small_project_copy.project.root,
    )  # fmt: skip
    assert done.code == 0, done.err
    text = (small_project_copy.project.root / "studies" / "v" / "study.toml").read_text()
    assert 'arms = [\n    "glass",\n    "digital",\n]' in text
    assert "min_cases = 60" in text
