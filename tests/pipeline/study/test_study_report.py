"""A study's report matches the ledger: flow, endpoints, readers; as page, PDF and tables."""

from __future__ import annotations

import csv
import json
import random
import re
import shutil
from ctypes.util import find_library
from pathlib import Path

import numpy as np
import pytest
from shapely.geometry import Point, box
from sklearn.metrics import balanced_accuracy_score, cohen_kappa_score, recall_score, roc_auc_score

from pipeline.cohort.manifest import load_cohort
from pipeline.errors import BadManifestError, DamagedStoreError
from pipeline.evaluation.statistics.bootstrap import Draws
from pipeline.evaluation.statistics.delong import delong_auc
from pipeline.files import sha256_of
from pipeline.ledger.chain import canonical
from pipeline.ledger.ledger import Ledger
from pipeline.project import Project
from pipeline.review import Draft, save
from pipeline.review.rows.tables import review
from pipeline.study.outcomes.remedies import remedy_of
from pipeline.study.privacy.export import export_study
from pipeline.study.privacy.keyed import open_pseudonym_key
from pipeline.study.proof.verify import verify_log
from pipeline.study.protocol import Protocol, study_dir
from pipeline.study.reading.order import lay_out
from pipeline.study.reading.readings import Readings
from pipeline.study.references import References, references_of_cohort
from pipeline.study.report.cases import cases_of
from pipeline.study.report.compose import sections_of
from pipeline.study.report.endpoints import result_of
from pipeline.study.report.facts import Facts, gather
from pipeline.study.report.flow import flow_of
from pipeline.study.report.publish import write_report
from pipeline.study.report.readers import reader_tables
from pipeline.study.report.table import Table
from pipeline.study.work.leases import Ended, Leases
from pipeline.study.work.limits import Limits
from pipeline.study.work.owner import this_process
from pipeline.study.work.study import Study, slides_of
from tests.pathology_app.small_project import SLIDE_ID, make_project
from tests.pipeline.study.whole_ledger import behind_its_back, forge, open_to_tampering
from training.foundation.errors import BadRecipeError

MODEL = "m-00000000"
HOSTILE = '<script>alert("x")</script>, =1+1'
SLIDES = 30
DRAWS = Draws(200, seed=3)
needs_pango = pytest.mark.skipif(
    None in map(find_library, ("pangoft2-1.0", "harfbuzz-subset")),
    reason="Pango is not installed (Debian: libpango-1.0-0, libpangoft2-1.0-0, libharfbuzz-subset0)",
)
on_sqlite = pytest.mark.parametrize("url", ["sqlite"], indirect=True)
"""Mark for tests in which the database makes no difference."""


AREA = {"name": "area", "measure": "auc", "model": MODEL, "class_name": "tumour", "at_least": 0.5}


def protocol(**changes: object) -> Protocol:
    endpoint = {"model": MODEL, "class_name": "tumour"}
    kinds = ("auc", "sensitivity", "specificity", "balanced_accuracy", "kappa", "accuracy")
    questions = [
        {"name": "grade", "ask": "?", "kind": "choice", "choices": ["low", "middle", "high"]},
        {"name": "tumour", "ask": "?", "kind": "yes_no", "class_name": "tumour"},
        {"name": "score", "ask": "?", "kind": "score", "class_name": "tumour"},
    ]
    written: dict[str, object] = {
        "study": {"title": f"t {HOSTILE}", "question": "?", "cohort": "cohort.csv", "seed": 3},
        "models": [{"id": MODEL, "sha256": "0" * 64, "config_sha256": "0" * 64}],
        "analysis": {"bootstrap": 200, "cost_per_hour": 2.0},
        "endpoints": [
            {"name": f"{kind} by {level}", "measure": kind, "level": level, "at_least": 0.5, **endpoint}
            for kind in kinds
            for level in ("slide", "patient")
        ],
        "reading": {"readers": ["r-1", "r-2", "r-3"], "arms": ["unassisted", "assisted"], "washout_days": 0,
                    "questions": questions},
    }  # fmt: skip
    return Protocol.model_validate(written | changes)


def scores_of(number: int) -> tuple[bool, float]:
    """Whether a slide has tumour, and the model's score."""
    drawn = random.Random(number)
    has = number % 3 == 0
    return has, round(min(1.0, max(0.0, drawn.gauss(0.65 if has else 0.4, 0.2))), 6)


