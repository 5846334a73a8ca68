"""An export names nobody: pseudonyms by key in every table, and whatever the scan cannot judge stays in."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pydicom
import pytest
import tifffile
from PIL import Image, PngImagePlugin

from pipeline.errors import BadManifestError, LeakageError, UnreadableError
from pipeline.files import sha256_of
from pipeline.study.chain import digest
from pipeline.study.ledger import Ledger
from pipeline.study.privacy.export import export_study
from pipeline.study.privacy.keyed import open_pseudonym_key
from pipeline.study.privacy.scan import find_identifiers
from pipeline.study.study import Study
from tests.pipeline.study.test_study_report import MODEL, begun, protocol, read_all

NAME = "Mustermann"
on_sqlite = pytest.mark.parametrize("url", ["sqlite"], indirect=True)


@pytest.fixture
def study(ledger: Ledger, tmp_path: Path) -> Study:
    made = begun(ledger, tmp_path / "p", protocol())
    for row in ledger.slides("s", state="done"):
        folder = made.project.result_dir(row.slide_id, MODEL)
        folder.mkdir(parents=True)
        (folder / "predictions.csv").write_text(f"slide_id,minx,miny,prob_tumour\n{folder.name},0,0,0.5\n")
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
def test_a_result_that_names_somebody_is_never_let_out(study, tmp_path):
    key = open_pseudonym_key(tmp_path / "key")
    (study.project.result_dir("S-07", MODEL) / "predictions.csv").write_text("a,b\nS-08.svs,1\n")
    with pytest.raises(LeakageError, match=r"predictions\.csv: names a slide, patient, site, reader or file"):
        export_study(study, tmp_path / "out", key, results=["predictions.csv"], actor="ada")
    assert not (tmp_path / "out").exists()
    (study.project.result_dir("S-07", MODEL) / "predictions.csv").write_bytes(b"slide_id\n\xff\n")
    with pytest.raises(LeakageError, match=r"predictions\.csv: cannot be read as a table"):
        export_study(study, tmp_path / "out", key, results=["predictions.csv"], actor="ada")
    with pytest.raises(BadManifestError, match="no such result"):
        export_study(study, tmp_path / "out", key, results=["../S-08/predictions.csv"], actor="ada")
    assert [path.name for path in tmp_path.iterdir() if "out" in path.name] == []


def test_the_key_is_its_owner_s_alone_and_lies_in_no_project(tmp_path):
    path = tmp_path / "key"
    key = open_pseudonym_key(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert open_pseudonym_key(path) == key
    assert open_pseudonym_key(tmp_path / "other").pseudonym("slide", "a") != key.pseudonym("slide", "a")
    assert key.pseudonym("slide", "a") != key.pseudonym("patient", "a")
    path.write_text("no key")
    with pytest.raises(UnreadableError, match="is no key of pseudonyms"):
        open_pseudonym_key(path)
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "gemslide.toml").write_text("")
    with pytest.raises(BadManifestError, match="must not lie inside the project"):
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
