"""A slide is erased on request: nothing of it remains, and the log still verifies, on either database."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from shapely import box
from sqlalchemy import text

from pipeline.cohort.manifest import load_cohort
from pipeline.errors import BadManifestError
from pipeline.files import sha256_of
from pipeline.ledger.ledger import Ledger
from pipeline.ledger.rows import PROJECT_LOG
from pipeline.places import connection
from pipeline.project import Project
from pipeline.registration import IDENTITY
from pipeline.review import (
    Draft,
    Registration,
    annotations_of,
    registrations_of,
    remove_registration,
    save,
    save_registration,
)
from pipeline.review.judging.coverage import CoverageGrid
from pipeline.review.judging.coverage_store import save_looks
from pipeline.review.judging.hotspots import HotspotKey, judge_hotspots
from pipeline.review.judging.seen_rule import SeenRule
from pipeline.review.judging.slides import SlideReview, add_review, reviews_of
from pipeline.review.rows.view_context import ViewContext
from pipeline.review.verify import verify_reviews
from pipeline.settings.site import BUCKET_VARIABLE
from pipeline.store.links.links_file import LinkEntry, SourceFile, add_link
from pipeline.study.proof.erasure import erase
from pipeline.study.proof.verify import verify_log
from pipeline.study.protocol import Protocol, study_dir
from pipeline.study.reading.order import lay_out
from pipeline.study.reading.readings import Readings
from pipeline.study.work.amendments import freeze
from pipeline.study.work.leases import Ended, Leases
from pipeline.study.work.limits import Limits
from pipeline.study.work.owner import this_process
from pipeline.study.work.study import Study, slides_of
from tests.pipeline.store.bucket_server import BUCKET, bucket_server

NAME = "Erika-Mustermann-1964"
OTHERS = ("S-1", "S-3")
REVIEWS = (
    "hotspot_review",
    "coverage",
    "review",
    "annotation",
    "annotation_revision",
    "annotated_slide",
    "registration",
)


def protocol() -> Protocol:
    questions = [{"name": "tumour", "kind": "yes_no", "ask": "Is there a tumour?"}]
    return Protocol.model_validate(
        {
            "study": {"title": "t", "question": "?", "cohort": "cohort.csv"},
            "models": [{"id": "m-00000000", "sha256": "0" * 64, "config_sha256": "0" * 64}],
            "reading": {"readers": ["ada", "bob"], "questions": questions},
        }
    )


def write_manifest(folder: Path, *slide_ids: str) -> str:
    rows = [f"/slides/{slide_id}.svs,{slide_id}" for slide_id in slide_ids]
    (folder / "cohort.csv").write_text("\n".join(["path,slide_id", *rows]) + "\n")
    return sha256_of(folder / "cohort.csv")


@pytest.fixture
def study(ledger: Ledger, tmp_path: Path) -> Study:
    """Study with a slide that ended with a message naming its file, and was read by one reader."""
    project = Project(tmp_path / "p")
    folder = study_dir(project, "s")
    folder.mkdir(parents=True)
    sha256 = write_manifest(folder, "S-1", NAME, "S-3")
    frozen = protocol()
    slides = slides_of(load_cohort(folder / "cohort.csv"))
    ledger.begin("s", frozen.frozen(), sha256, slides, frozen.stages, actor="ada")
    mine = Leases(ledger, this_process(), Limits(), actor="worker")
    while lease := mine.take("s"):
        is_named = lease.slide_id == NAME and lease.stage == "qc"
        mine.finish(lease, Ended("refused" if is_named else "done", None, f"{lease.slide_id}.svs: said", 1.0, "f" * 64))
    linked = SourceFile(path=f"/slides/{NAME}.svs", bytes=1, mtime_ns=1, inode=1)
    entry = LinkEntry(slide_id=NAME, opened_as=linked.path, files=(linked,), pointers_sha256="0" * 64)
    add_link(project.store_path(NAME), "0" * 32, entry)
    for path in (project.store_path(NAME) / "zarr.json", project.result_dir(NAME, "m-00000000") / "predictions.csv"):
        path.parent.mkdir(parents=True)
        path.write_text("{}")
    return Study(project, "s", ledger, frozen, sha256)


def read_everything(study: Study) -> Readings:
    assert study.protocol.reading is not None
    readings = Readings(study.ledger, "s", study.protocol.reading)
    readings.begin(lay_out(study.protocol.reading, ["S-1", NAME, "S-3"], 0), actor="ada")
    for reader in ("ada", "bob"):
        while row := readings.next_of(reader):
            at = (reader, row.session, row.position)
            readings.start(*at)
            readings.give(*at, "tumour", True)
            readings.sign(*at, seconds=3.0)
    return readings


def say_something(study: Study) -> None:
    """Add reviews in a reading of the study and outside all studies, of the slide to be erased and of another."""
    for context in (
        ViewContext(NAME, "ada", "ada", "s", "ada/1/1"),
        ViewContext(NAME, "ada", "ada"),
        ViewContext("S-1", "a", "a"),
    ):
        save_looks(study.ledger, context, CoverageGrid(128.0, 2, 2), [], rule=SeenRule(), mpp0=0.5, seconds=3)
        judge_hotspots(study.ledger, context, "m-00000000", "0" * 64, [(HotspotKey("tumour", 1, 2), "accepted")])
        add_review(study.ledger, context, SlideReview("disagree", "Ada", comment=f"of {context.slide_id}"))
    for slide_id in (NAME, "S-1"):
        (drawn,) = save(study.ledger, slide_id, [Draft(box(1, 2, 30, 40), "rectangle", note=slide_id)], "ada").saved
        save(study.ledger, slide_id, [drawn.draft(note=f"more of {slide_id}")], "bob")

    for moving_id, fixed_id in ((NAME, "S-1"), ("S-3", NAME), ("S-1", "S-3")):
        found = Registration(moving_id, fixed_id, IDENTITY, "features", 20.0, 40, "0" * 64, "1" * 64)
        save_registration(study.ledger, found, "ada")
    remove_registration(study.ledger, "S-3", NAME, "ada")


def everything(ledger: Ledger) -> str:
    """Full contents of the database."""
    with ledger.database.read() as connection:
        tables = [connection.execute(text(f"SELECT * FROM {name}")).all() for name in
                  ("study", "slide", "task", "audit", "reading", "answer", *REVIEWS)]  # fmt: skip
    return repr(tables)


def test_nothing_of_an_erased_slide_is_left_and_the_log_verifies(study, tmp_path):
    readings = read_everything(study)
    say_something(study)
    before = verify_log(study.ledger.database, "s")
    assert not before.findings
    assert NAME in everything(study.ledger)

    write_manifest(study.folder, *OTHERS)
    erased = erase(study, [NAME], actor="ada", why="on request 17")

    after = verify_log(study.ledger.database, "s", {before.entries: before.head})
    assert (after.findings, after.erased) == ((), erased.entries)
    assert erased.entries > 10
    assert NAME not in everything(study.ledger)
    assert not verify_log(study.ledger.database, PROJECT_LOG).findings
    assert verify_reviews(study.ledger.database, "s") == verify_reviews(study.ledger.database, PROJECT_LOG) == []
    assert len(reviews_of(study.ledger, "S-1")) == len(annotations_of(study.ledger, "S-1")) == 1, "of others it stays"
    assert [(kept.moving_id, kept.fixed_id) for kept in registrations_of(study.ledger)] == [("S-1", "S-3")]
    if study.ledger.database.is_sqlite:
        study.ledger.database.close()
        assert NAME.encode() not in (tmp_path / "gemslide.db").read_bytes()
    assert not study.project.store_path(NAME).exists()
    assert NAME not in study.project.links_path.read_text()
    assert not study.project.result_dir(NAME, "m-00000000").exists()
    assert {slide for slide, *_ in readings.signed("tumour", "unassisted")} == set(OTHERS)


def test_the_totals_still_add_up_and_the_study_goes_on(study):
    write_manifest(study.folder, *OTHERS)
    erase(study, [NAME], actor="ada", why="on request 17")
    slides = study.ledger.counts("s").slides
    assert (sum(slides.values()), slides["done"], slides["excluded"]) == (3, 2, 1)
    [nameless] = study.ledger.slides("s", state="excluded")
    assert (nameless.slide_id, nameless.code, nameless.message) == ("erased-1", "erased", "erased on request")
    [*_, entry] = study.ledger.history("s", "study")
    assert (entry.action, entry.why, "entries" in json.loads(entry.details)) == ("protocol amended", "on request 17", 0)


def test_what_is_still_in_the_manifest_or_in_work_or_unknown_is_not_erased(study):
    with pytest.raises(BadManifestError, match="still in the manifest"):
        erase(study, [NAME], actor="ada", why="request")
    write_manifest(study.folder, *OTHERS)
    with pytest.raises(BadManifestError, match="is not in study s"):
        erase(study, ["nobody"], actor="ada", why="request")
    with pytest.raises(BadManifestError, match="needs a reason"):
        erase(study, [NAME], actor="ada", why=" ")
    assert study.project.store_path(NAME).exists()
    erase(study, [NAME], actor="ada", why="request")
    with pytest.raises(BadManifestError, match="was already erased"):
        erase(study, ["erased-1"], actor="ada", why="request")


def test_a_slide_that_is_also_in_the_bucket_is_not_half_erased(study, monkeypatch):
    with bucket_server() as bucket:
        bucket.reach(monkeypatch)
        monkeypatch.setenv(BUCKET_VARIABLE, f"s3://{BUCKET}/trial")
        bucket.put(f"trial/{NAME}.ome.zarr/0/0/c/0/0/0", b"left over")
        write_manifest(study.folder, *OTHERS)

        with pytest.raises(BadManifestError, match="is in the project's bucket"):
            erase(study, [NAME], actor="ada", why="request")
        assert (study.project.slides_dir / f"{NAME}.ome.zarr").exists()

        bucket.delete(f"trial/{NAME}.ome.zarr/0/0/c/0/0/0")
        erase(study, [NAME], actor="ada", why="request")
        assert not (study.project.slides_dir / f"{NAME}.ome.zarr").exists()
    connection.connect.cache_clear()


def test_a_slide_that_a_worker_has_is_not_erased(study, ledger):
    write_manifest(study.folder, "S-1", NAME, "S-3", "S-4")
    grown = amend_to(study)
    mine = Leases(ledger, this_process(), Limits(), actor="worker")
    assert mine.take("s").slide_id == "S-4"
    write_manifest(study.folder, "S-1", NAME, "S-3")
    with pytest.raises(BadManifestError, match="Pause the study"):
        erase(grown, ["S-4"], actor="ada", why="request")


def test_a_task_erased_between_two_looks_ends_no_worker_and_is_named_no_more(study, ledger):
    write_manifest(study.folder, "S-1", NAME, "S-3", "S-4")
    grown = amend_to(study)
    late = Leases(ledger, replace(this_process(), began="1"), Limits(), actor="one that seems gone")
    lease = late.take("s")
    write_manifest(study.folder, "S-1", NAME, "S-3")

    def while_the_watcher_looks() -> float:
        late.finish(lease, Ended("unreadable"))
        erase(grown, ["S-4"], actor="ada", why="request")
        return 0.0

    watcher = Leases(ledger, this_process(), Limits(), actor="watcher", clock=while_the_watcher_looks)
    assert watcher.steal("s") == 0
    assert late.finish(lease, Ended("done"), take_next=True) == (False, None)
    assert "S-4" not in everything(ledger)
    assert not verify_log(ledger.database, "s").findings


def amend_to(study: Study) -> Study:
    after = replace(study, manifest_sha256=sha256_of(study.folder / "cohort.csv"))
    cohort = load_cohort(study.folder / "cohort.csv")
    with study.ledger.database.write() as connection:
        freeze(connection, after, cohort, actor="ada", why="one more", first=len(study.protocol.stages))
    return after


def test_files_that_still_name_an_erased_slide_are_told(study):
    (study.project.runs_dir).mkdir()
    for name, content in (("20260101T000000Z-aaaaaa.json", NAME), ("20260101T000000Z-bbbbbb.json", "S-1")):
        (study.project.runs_dir / name).write_text(json.dumps({"slides": [content]}))
    write_manifest(study.folder, *OTHERS)
    erased = erase(study, [NAME], actor="ada", why="request")
    assert [path.name for path in erased.still_named_in] == ["20260101T000000Z-aaaaaa.json"]


def test_a_reason_for_an_exclusion_names_no_annotation_file(tmp_path):
    (tmp_path / "Meier-Anna.geojson").write_text("{}")
    manifest = tmp_path / "cohort.csv"
    manifest.write_text("path,slide_id,annotations,exclude\nb.svs,b,Meier-Anna.geojson,Meier-Anna.geojson is wrong\n")

    [entered] = slides_of(load_cohort(manifest))

    assert "Meier" not in str(entered)
    assert "is wrong" in str(entered)
