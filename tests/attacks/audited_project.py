"""A real study that is finished, signed and reported, and every way to tamper with it.

Each tampering changes a copy of the project; `study verify` must then report a finding.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import select, text, update

from pipeline.cohort.manifest import load_cohort
from pipeline.files import sha256_of
from pipeline.ledger.chain import FIRST, Change, append, digest, utc_now
from pipeline.ledger.database import Database
from pipeline.ledger.ledger import Ledger
from pipeline.ledger.rows import REPORT_MADE, SIGNED, row_sha256
from pipeline.ledger.tables import audit, study
from pipeline.project import Project
from pipeline.store.layers.overlays import read_predictions, write_predictions
from pipeline.store.layers.qc_scores import QUALITY
from pipeline.study.proof.outputs import find_changed_outputs
from pipeline.study.proof.reports import find_changed_reports, hashes_in, tile_set_sha256
from pipeline.study.proof.sign_off import SignedReport, Signing, place_of, sign_report, signatures_file
from pipeline.study.proof.signatures import find_false_signatures
from pipeline.study.proof.signing import SigningKey, new_key, open_key, read_public_key
from pipeline.study.protocol import study_dir
from pipeline.study.work.study import begin_study, work_on
from pipeline.tiles.tile import make_tile_table
from tests.pipeline.study.whole_ledger import behind_its_back
from tests.small_trained_project import TILES, TISSUE_TOML, SmallProject, make_slide

STUDY, WORDS = "s", "correct horse battery"
SLIDES = ("a", "b")
PROTOCOL = """
[study]
title = "t"
question = "?"
cohort = "{cohort}"
[[models]]
id = "{model}"
sha256 = "{sha256}"
config_sha256 = "{config_sha256}"
[[endpoints]]
name = "area"
measure = "auc"
model = "{model}"
at_least = 0.7
[[endpoints]]
name = "tiles"
measure = "accuracy"
level = "tile"
tile_set = "reference"
model = "{model}"
{tissue}
[[signers]]
name = "Ada"
key_id = "{ada}"
may = ["authored", "approved", "anchor"]
[[signers]]
name = "Bob"
key_id = "{bob}"
may = ["reviewed"]
"""


@dataclass(frozen=True)
class Audited:
    """A project with a finished study, and the folder of its people's keys."""

    project: Project
    keys: Path
    model_id: str

    @property
    def url(self) -> str:
        return f"sqlite:///{self.project.root}/gemslide.db"

    @property
    def folder(self) -> Path:
        return study_dir(self.project, STUDY)

    @property
    def reports(self) -> list[Path]:
        return sorted((self.folder / "reports").glob("*/report.html"))

    def store(self, slide_id: str = "a") -> Path:
        return self.project.store_path(slide_id)

    def results(self, slide_id: str = "a") -> Path:
        return self.project.result_dir(slide_id, self.model_id)

    def copy(self, to: Path) -> Audited:
        shutil.copytree(self.project.root.parent, to, symlinks=True)
        return replace(self, project=Project(to / "p"))

    def key(self, name: str) -> SigningKey:
        return open_key(self.keys / name, WORDS)

    def outputs_changed(self, *, all_pixels: bool = False) -> list[str]:
        with Ledger(Database(self.url)) as ledger:
            return find_changed_outputs(self.project, ledger, STUDY, all_pixels=all_pixels)

    def reports_changed(self) -> list[str]:
        with Ledger(Database(self.url)) as ledger:
            return find_changed_reports(ledger.database, STUDY, self.project, self.folder)

    def signatures_changed(self, *trusted: str, elsewhere: tuple[Path, ...] = ()) -> list[str]:
        keys = [read_public_key(self.keys / f"{name}.pub") for name in trusted]
        with Ledger(Database(self.url)) as ledger:
            return find_false_signatures(ledger.database, STUDY, self.project.root, self.folder, keys, elsewhere)


