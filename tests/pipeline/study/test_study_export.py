"""An export names nobody: keyed pseudonyms in every table, and values that the scan cannot judge are withheld."""

from __future__ import annotations

import csv
import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pydicom
import pytest
import tifffile
from PIL import Image, PngImagePlugin
from sqlalchemy import text

from pipeline.errors import BadManifestError, ChangedSourceError, DamagedStoreError, LeakageError
from pipeline.files import sha256_of
from pipeline.ledger.chain import canonical, digest
from pipeline.ledger.ledger import Ledger
from pipeline.study.privacy.export import export_study
from pipeline.study.privacy.keyed import open_pseudonym_key
from pipeline.study.privacy.scan import find_identifiers
from pipeline.study.work.leases import Ended
from pipeline.study.work.study import Study
from tests.pipeline.study.test_study_report import MODEL, begun, protocol, read_all
from tests.pipeline.study.test_study_report import _ended as plainly_ended
from training.foundation.errors import UnreadableError

NAME = "Mustermann"
RESULT = "slide_id,minx,miny,prob_tumour\n{},0,0,0.5\n"
on_sqlite = pytest.mark.parametrize("url", ["sqlite"], indirect=True)


@pytest.fixture
def results(request: pytest.FixtureRequest) -> Callable[[str], bytes]:
    """Result file of each slide in the study; a test may set other contents for S-07."""
    of_one = getattr(request, "param", None)
    return lambda slide_id: of_one if of_one and slide_id == "S-07" else RESULT.format(slide_id).encode()


