"""The index of all slides: it answers searches, follows the files, and trusts no cache that it cannot check."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pathology_app.app_pages.worklist.rows import without_predictions
from pathology_app.slides.cache import SlideCache
from pathology_app.slides.index.cache_file import FILE, load_facts
from pathology_app.slides.index.facts import AnswerFacts, ModelFacts, SlideFacts, read_facts
from pathology_app.slides.index.index import MANY, SlideIndex
from pathology_app.slides.index.sweep import Batch, CohortFacts, Sweeper
from pathology_app.slides.index.table import SlideTable
from pathology_app.slides.index.wanted import SORTS, Wanted
from pipeline.project import Project
from tests.pathology_app.many_slides import make_many_slides
from tests.pathology_app.small_attention import SLIDE_MODEL, write_small_attention
from tests.pathology_app.small_project import MODEL_ID, SLIDE_ID

LONG_S = 60.0


@pytest.fixture
def copied(project: Project, tmp_path: Path) -> Project:
    # Pages drawn by other tests have left a cache.
    shutil.copytree(project.root, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("cache"))
    return Project(tmp_path)


def facts_of(slide_id: str, score: float | None = None, **more: object) -> SlideFacts:
    models = () if score is None else (ModelFacts(model_id="m-1", top_scores={"tumour": score} if score else {}),)
    facts: dict[str, object] = {"size_wh_px0": (10, 10), "mpp0": 0.5, "models": models, **more}
    return SlideFacts(slide_id=slide_id, stamp="s", **facts)  # type: ignore[arg-type]


@pytest.fixture
def table() -> SlideTable:
    """Table of six slides of three cases; nothing is known of "f" yet."""
    table = SlideTable()
    table.set_names(list("abcdef"))
    facts = (
        facts_of("a", 0.9, verdict="ok"),
        facts_of("b", 0.2, verdict="review", size_wh_px0=(50, 10)),
        facts_of("c", 0.0),
        facts_of("d", 0.9, scanner="GT450", models=(ModelFacts(model_id="m-2", top_scores={"stroma": 0.6}),)),
        SlideFacts(slide_id="e", stamp="s", note="damaged"),
    )
    rows = [("a", "P-1"), ("b", "P-2"), ("c", "P-1"), ("d", None)]
    cohort = tuple(CohortFacts(slide_id=slide_id, case_id=case, site="north") for slide_id, case in rows)
    table.put(Batch(facts=facts, cohort_begins=True, cohort=cohort))
    table.set_studies([("a", "trial", "done"), ("b", "trial", "pending")])
    return table


def slides_matching(table: SlideTable, **wanted: object) -> str:
    query = Wanted(**wanted)  # type: ignore[arg-type]
    slides = "".join(listed.slide_id for listed in table.find(query, skip=0, limit=50))
    assert table.count(query) == len(slides)
    return slides


@pytest.mark.parametrize(
    ("wanted", "slides"),
    [
        ({}, "abcdef"),
        ({"is_reversed": True}, "fedcba"),
        ({"words": ["a"]}, "a"),
        ({"sort": "score"}, "adbcef"),
        ({"sort": "score", "is_reversed": True}, "bdacef"),
        ({"sort": "score", "model_id": "m-2"}, "dabcef"),
        ({"sort": "size", "words": []}, "bacdef"),
        ({"only_predicted": True}, "abcdef"),
        ({"only_predicted": True, "words": ["m-2"]}, "d"),
        ({"min_score": 0.6}, "ad"),
        ({"min_score": 0.6, "model_id": "m-1", "class_name": "tumour"}, "a"),
        ({"state": "done"}, "a"),
        ({"state": "opened", "readings": {"c": "opened"}, "reading_words": ("unread", "opened")}, "c"),
        ({"state": "unread", "readings": {"c": "opened"}, "reading_words": ("unread", "opened")}, "abdef"),
        ({"sort": "state", "readings": {"c": "opened"}, "reading_words": ("unread", "opened")}, "abdefc"),
        ({"quality": "review"}, "b"),
        ({"quality": ""}, "cde"),
        ({"site": "north", "scanner": "GT450"}, "d"),
        ({"case_id": "P-1"}, "ac"),
        ({"sort": "case"}, "acbdef"),
    ],
)
def test_slides_are_found_and_sorted_and_what_is_not_known_comes_last(
    table: SlideTable, wanted: dict[str, object], slides: str
) -> None:
    assert slides_matching(table, **wanted) == slides


def test_slide_level_models_are_searched_only_where_nothing_is_hidden(table: SlideTable) -> None:
    """Their answer for a slide may rest on another one, which the person may not see."""
    table.put(Batch(facts=(facts_of("a", 0.9, slide_models=("patients-1",)), facts_of("b", slide_models=("only-1",)))))

    assert slides_matching(table, only_predicted=True, words=["patients"]) == "a"
    assert slides_matching(table, only_predicted=True, words=["only"]) == "b"
    for hidden in ({"predicted": "abc"}, {"only": frozenset("abc")}):
        assert slides_matching(table, only_predicted=True, words=["patients"], **hidden) == ""
        assert slides_matching(table, only_predicted=True, words=["m-1"], **hidden) == "ac"


def test_classes_of_a_slide_level_model_sort_and_filter_where_it_is_named_and_nothing_is_hidden(
    table: SlideTable,
) -> None:
    answers = {
        name: (AnswerFacts(model_id="patients-1", text="", scores={"tumour: yes": score, "tumour: no": 1 - score}),)
        for name, score in (("a", 0.1), ("b", 0.8), ("c", 0.6))
    }
    table.put(Batch(facts=tuple(facts_of(name, 0.5, answers=own) for name, own in answers.items())))
    asked = {"model_id": "patients-1", "class_name": "tumour: yes"}

    assert slides_matching(table, sort="score", **asked) == "bcadef"
    assert slides_matching(table, min_score=0.6, **asked) == "bc"
    assert slides_matching(table, min_score=0.6) == "d", "a probability is no score of a hotspot"
    assert ("patients-1", "tumour: yes") in table.scored()
    for hidden in ({"predicted": "abcdef"}, {"only": frozenset("abcdef")}):
        assert slides_matching(table, min_score=0.1, **asked, **hidden) == ""
        assert not any(model_id == "patients-1" for model_id, _ in table.scored(**hidden))


def test_of_hidden_slides_neither_scores_nor_models_nor_labels_count(table: SlideTable) -> None:
    table.put(Batch(cohort=(CohortFacts(slide_id="a", label="tumour"), CohortFacts(slide_id="b", label="normal"))))
    assert slides_matching(table, sort="label") == "bacdef"

    assert slides_matching(table, sort="label", labelled="acdef") == "abcdef"
    assert slides_matching(table, sort="score", predicted="bcdef") == "dbacef"
    assert slides_matching(table, min_score=0.1, predicted="bcdef") == "bd"
    assert slides_matching(table, only_predicted=True, words=["m-1"], predicted="cdef") == "c"
    assert table.scored("abcef") == [("m-1", "tumour")]
    (listed, *_) = table.find(Wanted(labelled="bcdef"), skip=0, limit=1)
    assert listed.cohort.label is None
    assert [case.score for case in table.find_cases(Wanted(predicted="cef"), skip=0, limit=9)] == [None] * 6


@pytest.mark.parametrize("sort", sorted(SORTS))
@pytest.mark.parametrize("is_reversed", [False, True])
def test_whatever_is_sorted_by_no_slide_is_left_out_or_shown_twice(
    table: SlideTable, sort: str, is_reversed: bool
) -> None:
    wanted = Wanted(sort=sort, is_reversed=is_reversed)
    pages = [table.find(wanted, skip=skip, limit=2) for skip in (0, 2, 4)]
    assert sorted(listed.slide_id for page in pages for listed in page) == list("abcdef")


def test_cases_are_one_after_the_other_and_a_slide_without_one_is_its_own(table: SlideTable) -> None:
    wanted = Wanted(sort="score")
    cases = table.find_cases(wanted, skip=0, limit=10)

    assert [(case.case_id, case.slides, case.score) for case in cases] == [
        ("P-1", 2, 0.9), (None, 1, 0.6), ("P-2", 1, 0.2), (None, 1, None), (None, 1, None),
    ]  # fmt: skip
    assert table.count_cases(wanted) == 5
    assert table.count_cases(replace(wanted, min_score=0.9)) == 1


def test_what_can_be_chosen_is_what_there_is(table: SlideTable) -> None:
    assert table.scored() == [("m-1", "tumour"), ("m-2", "stroma")]
    assert [table.choices(what) for what in ("site", "scanner", "quality", "study state")] == [
        ["north"], ["GT450"], ["ok", "review"], ["done", "pending"],
    ]  # fmt: skip
    assert (table.has("case_id"), table.has("label")) == (True, False)
    assert table.num_unread == 1
    table.set_names(["f"])
    assert (len(table), table.num_unread, table.scored()) == (1, 1, [])


@pytest.mark.parametrize(
    ("change", "wanted", "after"),
    [
        (lambda table: table.set_names("abc"), {}, "abc"),
        (lambda table: table.put(Batch(facts=(facts_of("f", 0.7),))), {"min_score": 0.6}, "adf"),
        (lambda table: table.set_studies([("c", "trial", "done")]), {"state": "done"}, "c"),
        (lambda table: table.put(Batch(cohort=(CohortFacts(slide_id="f", site="east"),))), {"site": "east"}, "f"),
    ],
)
def test_what_was_asked_before_is_asked_again_only_once_something_has_changed(
    table: SlideTable, change: Callable[[SlideTable], None], wanted: dict[str, object], after: str
) -> None:
    statements: list[str] = []
    before = slides_matching(table, **wanted)
    table._connection.set_trace_callback(statements.append)
    assert (slides_matching(table, **wanted), statements) == (before, [])

    change(table)

    assert slides_matching(table, **wanted) == after != before


@pytest.fixture
def index(copied: Project) -> Iterator[SlideIndex]:
    index = SlideIndex(SlideCache(copied))
    yield index
    index.close()


def test_a_small_project_is_known_at_once_and_what_changes_in_it_is_seen(index: SlideIndex, copied: Project) -> None:
    index.look(wait_s=LONG_S)

    (listed,) = index.table.find(Wanted(), skip=0, limit=1)
    assert index.is_swept
    assert listed.facts == read_facts(SlideCache(copied), SLIDE_ID)
    assert listed.facts.top_score(MODEL_ID, "positive") == pytest.approx(0.97, abs=1e-3)
    (copied.result_dir(SLIDE_ID, MODEL_ID) / "hotspots.json").write_text('{"threshold": 0.5, "hotspots": []}')
    assert index.facts(listed).models[0].top_scores == {}
    assert index.table.find(Wanted(min_score=0.1), skip=0, limit=1) == []


def test_slides_of_slide_level_models_have_predictions_too(index: SlideIndex, copied: Project) -> None:
    shutil.rmtree(copied.store_path(SLIDE_ID) / "predictions")
    index.look(wait_s=LONG_S)
    (listed,) = index.table.find(Wanted(), skip=0, limit=1)
    assert index.table.find(Wanted(only_predicted=True), skip=0, limit=9) == []

    write_small_attention(copied)

    assert index.facts(listed).model_ids == (SLIDE_MODEL,), "a change of the store"
    (found,) = index.table.find(Wanted(only_predicted=True, words=["abmil"]), skip=0, limit=9)
    assert found.slide_id == SLIDE_ID
    assert index.table.find(Wanted(only_predicted=True, words=["abmil"], predicted=[]), skip=0, limit=9) == [], "hidden"
    assert found.facts is not None
    assert [answer.text for answer in found.facts.answers] == [
        "grade (WHO): high 0.88; Größe mm: 12.25; survival: higher risk; relapse: lower risk"
    ]
    hidden = without_predictions(found.facts, "hidden")
    assert (hidden.model_ids, hidden.answers) == ((), ())
    (copied.result_dir(SLIDE_ID, SLIDE_MODEL) / "slide_prediction.json").write_text("{")
    unreadable = index.facts(found)
    assert (unreadable.answers, unreadable.note) == ((), "A slide-level prediction cannot be read.")


def test_a_slide_that_comes_or_goes_is_listed_at_once(index: SlideIndex, copied: Project) -> None:
    index.look(wait_s=LONG_S)
    copied.store_path(SLIDE_ID).rename(copied.store_path("S-002"))
    index.look()
    assert [listed.slide_id for listed in index.table.find(Wanted(), skip=0, limit=9)] == ["S-002"]


def sweep(project: Project) -> list[SlideFacts]:
    """Facts reported by a newly started process."""
    return [facts for line in Sweeper(project).sweep() for facts in Batch.model_validate_json(line).facts]


def test_the_second_start_reads_no_slide_that_has_not_changed(copied: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    before = sweep(copied)
    monkeypatch.setattr("pathology_app.slides.index.sweep.read_facts", lambda *_: pytest.fail("a slide was read"))

    assert sweep(copied) == before


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[:-20],
        lambda text: text.replace("1800", "1801"),
        lambda _: "",
        lambda _: "[" * 100_000,
        lambda text: re.sub(r'"version": (\d+)', lambda found: f'"version": {int(found[1]) + 1}', text, count=1),
        lambda _: json.dumps({"kind": "gemslide slide index"}) + "\n{}",
    ],
    ids=["cut", "altered", "empty", "deep", "of another version", "without a hash"],
)
def test_a_damaged_cache_is_made_again(copied: Project, damage: object) -> None:
    before = sweep(copied)
    path = copied.cache_dir / FILE
    path.write_text(damage(path.read_text()))  # type: ignore[operator]

    assert load_facts(copied) == {}
    assert sweep(copied) == before
    assert list(load_facts(copied)) == [SLIDE_ID]


def forge(project: Project, **changes: object) -> None:
    """Write a cache with a correct hash, as anyone with write access to the project could."""
    from pathology_app.slides.index.cache_file import save_facts

    (kept,) = load_facts(project).values()
    save_facts(project, [json.dumps(json.loads(kept.line) | changes).encode()])


@pytest.mark.parametrize(
    "changes",
    [
        {"slide_id": "../x"},
        {"models": [{"model_id": "m", "top_scores": {"tumour": 7.0}}]},
        {"size_wh_px0": [10**30, 1]},
        {"damaged_tiles": 10**25},
        {"note": "x" * 10**6},
        {"more": 1},
    ],
)
def test_a_forged_cache_with_values_that_cannot_be_is_made_again(copied: Project, changes: dict[str, object]) -> None:
    before = sweep(copied)
    forge(copied, **changes)

    facts = sweep(copied)
    assert facts == before
    table = SlideTable()
    table.set_names([SLIDE_ID])
    table.put(Batch(facts=tuple(facts)))


def test_facts_of_other_files_than_those_that_are_there_do_not_count(copied: Project) -> None:
    before = sweep(copied)
    forge(copied, stamp="0" * 20, mpp0=9.0)
    assert sweep(copied) == before


def test_a_project_that_cannot_be_written_to_is_read_all_the_same(copied: Project) -> None:
    copied.cache_dir.write_text("a file where the folder should be")  # root may write to any folder
    assert [facts.slide_id for facts in sweep(copied)] == [SLIDE_ID]
    copied.cache_dir.unlink()

    elsewhere = copied.root / "elsewhere"
    elsewhere.mkdir()
    copied.cache_dir.symlink_to(elsewhere)
    assert [facts.slide_id for facts in sweep(copied)] == [SLIDE_ID]
    assert not list(elsewhere.iterdir())


def test_the_manifest_says_cases_and_sites_and_a_bad_one_is_one_note(copied: Project) -> None:
    manifest = copied.root / "cohort.csv"
    manifest.write_text(f"path,slide_id,patient_id,site,label\nx.svs,{SLIDE_ID},P-1,north,tumour\n")
    sweeper, table = Sweeper(copied), SlideTable()
    table.set_names([SLIDE_ID])

    def look() -> None:
        for line in sweeper.sweep():
            table.put(Batch.model_validate_json(line))

    look()
    (listed,) = table.find(Wanted(case_id="P-1", site="north"), skip=0, limit=1)
    assert (listed.cohort.label, table.cohort_note) == ("tumour", "")
    manifest.write_text("path,nothing\n")
    look()
    assert "unknown column `nothing`" in table.cohort_note
    assert str(copied.root) not in table.cohort_note
    assert not table.has("case_id")


def test_a_large_project_is_read_by_a_process_of_its_own_that_ends_with_the_index(
    project: Project, tmp_path: Path
) -> None:
    make_many_slides(project, tmp_path, MANY + 1)
    (tmp_path / "slides" / "many-00003.ome.zarr" / "zarr.json").unlink()
    index = SlideIndex(SlideCache(Project(tmp_path)))
    index.look(wait_s=LONG_S)
    assert len(index.table) == MANY + 1

    assert index._swept.wait(LONG_S)
    process = index._process
    assert process is not None
    (bad,) = index.table.find(Wanted(words=["00003"]), skip=0, limit=1)
    assert bad.facts is not None
    assert "has no zarr.json" in bad.facts.note
    assert index.table.num_unread == 0
    index.close()
    assert process.returncode is not None
    assert process.stdin is not None
    assert process.stdout is not None
    assert (process.stdin.closed, process.stdout.closed) == (True, True)


def test_a_folder_whose_name_is_no_slides_is_a_row_that_says_so(copied: Project) -> None:
    shutil.copytree(copied.store_path(SLIDE_ID), copied.slides_dir / "![x](y)<b>.ome.zarr")
    facts = read_facts(SlideCache(copied), "![x](y)<b>")
    assert "Use another name." in facts.note
    assert facts.version is None
    table = SlideTable()
    table.set_names(copied.slide_ids())
    table.put(Batch(facts=(facts,)))
    assert [listed.slide_id for listed in table.find(Wanted(), skip=0, limit=9)] == ["![x](y)<b>", SLIDE_ID]


@pytest.mark.parametrize("name", ["![x](y)<b>", "\udcff"], ids=["Markdown", "no UTF-8"])
def test_a_folder_whose_name_is_no_slides_does_not_end_a_sweep(copied: Project, index: SlideIndex, name: str) -> None:
    shutil.copytree(copied.store_path(SLIDE_ID), copied.slides_dir / f"{name}.ome.zarr")
    index.look(wait_s=LONG_S)
    assert (index.is_swept, index.table.num_unread) == (True, 0)
    notes = [index.facts(listed).note for listed in index.table.find(Wanted(), skip=0, limit=9)]
    assert sorted("Use another name." in note for note in notes) == [False, True]