def make_audited(folder: Path, small_project: SmallProject) -> Audited:
    """Two slides, worked on by a real worker; two reports, the first signed by one person, the second by two."""
    keys = folder / "keys"
    keys.mkdir(parents=True)
    public = {name: new_key(keys / name, WORDS) for name in ("ada", "bob", "eve")}
    root = folder / "whole" / "p"
    shutil.copytree(small_project.project.models_dir, root / "models")
    (root / "gemslide.toml").write_text(TISSUE_TOML)
    for seed, name in enumerate(SLIDES):
        make_slide(root.parent / f"{name}.tiff", seed)
    lines = ["path,slide_id,patient_id,label", *(f"{name}.tiff,{name},patient-{name},warm" for name in SLIDES)]
    (root.parent / "cohort.csv").write_text("\n".join(lines) + "\n")
    project = Project(root)
    at = study_dir(project, STUDY)
    at.mkdir(parents=True)
    package = project.models_dir / small_project.model_id
    weights, config = (sha256_of(package / name) for name in ("model.safetensors", "config.json"))
    ids = {name: key.key_id for name, key in public.items()}
    of = {
        "cohort": "../../../cohort.csv",
        "model": small_project.model_id,
        "sha256": weights,
        "config_sha256": config,
        "tissue": TISSUE_TOML,
    }
    (at / "study.toml").write_text(PROTOCOL.format(**of, **ids))
    audited = Audited(project, keys, small_project.model_id)
    with Ledger(Database(audited.url)) as ledger:
        work_on(begin_study(project, STUDY, ledger, actor="ada"))
        make_reference(project)
        for number, signers in enumerate((("ada",), ("ada", "bob"))):
            _report(audited, ledger, number, signers)
    assert not audited.outputs_changed(all_pixels=True)
    assert not audited.reports_changed()
    assert not audited.signatures_changed("ada", "bob")
    return audited


def make_reference(project: Project, **changes: object) -> None:
    """Make the tile set whose labels an endpoint uses as ground truth."""
    cohort = load_cohort(project.root.parent / "cohort.csv")
    make_tile_table(project, "reference", TILES.model_copy(update={"label_by": "slide", **changes}), cohort=cohort)


def _report(audited: Audited, ledger: Ledger, number: int, signers: tuple[str, ...]) -> None:
    """Write a report as `write_report` does, without the slow parts: drawing and the PDF."""
    folder = audited.folder / "reports" / f"{number + 1:09d}"
    (folder / "tables").mkdir(parents=True)
    for name in ("report.html", "report.pdf", "tables/endpoints.csv"):
        (folder / name).write_text(f"{name}, number {number}\n" * 20)
    place, tile_sets = (
        place_of(folder, audited.project.root),
        {"reference": tile_set_sha256(audited.project, "reference")},
    )
    details = {"folder": place, "sha256": hashes_in(folder), "tile_sets": tile_sets}
    with ledger.database.write() as connection:
        append(connection, STUDY, [Change("ada", REPORT_MADE, "report", details=details)])
    for name in signers:
        sign_report(
            ledger, STUDY, folder / "report.html", audited.key(name),
            Signing(name.title(), "authored" if name == "ada" else "reviewed"), actor=name, root=audited.project.root,
        )  # fmt: skip


Tampering = Callable[[Audited], object]


def flip(path: Path, at: float = 0.5) -> None:
    data = bytearray(path.read_bytes())
    data[int(at * (len(data) - 1))] ^= 1
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def edit_json(path: Path, change: Callable[[Any], object]) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def other_tree(ours: Path, theirs: Path) -> None:
    shutil.rmtree(ours)
    shutil.copytree(theirs, ours)


def link_to(ours: Path, theirs: Path) -> None:
    shutil.rmtree(ours) if ours.is_dir() else ours.unlink()
    ours.symlink_to(theirs)


def largest(folder: Path, pattern: str) -> Path:
    return max((path for path in folder.rglob(pattern) if path.is_file()), key=lambda path: path.stat().st_size)


def pixels(audited: Audited) -> Path:
    return largest(audited.store() / "0" / "0" / "c", "*")


def a_tissue_chunk(audited: Audited) -> Path:
    return largest(audited.store() / "0" / "labels" / "tissue", "*")


def predictions_of(audited: Audited) -> Path:
    return audited.store() / "predictions" / audited.model_id


def predict_otherwise(audited: Audited) -> None:
    stored = read_predictions(audited.store(), audited.model_id)
    turned = np.ascontiguousarray(stored.probabilities_cyx[::-1])
    write_predictions(audited.store(), replace(stored, probabilities_cyx=turned), mpp0=0.5)


def predict_a_bit_otherwise(audited: Audited) -> None:
    stored = read_predictions(audited.store(), audited.model_id)
    values = stored.probabilities_cyx.copy()
    row, column = np.argwhere(np.isfinite(values[0]))[0]
    values[:, row, column] = [0.25, 0.75]
    write_predictions(audited.store(), replace(stored, probabilities_cyx=values), mpp0=0.5)