def begun(ledger: Ledger, folder: Path, frozen: Protocol, *, done: int = 10_000) -> Study:
    """Study of thirty slides of fifteen patients, some of which end without a result."""
    project = Project(folder)
    at = study_dir(project, "s")
    at.mkdir(parents=True)
    rows = [
        f"/{n}.svs,S-{n:02d},P-{n // 2},{'AB'[n % 2]},scanner {n % 3},{'tumour' if scores_of(n)[0] else 'none'},"
        for n in range(SLIDES)
    ]
    rows += [
        f'/x.svs,S-x,,A,,tumour,"{HOSTILE.replace(chr(34), chr(34) * 2)}"',
        "/y.svs,S-y,,A,,tumour,",
        "/z.svs,S-z,,B,,,",
    ]
    header = "path,slide_id,patient_id,site,scanner,label,exclude"
    (at / "cohort.csv").write_text("\n".join([header, *rows]) + "\n")
    slides = slides_of(load_cohort(at / "cohort.csv"))
    sha256 = sha256_of(at / "cohort.csv")
    ledger.begin("s", frozen.frozen(), sha256, slides, frozen.stages, actor="ada")
    mine = Leases(ledger, this_process(), Limits(), actor="worker")
    while (lease := mine.take("s")) and ledger.counts("s").slides["done"] < done:
        mine.finish(lease, _ended(lease.slide_id, lease.stage))
    return Study(project, "s", ledger, frozen, sha256)


def _ended(slide_id: str, stage: str) -> Ended:
    if slide_id == "S-y" and stage == "qc":
        return Ended("unreadable", "unreadable", f"S-y.svs: {HOSTILE}", 0.5)
    if stage == "ingest":
        return Ended("done", None, None, 10.0, "a" * 64, "b" * 64, canonical({"scanner": "from the file"}))
    if stage == "qc":
        return Ended("done", None, None, 2.0, "a" * 64, None, canonical({"verdict": "ok", "reasons": []}))
    score = scores_of(int(slide_id[2:]))[1] if slide_id != "S-z" else 0.5
    values = {rule: [round(1 - score, 6), score] for rule in ("max", "mean", "top_decile")}
    measures = {"classes": ["none", "tumour"], "scores": values, "cells": 3}
    return Ended("done", None, None, 60.0, "c" * 64, None, canonical(measures))


@pytest.fixture
def study(ledger: Ledger, tmp_path: Path) -> Study:
    return begun(ledger, tmp_path / "p", protocol())


