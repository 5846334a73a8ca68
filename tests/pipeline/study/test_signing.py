"""Signatures prove who stated what about which bytes; anchors prove that a log was not rewritten."""

from __future__ import annotations

import json
import subprocess

import pytest
from sqlalchemy import text, update

from pipeline.errors import BadManifestError, ChangedSourceError, DamagedStoreError
from pipeline.files import sha256_of
from pipeline.ledger.chain import Change, append, canonical, digest
from pipeline.ledger.ledger import found, study_change
from pipeline.ledger.rows import AMENDED, SIGNED
from pipeline.ledger.tables import study
from pipeline.review.rows.tables import coverage, hotspot_review, review
from pipeline.study.proof.anchors import countersign, make_anchor, read_anchor, trusted_hashes
from pipeline.study.proof.sign_off import SignedReport, Signing, read_signatures, sign_report, signatures_file
from pipeline.study.proof.signatures import find_false_signatures
from pipeline.study.proof.signing import new_key, open_key, read_public_key
from pipeline.study.proof.verify import verified_head, verify_log
from pipeline.study.work.leases import Ended, Leases
from pipeline.study.work.limits import Limits
from pipeline.study.work.owner import this_process
from tests.pipeline.study.whole_ledger import forge, made_report
from training.foundation.errors import BadRecipeError, DiskFullError, UnreadableError

WORDS = "correct horse battery"


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keys")
    for name in ("ada", "bob"):
        new_key(folder / name, WORDS)
    return folder


def test_a_key_is_its_owners_alone_and_opens_by_the_passphrase_alone(keys, tmp_path):
    assert (keys / "ada").stat().st_mode & 0o077 == 0
    assert b"ENCRYPTED" in (keys / "ada").read_bytes()
    with pytest.raises(UnreadableError, match="the wrong passphrase"):
        open_key(keys / "ada", "wrong horse battery")
    with pytest.raises(DiskFullError, match="already exists"):
        new_key(keys / "ada", WORDS)
    with pytest.raises(BadRecipeError, match="at least 12"):
        new_key(tmp_path / "short", "short")
    with pytest.raises(UnreadableError, match="is not a public key"):
        read_public_key(keys / "ada")
    with pytest.raises(UnreadableError, match="cannot be read"):
        read_public_key(keys / "nobody")


def test_openssl_agrees_with_a_signature(keys, tmp_path):
    statement = {"b": 1, "a": "ä"}
    signature = open_key(keys / "ada", WORDS).sign(statement)
    (tmp_path / "message").write_bytes('{"a":"ä","b":1}'.encode())
    (tmp_path / "signature").write_bytes(bytes.fromhex(signature.signature))
    command = ["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", keys / "ada.pub", "-rawin"]
    done = subprocess.run(
        [*command, "-in", tmp_path / "message", "-sigfile", tmp_path / "signature"], capture_output=True, check=False
    )
    assert b"Verified Successfully" in done.stdout, done.stderr


def test_anchors_prove_the_log_and_a_rewritten_one_is_found(begun, keys, tmp_path):
    path = make_anchor(begun, "s", open_key(keys / "ada", WORDS), tmp_path, actor="ada")
    countersign(begun, path, open_key(keys / "bob", WORDS))
    assert len(read_anchor(path).signatures) == 2
    trusted = [read_public_key(keys / "bob.pub")]
    hashes, findings = trusted_hashes("s", [path], trusted)
    assert findings == []
    assert verify_log(begun.database, "s", hashes).findings == ()
    with begun.database.write() as connection:
        if begun.database.is_sqlite:
            connection.execute(text("DROP TRIGGER audit_no_delete"))
        else:
            connection.execute(text("ALTER TABLE audit DISABLE TRIGGER ALL"))
        last = "(SELECT max(seq) FROM audit)"
        connection.execute(text("DELETE FROM audit WHERE seq >= 4"))
        connection.execute(text("DELETE FROM task WHERE slide_id IN ('S-3', 'S-4')"))
        connection.execute(text("DELETE FROM slide WHERE slide_id IN ('S-3', 'S-4')"))
        connection.execute(
            text(f"UPDATE study SET audit_seq = {last}, audit_hash = (SELECT hash FROM audit WHERE seq = {last})")
        )
    assert verify_log(begun.database, "s").findings == (), "consistent in itself"
    assert "its tail was cut" in "\n".join(verify_log(begun.database, "s", hashes).findings)
    with pytest.raises(DamagedStoreError, match="Not signed"):
        countersign(begun, path, open_key(keys / "bob", WORDS))