def other_scale(audited: Audited) -> None:
    def change(content: Any) -> None:
        content["attributes"]["gemslide"]["mpp0"] = 0.51

    path = audited.store() / "zarr.json"
    text_before = path.read_text()
    edit_json(path, change)
    assert path.read_text() != text_before


def other_verdict(audited: Audited) -> None:
    edit_json(
        audited.store() / "zarr.json",
        lambda content: content["attributes"]["gemslide"]["qc"].update(verdict="review", reasons=["blur"]),
    )


def other_label(audited: Audited) -> None:
    path = audited.project.root.parent / "cohort.csv"
    path.write_text(path.read_text().replace(",warm", ",cold", 1))


def new_checksums(audited: Audited) -> None:
    """Update the list of checksums to match a changed mask, as a careful forger would."""
    from pipeline.store.format.checksums import write_checksums

    flip(a_tissue_chunk(audited))
    sha256 = write_checksums(audited.store(), {})
    edit_json(
        audited.store() / "zarr.json",
        lambda content: content["attributes"]["gemslide"]["ingest"].update(checksums_sha256=sha256),
    )


def behind(audited: Audited, statement: str) -> None:
    with behind_its_back(Ledger(Database(audited.url))) as connection:
        connection.exec_driver_sql(statement)


OUTPUTS: dict[str, Tampering] = {
    "a store is deleted": lambda a: shutil.rmtree(a.store()),
    "a store is another slide's": lambda a: other_tree(a.store(), a.store("b")),
    "a store is a link to another slide's": lambda a: link_to(a.store(), a.store("b")),
    "pixels are changed": lambda a: flip(pixels(a)),
    "pixels are cut": lambda a: cut(pixels(a)),
    "pixels are deleted": lambda a: pixels(a).unlink(),
    "pixels are a link to another level's": lambda a: link_to(pixels(a), largest(a.store() / "0" / "1", "*")),
    "a file is added to a store": lambda a: (a.store() / "0" / "0" / "c" / "0" / "9").mkdir() or (
        a.store() / "0" / "0" / "c" / "0" / "9" / "9").write_bytes(b"x"),
    "the tissue mask is changed": lambda a: flip(a_tissue_chunk(a)),
    "the tissue mask is another slide's": lambda a: other_tree(
        a.store() / "0" / "labels" / "tissue", a.store("b") / "0" / "labels" / "tissue"),
    "the tissue mask is changed with its checksums": new_checksums,
    "the size of a pixel is changed": other_scale,
    "the verdict of quality control is changed": other_verdict,
    "quality scores are deleted": lambda a: shutil.rmtree(a.store() / QUALITY),
    "quality scores are another slide's": lambda a: other_tree(a.store() / QUALITY, a.store("b") / QUALITY),
    "quality scores are cut": lambda a: cut(largest(a.store() / QUALITY, "*")),
    "predictions are replaced": predict_otherwise,
    "one tile is predicted otherwise": predict_a_bit_otherwise,
    "predictions are deleted": lambda a: shutil.rmtree(predictions_of(a)),
    "predictions are another slide's": lambda a: other_tree(
        predictions_of(a), a.store("b") / "predictions" / a.model_id),
    "predictions say other classes": lambda a: edit_json(
        predictions_of(a) / "zarr.json", lambda c: c["attributes"]["gemslide"]["class_names"].reverse()),
    "predictions forget an oddity": lambda a: edit_json(
        predictions_of(a) / "zarr.json", lambda c: c["attributes"]["gemslide"].update(oddities={"x": "y"})),
    "results are deleted": lambda a: shutil.rmtree(a.results()),
    "a result is edited": lambda a: flip(a.results() / "predictions.csv"),
    "a result is deleted": lambda a: (a.results() / "predictions.csv").unlink(),
    "hotspots are edited": lambda a: flip(a.results() / "hotspots.json"),
    "a heatmap is another slide's": lambda a: shutil.copy(
        largest(a.results("b"), "heatmap_*"), largest(a.results(), "heatmap_*")),
    "a result is a link to another slide's": lambda a: link_to(
        a.results() / "predictions.csv", a.results("b") / "predictions.csv"),
    "a model has other weights": lambda a: flip(a.project.models_dir / a.model_id / "model.safetensors"),
    "a model's classes are exchanged": lambda a: edit_json(
        a.project.models_dir / a.model_id / "config.json",
        lambda c: (c["class_names"].reverse(), c["gemslide"]["class_order"].reverse())),
    "a model is of another spacing": lambda a: edit_json(
        a.project.models_dir / a.model_id / "config.json", lambda c: c.update(spacing_um_px=0.25)),
    "a model is gone": lambda a: shutil.rmtree(a.project.models_dir / a.model_id),
    "a label in the manifest is changed": other_label,
    "the protocol's file is edited": lambda a: (a.folder / "study.toml").write_text(
        (a.folder / "study.toml").read_text().replace("at_least = 0.7", "at_least = 0.1")),
    "the protocol's file is gone": lambda a: (a.folder / "study.toml").unlink(),
    "a task's stage is none of ours": lambda a: behind(a, "UPDATE task SET stage = 'nonsense' WHERE stage = 'qc'"),
}  # fmt: skip