def read_all(study: Study) -> None:
    config = study.protocol.reading
    assert config is not None
    readings = Readings(study.ledger, "s", config)
    readings.begin(lay_out(config, [f"S-{n:02d}" for n in range(8)], 1), actor="ada")
    for reader in config.readers:
        while row := readings.next_of(reader):
            drawn = random.Random(f"{reader}{row.slide_id}{row.arm}")
            score = drawn.gauss(60 if scores_of(int(row.slide_id[2:]))[0] else 40, 15)
            at = (reader, row.session, row.position)
            readings.start(*at)
            readings.give(*at, "grade", ("low", "middle", "high")[min(2, max(0, int(score // 34)))])
            readings.give(*at, "tumour", score > 50)
            readings.give(*at, "score", float(np.clip(score, 0, 100)))
            readings.sign(*at, seconds=drawn.uniform(10, 60))


def tables_of(folder: Path) -> dict[str, list[dict[str, str]]]:
    return {
        path.stem: list(csv.DictReader(path.read_text().splitlines())) for path in (folder / "tables").glob("*.csv")
    }


def test_endpoints_are_those_of_an_independent_computation(study):
    facts = gather(study)
    truth = np.array([scores_of(n)[0] for n in range(SLIDES)])
    scores = np.array([scores_of(n)[1] for n in range(SLIDES)])
    called = scores >= 0.5
    expected = {
        "auc": roc_auc_score(truth, scores),
        "sensitivity": recall_score(truth, called),
        "specificity": recall_score(~truth, ~called),
        "balanced_accuracy": balanced_accuracy_score(truth, called),
        "kappa": cohen_kappa_score(truth, called),
        "accuracy": (truth == called).mean(),
    }
    for endpoint in facts.protocol.endpoints:
        if endpoint.level == "slide":
            result = result_of(endpoint, cases_of(facts, [endpoint])[endpoint.name], facts.protocol.analysis, DRAWS)
            assert result.estimate.value == pytest.approx(expected[endpoint.measure], abs=1e-9), endpoint.measure
            assert (result.cases, result.patients) == (30, 15)
            assert result.estimate.low < result.estimate.value < result.estimate.high
            assert result.is_met == (result.estimate.low >= 0.5)
    [area] = [e for e in facts.protocol.endpoints if e.name == "auc by slide"]
    assert result_of(area, cases_of(facts, [area])[area.name], facts.protocol.analysis, DRAWS).delong == delong_auc(
        truth, scores
    )


@on_sqlite
def test_a_patient_has_the_classes_of_all_slides_and_the_highest_score(study):
    facts = gather(study)
    [endpoint] = [e for e in facts.protocol.endpoints if e.name == "auc by patient"]
    cases = cases_of(facts, [endpoint])[endpoint.name]
    assert len(cases) == 15
    for slide, truth, score in zip(cases.slides, cases.truth_nk[:, 1], cases.scores_nk[:, 1], strict=True):
        own = [scores_of(2 * (int(slide[2:]) // 2) + at) for at in (0, 1)]
        assert (truth, score) == (any(has for has, _ in own), max(score for _, score in own))


def test_the_flow_adds_up(study):
    flow = flow_of(gather(study))
    assert flow.received == (33, 18)
    assert flow.excluded == {HOSTILE: 1}
    assert flow.left_out == {"unreadable": 1}
    assert (flow.begun[0], flow.analysed, flow.with_reference) == (32, (31, 16), (30, 15))


@needs_pango
@on_sqlite
def test_a_report_is_one_page_a_pdf_and_tables_and_stands_in_the_log(ledger, tmp_path):
    study = begun(ledger, tmp_path / "p", protocol(endpoints=[AREA]))
    read_all(study)
    report = write_report(study, actor="ada")
    assert report.findings == ()
    assert report.pdf.read_bytes().startswith(b"%PDF-")
    page = report.html.read_text()
    assert "Research use only" in page
    assert "<script>" not in page
    assert not re.findall(r"(?:src|href)=\"(?!data:image/svg)", page), "one file, which loads nothing"
    tables = tables_of(report.folder)
    assert len(tables["slides"]) == 33
    assert {row["met"] for row in tables["endpoints"]} <= {"yes", "no", "–"}
    assert tables["exclusions"] == [{"reason": HOSTILE, "slides": "1"}]
    [failed] = tables["failures_by_code"]
    assert (failed["code"], failed["what to do"]) == ("unreadable", remedy_of("unreadable"))
    assert {row["stage"]: row["EUR each"] for row in tables["times"]}[f"infer {MODEL}"][:6] == "0.0333"
    assert {row["measure"] for row in tables["agreement"]} == {"Cohen’s kappa", "concordance", "Fleiss’ kappa"}
    assert {row["arm"] for row in tables["mrmc"]} == {"unassisted", "assisted", "assisted − unassisted"}
    assert {"endpoints_by_site", "endpoints_by_scanner", "calibration", "hashes", "readers_and_labels"} <= set(tables)
    [*_, entry] = study.ledger.history("s", "report")
    assert json.loads(entry.details)["sha256"]["report.pdf"] == sha256_of(report.pdf)
    assert verify_log(study.ledger.database, "s").findings == ()
    with pytest.raises(BadManifestError, match="never overwritten"):
        write_report(study, actor="ada", out=report.folder)


@needs_pango
@on_sqlite
def test_a_report_before_the_end_says_that_it_is_interim(ledger, tmp_path):
    study = begun(ledger, tmp_path / "p", protocol(endpoints=[]), done=7)
    page = write_report(study, actor="ada").html.read_text()
    assert "Interim report: 25 of 33 slides have not finished yet" in page


@on_sqlite
def test_an_endpoint_of_a_class_that_the_model_does_not_have_is_one_clear_error(ledger, tmp_path):
    endpoint = {"name": "x", "measure": "auc", "model": MODEL, "class_name": "stroma"}
    study = begun(ledger, tmp_path / "p", protocol(endpoints=[endpoint]))
    with pytest.raises(BadRecipeError, match="class_name 'stroma': model m-00000000 has none, tumour"):
        write_report(study, actor="ada")
    assert not (study.folder / "reports").exists()


@needs_pango
@on_sqlite
def test_a_log_that_does_not_verify_is_said_in_the_report(ledger, tmp_path):
    study = begun(ledger, tmp_path / "p", protocol(endpoints=[]))
    with ledger.database.write() as connection:
        connection.exec_driver_sql("UPDATE slide SET state = 'failed' WHERE slide_id = 'S-03'")
    report = write_report(study, actor="ada")
    assert report.findings
    page = report.html.read_text()
    assert "THE LOG DOES NOT VERIFY: slide S-03: was changed" in page
    warning = page.index("The log of this study failed verification: data was changed")
    assert warning < page.index("<h2"), "above everything that somebody could rely on"


CELLS = {
    "seconds are a text": "UPDATE task SET seconds = 'long' WHERE slide_id = 'S-03'",
    "seconds are infinite": "UPDATE task SET seconds = 9e999 WHERE slide_id = 'S-03'",
    "attempts are a text": "UPDATE task SET attempts = 'many' WHERE slide_id = 'S-03'",
    "measures are no JSON": "UPDATE task SET measures = '{' WHERE slide_id = 'S-03'",
    "measures are of other keys": "UPDATE task SET measures = '{\"classes\":[],\"scores\":{}}' WHERE slide_id = 'S-03'",
    "a stage is none of ours": "UPDATE task SET stage = 'nonsense' WHERE slide_id = 'S-03' AND stage = 'qc'",
    "a site is bytes": "UPDATE slide SET site = x'ff' WHERE slide_id = 'S-03'",
    "a time is bytes": "UPDATE audit SET utc = x'ff' WHERE seq = 1",
    "a reason is bytes": "UPDATE audit SET why = x'ff' WHERE seq = 1",
}


@on_sqlite
@pytest.mark.parametrize("what", CELLS)
def test_a_cell_of_another_kind_is_said_in_the_report_which_is_still_made(ledger, tmp_path, monkeypatch, what):
    monkeypatch.setattr("pipeline.study.report.publish.as_pdf", lambda page: b"%PDF-")
    study = begun(ledger, tmp_path / "p", protocol(endpoints=[AREA]))
    open_to_tampering(ledger)
    with behind_its_back(ledger) as connection:
        connection.exec_driver_sql(CELLS[what])
    report = write_report(study, actor="ada")
    assert "THE LOG DOES NOT VERIFY: " in report.html.read_text()
    assert any(name in report.findings[0] for name in ("S-03", "entry 1 "))
    with pytest.raises(DamagedStoreError, match="does not verify"):
        export_study(study, tmp_path / "out", open_pseudonym_key(tmp_path / "key"), results=[], actor="ada")


@needs_pango
@on_sqlite
def test_a_forged_review_is_said_in_the_report(ledger, tmp_path):
    study = begun(ledger, tmp_path / "p", protocol(endpoints=[]))
    forge(ledger, review)
    report = write_report(study, actor="ada")
    assert "THE LOG DOES NOT VERIFY: review of mallory" in report.html.read_text()


@pytest.mark.parametrize("cell", ["=1+1", "+1", "-1", "@x", "\tx"])
def test_no_spreadsheet_runs_a_cell(cell):
    assert Table("t", "t", ("a",), [(cell,)]).as_csv().splitlines()[1].strip('"').startswith("'")


def relabelled(study: Study, labels: dict[str, str]) -> Facts:
    """A study's data, as if the manifest had given some slides other labels."""
    facts = gather(study)
    facts.slides["label"] = [labels.get(slide_id, label) for slide_id, label in facts.slides["label"].items()]
    return facts


NODES = dict(zip(("S-00", "S-03", "S-06", "S-01", "S-02"), ("macro", "micro", "itc", "negative", "smear"), strict=True))
"""The first three have tumour by `scores_of`, the next one has none, and the last label means nothing to the model."""


@on_sqlite
def test_readers_are_compared_with_the_truth_of_the_cases(study):
    read_all(study)
    as_named, as_nodes = (
        {table.name: table for table in reader_tables(relabelled(study, labels))} for labels in ({"S-02": ""}, NODES)
    )
    for name in ("readers_and_labels", "mrmc"):
        assert as_named[name].rows == as_nodes[name].rows, name


@on_sqlite
def test_a_label_that_no_class_understands_is_no_reference_and_said(study):
    facts = relabelled(study, NODES)
    flow = flow_of(facts)
    assert (flow.with_reference, flow.unusable) == ((29, 15), {"smear": 1})
    [area] = [endpoint for endpoint in facts.protocol.endpoints if endpoint.name == "auc by slide"]
    assert len(cases_of(facts, [area])[area.name]) == flow.with_reference[0]
    [said] = sections_of(facts, verified="")[0].paragraphs
    assert (
        said == "1 analysed slide has a label that is none of the classes (none, tumour), and no reference: smear (1)."
    )


@on_sqlite
@pytest.mark.parametrize("class_name", ["tumor", "Tumour", "carcinoma"])
def test_a_question_about_a_class_that_no_label_names_is_said(ledger, tmp_path, class_name):
    question = {"name": "any", "ask": "?", "kind": "yes_no", "class_name": class_name}
    reading = {"readers": ["r-1", "r-2"], "washout_days": 0, "questions": [question]}
    facts = gather(begun(ledger, tmp_path / "p", protocol(reading=reading, endpoints=[])))
    [said] = sections_of(facts, verified="")[0].paragraphs
    assert f"question any: class_name '{class_name}': no slide of the study has it" in said
    assert "labels: none, tumour" in said


@pytest.mark.parametrize(
    ("orders", "labels", "class_name", "expected"),
    [
        ([("normal", "tumour")], ("macro", "negative", "x", ""), "tumour", [True, False, None, None]),
        ([("tumour", "normal")], ("itc", "negative", "normal", "tumour"), "tumour", [True, False, False, True]),
        ([("a", "b", "c")], ("macro", "a", "c", "d"), "a", [None, True, False, None]),
        ([("normal", "tumour")], ("macro", "micro", "negative", "x"), "macro", [True, False, False, None]),
        ([("normal", "tumour")], ("MSI", "MSS", "macro"), "MSI", [True, False, None]),
    ],
)
def test_a_label_says_whether_a_slide_has_a_class_or_that_nobody_knows(orders, labels, class_name, expected):
    references = References.of(protocol(), orders, labels)
    assert [references.has(label, class_name) for label in labels] == expected


def test_a_class_that_no_label_names_is_said_before_the_study_begins(tmp_path):
    (tmp_path / "config.json").write_text('{"class_names": ["none", "tumour"]}')
    (tmp_path / "cohort.csv").write_text("path,label\na.svs,macro\nb.svs,negative\n")
    [right, wrong] = (
        references_of_cohort(protocol(endpoints=[AREA | {"class_name": name}], reading=None), cohort, [tmp_path])
        for cohort in [load_cohort(tmp_path / "cohort.csv")]
        for name in ("tumour", "tumor")
    )
    assert right.warnings == []
    assert "endpoint area: class_name 'tumor': no slide of the study has it by its label" in wrong.warnings[0]


@on_sqlite
def test_what_people_counted_is_in_the_report_and_a_slide_without_its_store_is_named(study, tmp_path):
    assert "Counts" not in [section.heading for section in sections_of(gather(study), verified="")]
    (tmp_path / "small").mkdir()
    small = make_project(tmp_path / "small")
    store = study.project.store_path("S-03")
    shutil.copytree(small.store_path(SLIDE_ID), store)
    (store / "zarr.json").write_text((store / "zarr.json").read_text().replace(SLIDE_ID, "S-03"))
    area = Draft(box(0, 0, 400, 400), "count")
    marks = [
        Draft(Point(9 * n, 9), "mark", "positive" if n % 4 else "negative", parent_id=area.annotation_id)
        for n in range(8)
    ]
    save(study.ledger, "S-03", [area, *marks], "ada")
    save(study.ledger, "S-04", [Draft(box(0, 0, 400, 400), "count")], "bob")
    save(study.ledger, "other", [Draft(box(0, 0, 400, 400), "count")], "bob")
    [section] = [section for section in sections_of(gather(study), verified="") if section.heading == "Counts"]
    [table] = section.tables
    found = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    assert [(row["slide"], row["class"], row["number"], row["author"]) for row in found] == [
        ("S-03", "negative", 2, "ada"),
        ("S-03", "positive", 6, "ada"),
    ]
    assert found[1]["per mm² scanned"] == pytest.approx(6 / 0.04)
    assert (found[1]["share"], found[1]["area mm²"]) == pytest.approx((0.75, 0.04))
    assert section.paragraphs[0].startswith("The counts on slide S-04 are missing here: ")
    assert len(section.paragraphs) == 1, "other is not in the study"