@pytest.mark.parametrize("table", [review, coverage, hotspot_review], ids=lambda table: table.name)
def test_nothing_is_signed_while_a_finding_of_a_person_is_forged(begun, keys, tmp_path, table):
    ada, report = open_key(keys / "ada", WORDS), tmp_path / "report.html"
    report.write_text("a report")
    anchor = make_anchor(begun, "s", ada, tmp_path, actor="ada")
    forge(begun, table)
    for sign in (
        lambda: make_anchor(begun, "s", ada, tmp_path / "new", actor="ada"),
        lambda: countersign(begun, anchor, open_key(keys / "bob", WORDS)),
        lambda: sign_report(begun, "s", report, ada, Signing("Ada", "approved"), actor="ada"),
    ):
        with pytest.raises(DamagedStoreError, match=f"{table.name} of mallory at slide S-1: is in the ledger, but no"):
            sign()
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        ({"hash": "0" * 64}, "was changed"),
        ({"utc": "2001"}, "was changed"),
        ({"study_id": "t"}, "is an anchor of study t"),
    ],
)
def test_an_anchor_that_was_changed_does_not_count(begun, keys, tmp_path, change, finding):
    path = make_anchor(begun, "s", open_key(keys / "ada", WORDS), tmp_path, actor="ada")
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    hashes, findings = trusted_hashes("s", [path], [read_public_key(keys / "ada.pub")])
    assert hashes == {}
    assert finding in findings[0]


def test_an_anchor_of_strangers_does_not_count(begun, keys, tmp_path):
    path = make_anchor(begun, "s", open_key(keys / "ada", WORDS), tmp_path, actor="ada")
    assert trusted_hashes("s", [path], [read_public_key(keys / "bob.pub")])[1] == [
        f"{path.name}: is not signed by any of the given keys"
    ]
    path.write_text("{}")
    with pytest.raises(UnreadableError, match="is not an anchor"):
        read_anchor(path)


def test_a_report_signed_and_then_changed_is_found(begun, keys, tmp_path):
    report = made_report(begun, tmp_path / "report.html")
    trusted = [read_public_key(keys / f"{name}.pub") for name in ("ada", "bob")]
    for name, meaning in (("ada", "authored"), ("bob", "approved")):
        key = open_key(keys / name, WORDS)
        sign_report(begun, "s", report, key, Signing(name.title(), meaning), actor=name, root=tmp_path)

    def false(*known):
        return find_false_signatures(begun.database, "s", tmp_path, tmp_path / "studies" / "s", known)

    assert [signed.statement["meaning"] for signed in read_signatures(report)] == ["authored", "approved"]
    assert false(*trusted) == false() == []
    assert "report.html: the signature of Bob is by a key that was not given" in false(trusted[0])
    report.write_text("as it is")
    for name in ("Ada", "Bob"):
        assert f"report.html: was changed after {name} had signed it" in false(*trusted)
    with pytest.raises(ChangedSourceError, match="is not the report that Ada signed"):
        sign_report(begun, "s", report, open_key(keys / "ada", WORDS), Signing("Ada", "approved"), actor="ada")
    report.write_text("as it was")
    assert false() == []
    beside = tmp_path / "report.html.signatures.json"
    beside.write_text(beside.read_text().replace('"Ada"', '"Eve"'))
    assert "report.html: the signature of Eve is false" in false()
    assert "report.html: this signature of Eve is not in the log" in false()
    assert [entry.why for entry in begun.history("s", "report")] == ["", "authored", "approved"], "nothing was added"


def test_a_file_that_no_entry_records_as_a_report_is_not_signed(begun, keys, tmp_path):
    key, report = open_key(keys / "ada", WORDS), tmp_path / "report.html"

    def sign():
        sign_report(begun, "s", report, key, Signing("Ada", "approved"), actor="ada", root=tmp_path)

    report.write_text("no report")
    with pytest.raises(BadManifestError, match=r"the log of study s records no report with this file .* Nothing was"):
        sign()
    made_report(begun, tmp_path / "other" / "report.html")
    report.write_text("as it was, and more")
    with pytest.raises(BadManifestError, match="records no report with this file"):
        sign()
    assert read_signatures(report) == []
    report.write_text("as it was")
    sign()


def test_a_signature_on_a_file_that_was_no_report_when_it_was_signed_is_found(begun, keys, tmp_path):
    report = tmp_path / "report.html"
    report.write_text("as it was")
    seq, head = verified_head(begun.database, "s")
    statement = {"study_id": "s", "report_sha256": sha256_of(report), "meaning": "approved", "name": "Ada"}
    statement |= {"utc": "2026-01-02T03:04:05Z", "seq": seq, "hash": head}
    stored = SignedReport(statement, open_key(keys / "ada", WORDS).sign(statement)).as_stored
    signatures_file(report).write_text(json.dumps([stored]))
    with begun.database.write() as connection:
        append(connection, "s", [Change("ada", SIGNED, "report", details={**stored, "report": "report.html"})])
    for _ in range(2):
        findings = find_false_signatures(begun.database, "s", tmp_path, tmp_path / "studies")
        assert [finding.partition(": ")[0] for finding in findings] == ["report.html", "the log"]
        assert "the log recorded no report with the file that Ada signed" in findings[0]
        made_report(begun, report)  # too late