REPORTS: dict[str, Tampering] = {
    "a reference is another tile set": lambda a: make_reference(a.project, min_tissue=0.9),
    "a reference is edited": lambda a: flip(a.project.tile_table_path("reference")),
    "a reference is gone": lambda a: a.project.tile_table_path("reference").unlink(),
    "a report is edited": lambda a: flip(a.reports[0]),
    "a report is cut": lambda a: cut(a.reports[0]),
    "a report is a link to another": lambda a: link_to(a.reports[1], a.reports[0]),
    "a report is deleted": lambda a: a.reports[0].unlink(),
    "a report is deleted with its folder": lambda a: shutil.rmtree(a.reports[1].parent),
    "a table is edited": lambda a: flip(a.reports[0].parent / "tables" / "endpoints.csv"),
    "a PDF is replaced": lambda a: shutil.copy(a.reports[1].with_suffix(".pdf"), a.reports[0].with_suffix(".pdf")),
    "a report is added": lambda a: shutil.copytree(a.reports[0].parent, a.folder / "reports" / "000000077"),
    "a report is added out of sight": lambda a: shutil.copytree(a.reports[0].parent, a.folder / "reports" / ".h"),
    "a report is added without a folder": lambda a: shutil.copy(a.reports[0], a.folder / "reports" / "report.html"),
    "a hidden file is added": lambda a: (a.reports[0].parent / ".more").write_text("x"),
    "a pipe is added": lambda a: os.mkfifo(a.reports[0].parent / "pipe"),
    "a link to itself is added": lambda a: (a.reports[0].parent / "loop").symlink_to("loop"),
    "a link to itself is added beside": lambda a: (a.folder / "reports" / "loop").symlink_to("loop"),
    "a link to a folder is added": lambda a: (a.reports[0].parent / "more").symlink_to(a.store()),
    "an unfinished file is left": lambda a: (a.reports[0].parent / ".report.html.w1.partial").write_text("x"),
    "an unfinished table is left": lambda a: (a.reports[0].parent / "tables" / ".x.partial").write_text("x"),
    "an unfinished report is left": lambda a: (a.folder / "reports" / ".000000099.partial").mkdir(),
    "an unfinished report is a link": lambda a: (a.folder / "reports" / ".x.partial").symlink_to(a.reports[0].parent),
    "a table is added": lambda a: (a.reports[0].parent / "tables" / "more.csv").write_text("x"),
    "an older report is put in place of a newer one": lambda a: other_tree(
        a.reports[1].parent, a.reports[0].parent),
}  # fmt: skip


def entries_in(report: Path, change: Callable[[list[Any]], object]) -> None:
    edit_json(signatures_file(report), change)


def swap_files(one: Path, two: Path) -> None:
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)


def swap_signatures(entries: list[Any]) -> None:
    for name in ("signature", "key_id", "public_key"):
        entries[0][name], entries[1][name] = entries[1][name], entries[0][name]


def sign_behind_its_back(audited: Audited, name: str, printed: str, meaning: str, **other: object) -> None:
    """Sign with write access to files and the database, bypassing the check of rights."""
    report = audited.reports[1]
    with behind_its_back(Ledger(Database(audited.url))) as connection:
        head = connection.execute(select(study.c.audit_seq, study.c.audit_hash).where(study.c.study_id == STUDY)).one()
        statement = {
            "study_id": STUDY, "report_sha256": sha256_of(report), "meaning": meaning, "name": printed,
            "utc": utc_now(), "seq": head[0], "hash": head[1], **other,
        }  # fmt: skip
        signed = SignedReport(statement, audited.key(name).sign(statement))
        details = {**signed.as_stored, "report": place_of(report, audited.project.root)}
        append(connection, STUDY, [Change(name, SIGNED, "report", meaning, details=details)])
    entries_in(report, lambda entries: entries.append(signed.as_stored))


