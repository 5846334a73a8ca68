"""Files that a study leaves on disk match the ledger: outputs, reports, signatures."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pipeline.errors import ReliedOnError
from pipeline.files import sha256_of
from pipeline.ledger.database import Database
from pipeline.ledger.ledger import Ledger
from pipeline.study.proof.verify import verify_ledger, verify_log
from pipeline.study.protocol import study_dir
from pipeline.study.report.publish import write_report
from pipeline.study.work.relied_on import refuse_to_replace
from pipeline.study.work.study import begin_study, open_study, work_on
from tests.attacks import audited_project as audited
from tests.attacks.audited_project import Audited, make_audited
from tests.small_trained_project import sha256_by_file
from training.foundation.publish import new_folder

pytestmark = pytest.mark.xdist_group("audited")


@pytest.fixture(scope="module")
def whole(small_project, tmp_path_factory) -> Audited:
    return make_audited(tmp_path_factory.mktemp("audited"), small_project)


@pytest.fixture
def study(whole: Audited, tmp_path: Path) -> Audited:
    return whole.copy(tmp_path / "copy")


@pytest.mark.parametrize("what", audited.OUTPUTS)
def test_an_output_that_is_not_the_ledgers_is_found(study: Audited, what: str) -> None:
    audited.OUTPUTS[what](study)
    assert study.outputs_changed()


@pytest.mark.parametrize("what", audited.REPORTS)
def test_a_report_that_is_not_the_logs_is_found(study: Audited, what: str) -> None:
    audited.REPORTS[what](study)
    assert study.reports_changed()


def test_what_a_run_left_behind_is_told_from_what_one_is_writing(study: Audited) -> None:
    with new_folder(study.folder / "reports" / "000000099"):
        assert study.reports_changed() == []
    shutil.rmtree(study.folder / "reports" / "000000099")
    (study.folder / "reports" / ".000000099.partial").mkdir()
    (finding,) = study.reports_changed()
    assert finding.startswith("reports/.000000099.partial: a run that did not end left this behind")


@pytest.mark.parametrize("what", audited.SIGNATURES)
def test_a_signature_that_is_not_the_logs_is_found_without_anchors_or_keys(study: Audited, what: str) -> None:
    audited.SIGNATURES[what](study)
    assert study.signatures_changed()


KEYS = ("slide_id", "seq")
CELLS = [
    f"UPDATE {table} SET {column} = {value}" + (" WHERE rowid = 2" if column in KEYS else "")
    for table, columns in {
        "study": ("protocol", "protocol_sha256", "audit_seq"),
        "slide": ("slide_id", "site"),
        "task": ("slide_id", "stage", "measures", "output_sha256", "attempts"),
        "audit": ("seq", "action", "subject", "why", "details"),
    }.items()
    for column in columns
    for value in ("x'ff'", "9e999", "replace(hex(zeroblob(20000)), '0', '[')")
]


@pytest.mark.parametrize("statement", CELLS)
def test_a_cell_of_any_kind_crashes_no_check_and_is_found(study: Audited, statement: str) -> None:
    with Ledger(Database(study.url)) as ledger:
        audited.behind(study, "DROP TRIGGER audit_no_update")
        audited.behind(study, statement)
        assert verify_ledger(ledger.database, audited.STUDY).findings
    for check in (study.outputs_changed, study.reports_changed, study.signatures_changed):
        check()


def test_a_report_names_the_reference_that_it_was_made_with_and_verify_finds_another(study: Audited) -> None:
    with Ledger(Database(study.url)) as ledger:
        report = write_report(open_study(study.project, audited.STUDY, ledger), actor="ada", out=study.folder / "new")
    sha256 = sha256_of(study.project.tile_table_path("reference"))
    assert f"tile set,reference,{sha256}" in (report.folder / "tables" / "hashes.csv").read_text()
    assert study.reports_changed() == []

    audited.make_reference(study.project, min_tissue=0.9)

    assert study.reports_changed() == [
        "tile set reference: its labels are the last report's reference, and it has since been replaced"
    ]


def test_a_log_rewritten_as_a_whole_verifies_in_itself(study: Audited) -> None:
    """Only the signatures reveal it."""
    audited.rewrite_log(study)
    database = Database(study.url)
    assert verify_log(database, audited.STUDY).findings == ()
    database.close()
    assert "entry" in study.signatures_changed()[0]
    assert "the log was rewritten or cut" in "\n".join(study.signatures_changed())


def test_what_a_study_relies_on_is_not_replaced_by_another_run(study: Audited, gemslide) -> None:
    root = study.project.root
    before = sha256_by_file(root)
    settings = root / "gemslide.toml"
    settings.write_text(settings.read_text() + "[infer]\nmin_tissue = 0.01\n[qc]\ncell_um = 128\n")
    for verb in (("infer", study.model_id, "a"), ("qc", "a")):
        done = gemslide(*verb, "--project", root)
        assert done.code == 1
        assert "study s relies on its output of " in done.err
        assert "gemslide study amend s" in done.err
    done = gemslide("tissue", "a", "--set", "min_delta_e=40", "--project", root)
    assert (done.code, "relies on its output of ingest" in done.err) == (1, True)
    done = gemslide("ingest", root.parent / "b.tiff", "--slide-id", "a", "--project", root)
    assert (done.code, "relies on its output of ingest" in done.err) == (1, True)
    after = sha256_by_file(root)
    changed = {name for name in before if after.get(name) != before[name] and not name.startswith("gemslide.")}
    assert changed == set(), "nothing was replaced, removed or rewritten"
    assert study.outputs_changed() == []


def test_a_finished_output_is_kept_with_the_files_beside_it(study: Audited, gemslide) -> None:
    settings = study.project.root / "gemslide.toml"
    settings.write_text(settings.read_text() + "[infer]\nthreshold = 0.9\n")
    done = gemslide("infer", study.model_id, "a", "--project", study.project.root)
    assert done.code == 0
    assert "kept: study s relies on it" in done.out + done.err
    assert study.outputs_changed() == []


def test_an_output_that_is_gone_is_made_again_and_is_the_same(study: Audited, gemslide) -> None:
    audited.OUTPUTS["predictions are deleted"](study)
    audited.OUTPUTS["results are deleted"](study)
    assert gemslide("infer", study.model_id, "a", "--project", study.project.root).code == 0
    assert [output for output in study.outputs_changed() if "slide a" in output] == []


def test_a_second_study_with_other_settings_does_not_replace_the_first_ones_outputs(study: Audited) -> None:
    second = study_dir(study.project, "t")
    second.mkdir()
    protocol = (study.folder / "study.toml").read_text() + "\n[infer]\nthreshold = 0.9\n"
    (second / "study.toml").write_text(protocol)
    with Ledger(Database(study.url)) as ledger:
        work_on(begin_study(study.project, "t", ledger, actor="ada"))
        assert {row.code for row in ledger.slides("t")} == {"relied_on"}
    assert study.outputs_changed() == []


def test_verify_says_what_is_wrong_with_files_and_what_it_costs_to_be_sure(study: Audited, gemslide) -> None:
    verify = ("study", "verify", "s", "--project", study.project.root)
    done = gemslide(*verify, "--pixels", "--trust", study.keys / "ada.pub", "--trust", study.keys / "bob.pub")
    assert (done.code, done.err) == (0, "")
    audited.OUTPUTS["one tile is predicted otherwise"](study)
    audited.REPORTS["a table is edited"](study)
    audited.SIGNATURES["a signature is taken out"](study)
    done = gemslide(*verify)
    assert done.code == 1
    assert f"changed: slide a, infer {study.model_id}: its output does not match the ledger" in done.err
    assert "reports/000000001/tables/endpoints.csv: was changed after the report was made" in done.err
    assert "Bob signed it" in done.err


def test_a_part_of_an_output_that_a_study_relies_on_is_not_replaced(study: Audited) -> None:
    with pytest.raises(ReliedOnError, match="study s relies on its output of ingest"):
        refuse_to_replace(study.project, "a", "ingest")
    refuse_to_replace(study.project, "another", "ingest")
