"""`gemslide study verify`, `reproduce`, `key`, `anchor`, `countersign` and `sign`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import typer

from pipeline.ledger.guards import missing_guards
from pipeline.ledger.opening import actor_here
from pipeline.study import verify_ledger
from pipeline.study.proof.anchors import ANCHORS_DIR, countersign, make_anchor, trusted_hashes
from pipeline.study.proof.outputs import find_changed_outputs
from pipeline.study.proof.reports import find_changed_reports
from pipeline.study.proof.sign_off import Meaning, Signing, sign_report
from pipeline.study.proof.signatures import find_false_signatures
from pipeline.study.proof.signing import SigningKey, new_key, open_key, read_public_key
from pipeline.study.protocol import study_dir
from pipeline.study.work.study import open_study
from pipeline.verbs.cli_output import report_errors
from pipeline.verbs.log import tell_verified
from pipeline.verbs.study.study import opened
from training.foundation.errors import BadRecipeError, UnreadableError


def run_verify(
    study_id: str,
    project_dir: Path,
    anchors: list[Path],
    trusted: list[Path],
    *,
    reports: list[Path],
    pixels: bool,
    as_json: bool,
) -> None:
    with opened(project_dir, as_json=as_json) as (project, ledger):
        keys = [read_public_key(path) for path in trusted]
        hashes, findings = trusted_hashes(study_id, _files(anchors), keys)
        verified = verify_ledger(ledger.database, study_id, hashes)
        folder = study_dir(project, study_id)
        findings += find_false_signatures(ledger.database, study_id, project.root, folder, keys, reports)
        findings += find_changed_reports(ledger.database, study_id, project, folder)
        findings += find_changed_outputs(project, ledger, study_id, all_pixels=pixels)
        findings += missing_guards(ledger.database)
        verified = verified.with_findings(*findings)
    if as_json:
        typer.echo(json.dumps({**asdict(verified), "anchored": sorted(hashes)}))
    else:
        tell_verified(verified, f"study {study_id}: ", f"; {_proven(hashes)}")
    if verified.findings:
        raise typer.Exit(1)


def _files(paths: list[Path]) -> list[Path]:
    files = []
    for path in paths:
        inside = sorted(path.glob("[!.]*.json")) if path.is_dir() else [path]
        if not inside:
            raise UnreadableError(f"{path}: contains no anchors. Make one with `gemslide study anchor`.")
        files += inside
    return files


def _proven(hashes: dict[int, str]) -> str:
    if not hashes:
        return "no anchor was given, so a log rewritten as a whole would go unnoticed"
    return f"proven by {len(hashes)} anchors up to entry {max(hashes)}"


def run_reproduce(study_id: str, project_dir: Path, percent: str, *, as_json: bool) -> None:
    with opened(project_dir, as_json=as_json) as (project, ledger):
        share = _share(percent)
        from pipeline.study.proof.reproduction import Reproduced, reproduce, sample

        study = open_study(project, study_id, ledger)

        def report(result: Reproduced) -> None:
            if as_json:
                typer.echo(json.dumps(asdict(result)))
            else:
                typer.echo(
                    f"{result.slide_id}: {'differs: ' + ', '.join(result.differs) if result.differs else 'the same'}"
                )

        results = reproduce(study, sample(study, share), actor=actor_here(), said=report)
    if any(result.differs for result in results):
        raise typer.Exit(1)


def _share(percent: str) -> float:
    """Parse a percentage into a share. Raises BadRecipeError: it is not above 0 % and up to 100 %."""
    try:
        share = float(percent.removesuffix("%")) / 100
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise BadRecipeError(f"--slides {percent!r}: give a share above 0 % and up to 100 %, such as 5%.")
    return share


def run_key(path: Path) -> None:
    passphrase = typer.prompt("Passphrase", hide_input=True, confirmation_prompt=True)
    with report_errors():
        public = new_key(path, passphrase)
    typer.echo(f"{path}: private key {public.key_id}; keep it secret. {path}.pub: give it to those who verify.")


def run_anchor(study_id: str, project_dir: Path, key: Path, out: Path | None) -> None:
    with opened(project_dir) as (project, ledger):
        folder = out or study_dir(project, study_id) / ANCHORS_DIR
        path = make_anchor(ledger, study_id, _opened(key), folder, actor=actor_here())
    typer.echo(f"{path}: signed. Keep a copy where nobody with write access to the database can write.")


def run_countersign(anchor: Path, project_dir: Path, key: Path) -> None:
    with opened(project_dir) as (_, ledger):
        countersign(ledger, anchor, _opened(key))
    typer.echo(f"{anchor}: countersigned.")


def run_sign(study_id: str, project_dir: Path, report: Path, key: Path, *, meaning: Meaning, name: str) -> None:
    with opened(project_dir) as (project, ledger):
        signed = sign_report(
            ledger,
            study_id,
            report,
            _opened(key),
            Signing(name, meaning),
            actor=actor_here(),
            root=project.root,
        )
    typer.echo(f"{report}: signed by {name} ({meaning}), key {signed.signature.key_id}.")


def _opened(path: Path) -> SigningKey:
    """Open a signer's key: the passphrase is prompted for at each signature, as proof of identity, and not kept."""
    return open_key(path, typer.prompt(f"Passphrase of {path.name}", hide_input=True))