def rewrite_log(audited: Audited, *, until: int | None = None, mend: bool = False) -> None:
    """Falsify the protocol, and rewrite the whole log so that it is consistent.

    Args:
        until: number of entries to keep; None keeps all.
        mend: whether signatures, in the log and beside reports, get the new hashes without being signed again.
    """
    with behind_its_back(Ledger(Database(audited.url))) as connection:
        for verb in ("update", "delete"):
            connection.execute(text(f"DROP TRIGGER IF EXISTS audit_no_{verb}"))
        of_study = audit.c.study_id == STUDY
        entries = connection.execute(select(audit).where(of_study).order_by(audit.c.seq)).mappings().all()
        row = dict(connection.execute(select(study).where(study.c.study_id == STUDY)).mappings().one())
        falsified = row["protocol"].replace('"at_least":0.7', '"at_least":0.2')
        assert falsified != row["protocol"]
        row |= {"protocol": falsified, "protocol_sha256": digest(json.loads(falsified))}
        after = row_sha256(study, row)
        connection.execute(audit.delete().where(of_study))
        connection.execute(
            update(study).where(study.c.study_id == STUDY).values(**row | {"audit_seq": 0, "audit_hash": FIRST})
        )
        hashes: dict[int, str] = {}
        for entry in entries[:until]:
            details = json.loads(entry["details"])
            if mend and entry["action"] == SIGNED:
                details["hash"] = hashes[details["seq"]]
            content = {name: entry[name] for name in ("actor", "action", "subject", "why", "before", "after")}
            content |= {"after": after} if entry["subject"] == "study" and entry["after"] else {}
            append(connection, STUDY, [Change(**content, details=details)])
            head = connection.execute(select(study.c.audit_seq, study.c.audit_hash).where(study.c.study_id == STUDY))
            hashes.update([tuple(head.one())])
    if mend:
        for report in audited.reports:
            entries_in(report, lambda signed: [signer.update(hash=hashes[signer["seq"]]) for signer in signed])


def of_another_study(audited: Audited) -> None:
    sign_behind_its_back(audited, "ada", "Ada", "approved", study_id="t")


SIGNATURES: dict[str, Tampering] = {
    "a signed report is gone": lambda a: a.reports[1].unlink(),
    "a file of signatures is gone": lambda a: signatures_file(a.reports[1]).unlink(),
    "a signed report is gone with its signatures": lambda a: shutil.rmtree(a.reports[1].parent),
    "a signature is taken out": lambda a: entries_in(a.reports[1], lambda e: e.pop()),
    "a file of signatures is empty": lambda a: signatures_file(a.reports[1]).write_text("[]"),
    "a file of signatures is damaged": lambda a: cut(signatures_file(a.reports[1])),
    "a signed report is edited": lambda a: flip(a.reports[1]),
    "two signatures are exchanged": lambda a: entries_in(a.reports[1], swap_signatures),
    "the signatures of two reports are exchanged": lambda a: swap_files(*map(signatures_file, a.reports)),
    "two reports are exchanged": lambda a: swap_files(*a.reports),
    "an older report is put back with its signature": lambda a: other_tree(
        a.reports[1].parent, a.reports[0].parent),
    "a signature is copied to another report": lambda a: shutil.copy(*map(signatures_file, a.reports)),
    "another name is printed": lambda a: entries_in(a.reports[1], lambda e: e[0].update(name="Eve")),
    "another meaning is printed": lambda a: entries_in(a.reports[1], lambda e: e[0].update(meaning="approved")),
    "another time is printed": lambda a: entries_in(a.reports[1], lambda e: e[0].update(utc="2001-01-01T00:00:00Z")),
    "another entry is named": lambda a: entries_in(a.reports[1], lambda e: e[0].update(seq=3)),
    "an entry that cannot be is named": lambda a: entries_in(a.reports[1], lambda e: e[0].update(seq=2**62)),
    "another study is named": lambda a: entries_in(a.reports[1], lambda e: e[0].update(study_id="t")),
    "a signature of another study": of_another_study,
    "somebody without the right signs": lambda a: sign_behind_its_back(a, "eve", "Eve", "approved"),
    "somebody signs in another's name": lambda a: sign_behind_its_back(a, "eve", "Ada", "approved"),
    "somebody signs with a meaning they may not use": lambda a: sign_behind_its_back(a, "bob", "Bob", "approved"),
    "the log is rewritten as a whole": rewrite_log,
    "the log is rewritten, and the signatures given its hashes": lambda a: rewrite_log(a, mend=True),
    "the log is rewritten without the signatures": lambda a: rewrite_log(a, until=5),
}  # fmt: skip