@pytest.fixture
def study(ledger: Ledger, results: Callable[[str], bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Study:
    """Study with the hash of each slide's results in the ledger."""

    def ended(slide_id: str, stage: str) -> Ended:
        plain = plainly_ended(slide_id, stage)
        if stage != f"infer {MODEL}":
            return plain
        files = {"predictions.csv": hashlib.sha256(results(slide_id)).hexdigest()}
        return replace(plain, measures=canonical(json.loads(plain.measures or "{}") | {"files": files}))

    monkeypatch.setattr("tests.pipeline.study.test_study_report._ended", ended)
    made = begun(ledger, tmp_path / "p", protocol())
    for row in ledger.slides("s", state="done"):
        folder = made.project.result_dir(row.slide_id, MODEL)
        folder.mkdir(parents=True)
        (folder / "predictions.csv").write_bytes(results(row.slide_id))
    return made


def everything_in(folder: Path) -> str:
    return "\n".join(f"{path}\n{path.read_text()}" for path in sorted(folder.rglob("*")) if path.is_file())


@on_sqlite
def test_an_export_holds_pseudonyms_alone_and_they_are_the_key_s(study, tmp_path):
    read_all(study)
    key = open_pseudonym_key(tmp_path / "secret" / "key")
    done = export_study(study, tmp_path / "out", key, results=["predictions.csv"], actor="ada")
    text = everything_in(done.folder).replace(str(tmp_path), "")
    for name in ("S-00", "P-3", "r-1", "cohort.csv", "script", ".svs"):
        assert name not in text
    slides = list(csv.DictReader((done.folder / "slides.csv").read_text().splitlines()))
    assert {row["slide_id"] for row in slides} >= {key.pseudonym("slide", "S-00"), key.pseudonym("slide", "S-29")}
    assert len({row["patient"] for row in slides}) == 18
    pseudonym = key.pseudonym("slide", "S-07")
    predictions = (done.folder / MODEL / pseudonym / "predictions.csv").read_text()
    assert predictions == f"slide_id,minx,miny,prob_tumour\n{pseudonym},0,0,0.5\n"
    answers = (done.folder / "answers.csv").read_text()
    assert key.pseudonym("reader", "r-1") in answers
    [*_, entry] = study.ledger.history("s", "study")
    hashes = {p.relative_to(done.folder).as_posix(): sha256_of(p) for p in done.folder.rglob("*") if p.is_file()}
    assert entry.action == "study exported"
    assert json.loads(entry.details) == {"files": len(hashes), "sha256": digest(hashes), "key_id": key.key_id}


@on_sqlite
@pytest.mark.parametrize(
    ("results", "says"),
    [
        (b"a,b\nS-08.svs,1\n", r"predictions\.csv: names a slide, patient, site, reader or file"),
        (b"slide_id\n\xff\n", r"predictions\.csv: cannot be read as a table"),
    ],
    indirect=["results"],
)
def test_a_result_that_names_somebody_is_never_let_out(study, tmp_path, says):
    key = open_pseudonym_key(tmp_path / "key")
    with pytest.raises(LeakageError, match=says):
        export_study(study, tmp_path / "out", key, results=["predictions.csv"], actor="ada")
    assert not (tmp_path / "out").exists()
    with pytest.raises(BadManifestError, match="no such result"):
        export_study(study, tmp_path / "out", key, results=["../S-08/predictions.csv"], actor="ada")
    assert [path.name for path in tmp_path.iterdir() if "out" in path.name] == []


@on_sqlite
def test_a_result_that_the_study_did_not_leave_as_it_is_is_never_let_out(study, tmp_path):
    key = open_pseudonym_key(tmp_path / "key")
    folder = study.project.result_dir("S-07", MODEL)
    folder.joinpath("more.csv").write_text("x\n1\n")
    folder.joinpath("predictions.csv").write_text(RESULT.format("S-07").replace("0.5", "0.1"))
    with pytest.raises(ChangedSourceError, match="is not what the study wrote"):
        export_study(study, tmp_path / "out", key, results=["predictions.csv"], actor="ada")
    for result_dir in study.project.results_dir.glob("*/*"):
        result_dir.joinpath("more.csv").write_text("x\n1\n")
    with pytest.raises(ChangedSourceError, match="the ledger has no hash of it"):
        export_study(study, tmp_path / "out", key, results=["more.csv"], actor="ada")
    assert not (tmp_path / "out").exists()


@on_sqlite
def test_nothing_is_exported_while_the_log_does_not_verify(study, tmp_path):
    with study.ledger.database.write() as connection:
        connection.execute(text("UPDATE task SET seconds = 1 WHERE slide_id = 'S-07'"))
    with pytest.raises(DamagedStoreError, match=r"task S-07/.* was changed .*Nothing is exported"):
        export_study(study, tmp_path / "out", open_pseudonym_key(tmp_path / "key"), results=[], actor="ada")
    assert not (tmp_path / "out").exists()


def test_the_key_is_its_owner_s_alone_and_lies_in_no_project(tmp_path):
    path = tmp_path / "key"
    key = open_pseudonym_key(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert open_pseudonym_key(path) == key
    assert open_pseudonym_key(tmp_path / "other").pseudonym("slide", "a") != key.pseudonym("slide", "a")
    assert key.pseudonym("slide", "a") != key.pseudonym("patient", "a")
    path.write_text("no key")
    with pytest.raises(UnreadableError, match="is not a pseudonym key"):
        open_pseudonym_key(path)
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "gemslide.toml").write_text("")
    with pytest.raises(BadManifestError, match="must not be inside the project"):
        open_pseudonym_key(tmp_path / "p" / "key")


def text_file(folder: Path, text: str) -> None:
    (folder / "x.csv").write_text(text)


def tiff(folder: Path, description: str = "") -> None:
    metadata = {"metadata": None} if description else {}
    tifffile.imwrite(folder / "x.tiff", np.zeros((8, 9), np.uint8), description=description or None, **metadata)


def png(folder: Path, text: str = "") -> None:
    info = PngImagePlugin.PngInfo()
    if text:
        info.add_text("Comment", text)
    Image.new("L", (4, 3)).save(folder / "x.png", pnginfo=info)


def dicom(folder: Path, **values: str) -> None:
    dataset = pydicom.Dataset()
    dataset.file_meta = pydicom.dataset.FileMetaDataset()
    dataset.file_meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
    dataset.SOPClassUID = dataset.SOPInstanceUID = "1.2.3"
    for keyword, value in values.items():
        setattr(dataset, keyword, value)
    pydicom.dcmwrite(folder / "x.dcm", dataset, enforce_file_format=True)


def private(folder: Path) -> None:
    dicom(folder)
    dataset = pydicom.dcmread(folder / "x.dcm")
    dataset.add_new(0x00091001, "LO", "something")
    pydicom.dcmwrite(folder / "x.dcm", dataset, enforce_file_format=True)


@pytest.mark.parametrize(
    "write",
    [
        lambda f: text_file(f, f"a,{NAME},b"),
        lambda f: text_file(f, f"/slides/{NAME.upper()}.svs"),
        lambda f: text_file(f, f"scan_{NAME.lower()}_2.tiff"),
        lambda f: text_file(f, "said by Jane  Roe: jane roe"),
        lambda f: (f / "x.csv").write_bytes(b"\xff\xfe"),
        lambda f: (f / f"{NAME}.csv").write_text(""),
        lambda f: (f / "x.pickle").write_bytes(b""),
        lambda f: (f / "x.csv").symlink_to("/etc/passwd"),
        lambda f: tiff(f, "a slide label"),
        lambda f: tiff(f, f"<OME><Image Name='{NAME}'/></OME>"),
        lambda f: (f / "x.tiff").write_bytes(b"II*\0"),
        lambda f: png(f, "x"),
        lambda f: (f / "x.png").write_bytes(b"no picture"),
        lambda f: dicom(f, PatientName="Roe^Jane"),
        lambda f: dicom(f, StudyDate="20260101"),
        lambda f: dicom(f, SeriesDescription=f"of {NAME}"),
        lambda f: dicom(f, InstitutionName="x"),
        private,
        lambda f: (f / "x.dcm").write_bytes(b"no DICOM"),
    ],
)
def test_what_names_somebody_or_cannot_be_judged_is_found(tmp_path, write):
    write(tmp_path)
    findings = find_identifiers(tmp_path, {NAME, "Jane Roe", "A", "17"})
    assert len(findings) >= 1
    assert NAME not in "".join(findings).replace(f"{NAME}.csv", "")


def test_our_own_kinds_of_files_pass(tmp_path):
    text_file(tmp_path, "slide,score\nslide-abc,0.17\nA,17\n")
    tiff(tmp_path)
    png(tmp_path)
    dicom(tmp_path, PatientName="", SeriesDescription="tumour")
    shutil.copy(tmp_path / "x.csv", tmp_path / "y.json")
    assert find_identifiers(tmp_path, {NAME, "Jane Roe", "A", "17"}) == []