@pytest.mark.parametrize("name", ["report.html", "nothing.csv"])
def test_a_file_of_signatures_without_any_is_found(begun, tmp_path, name):
    folder = tmp_path / "studies" / "s" / "reports" / "1" / "tables"
    report = made_report(begun, folder / "report.html")
    assert find_false_signatures(begun.database, "s", tmp_path, tmp_path / "studies" / "s") == []
    signatures_file(report.with_name(name)).write_text("[]")
    (finding,) = find_false_signatures(begun.database, "s", tmp_path, tmp_path / "studies" / "s")
    assert f"tables/{name}: its file of signatures is empty" in finding


def test_a_signed_report_that_lies_elsewhere_is_missed_until_it_is_named(begun, keys, tmp_path):
    project, report = tmp_path / "project", tmp_path / "elsewhere" / "report.html"
    project.mkdir()
    made_report(begun, report)
    key = open_key(keys / "ada", WORDS)
    sign_report(begun, "s", report, key, Signing("Ada", "approved"), actor="ada", root=project)
    [missed] = find_false_signatures(begun.database, "s", project, project / "studies" / "s")
    assert missed.startswith("elsewhere: report.html: Ada signed it (approved, ")
    assert missed.endswith("are missing. Name it with --report.")
    assert find_false_signatures(begun.database, "s", project, project / "studies" / "s", elsewhere=[report]) == []
    with pytest.raises(UnreadableError, match="no such report"):
        find_false_signatures(begun.database, "s", project, project, elsewhere=[tmp_path / "nowhere.html"])


def test_a_change_of_who_may_sign_leaves_earlier_signatures_as_they_are(begun, keys, tmp_path):
    report = made_report(begun, tmp_path / "report.html")
    ada, bob = (read_public_key(keys / f"{name}.pub").key_id for name in ("ada", "bob"))

    def let_sign(name: str, key_id: str, earlier: object) -> None:
        protocol = {"question": "?", "signers": [{"name": name, "key_id": key_id, "may": ["approved"]}]}
        with begun.database.write() as connection:
            before = found(connection, "s")
            values = {"protocol": canonical(protocol), "protocol_sha256": digest(protocol)}
            connection.execute(update(study).where(study.c.study_id == "s").values(values))
            details = {"changed": ["signers"], "earlier": {"signers": earlier}}
            append(connection, "s", [study_change(connection, "s", before, "ada", AMENDED, "why", **details)])

    let_sign("Ada", ada, None)
    key = open_key(keys / "ada", WORDS)
    sign_report(begun, "s", report, key, Signing("Ada", "approved"), actor="ada", root=tmp_path)
    let_sign("Bob", bob, [{"name": "Ada", "key_id": ada, "may": ["approved"]}])
    assert find_false_signatures(begun.database, "s", tmp_path, tmp_path / "studies") == []
    with pytest.raises(BadManifestError, match="does not allow Ada"):
        sign_report(begun, "s", report, key, Signing("Ada", "approved"), actor="ada", root=tmp_path)
    assert len(read_signatures(report)) == 1


def test_nothing_is_signed_while_the_log_does_not_verify(begun, keys, tmp_path):
    mine = Leases(begun, this_process(), Limits(), actor="worker")
    mine.finish(mine.take("s"), Ended("unreadable"))
    with begun.database.write() as connection:
        connection.execute(text("UPDATE slide SET state = 'done' WHERE slide_id = 'S-1'"))
    report = tmp_path / "report.html"
    report.write_text("x")
    key = open_key(keys / "ada", WORDS)
    with pytest.raises(DamagedStoreError, match=r"slide S-1: was changed.*Nothing is signed"):
        sign_report(begun, "s", report, key, Signing("Ada", "approved"), actor="ada")
    with pytest.raises(DamagedStoreError, match="Nothing is signed"):
        make_anchor(begun, "s", key, tmp_path, actor="ada")
    assert read_signatures(report) == []


def test_the_passphrase_is_asked_for_at_every_signature(begun, keys, tmp_path, gemslide, url, monkeypatch):
    from typer.testing import CliRunner

    from pipeline.cli import cli

    monkeypatch.setenv("GEMSLIDE_LEDGER", url)
    report = made_report(begun, tmp_path / "report.html")
    sign = ["study", "sign", "s", str(report), "--key", str(keys / "ada"), "--meaning", "approved", "--name", "Ada"]
    project = ["--project", str(tmp_path)]
    assert CliRunner().invoke(cli, [*sign, *project], input=f"{WORDS}\n").exit_code == 0
    assert CliRunner().invoke(cli, [*sign, *project], input="\n").exit_code == 1
    assert len(read_signatures(report)) == 1
    made = CliRunner().invoke(cli, ["study", "anchor", "s", "--key", str(keys / "ada"), *project], input=f"{WORDS}\n")
    assert made.exit_code == 0, made.output
    verify = ["study", "verify", "s", "--anchor", tmp_path / "studies" / "s" / "anchors"]
    verified = gemslide(*verify, "--trust", keys / "ada.pub", *project)
    assert verified.code == 0, verified.err
    assert "proven by 1 anchors up to entry" in verified.out
