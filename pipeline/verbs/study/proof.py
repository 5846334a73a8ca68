"""`gemslide study verify`, `reproduce`, `key`, `anchor`, `countersign` and `sign`."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import typer

from pipeline.cli_output import report_errors
from pipeline.errors import BadRecipeError, UnreadableError
from pipeline.project import Project
from pipeline.review import verify_ledger
from pipeline.study.anchors import ANCHORS_DIR, countersign, make_anchor, trusted_hashes
from pipeline.study.opening import actor_here
from pipeline.study.protocol import study_dir
from pipeline.study.sign_off import SIGNATURES_SUFFIX, Meaning, find_false_signatures, sign_report
from pipeline.study.signing import SigningKey, new_key, open_key, read_public_key
from pipeline.study.study import open_study
from pipeline.verbs.log import tell_verified
from pipeline.verbs.study import opened


def run_verify(study_id: str, project_dir: Path, anchors: list[Path], trusted: list[Path], *, as_json: bool) -> None:
    with opened(project_dir, as_json=as_json) as (project, ledger):
        keys = [read_public_key(path) for path in trusted]
        hashes, findings = trusted_hashes(study_id, _files(anchors), keys)
        verified = verify_ledger(ledger.database, study_id, hashes)
        for report in _signed_reports(project, study_id):
            findings += find_false_signatures(report, keys) if keys else []
        verified = replace(verified, findings=(*findings, *verified.findings))
    if as_json:
        typer.echo(json.dumps({**asdict(verified), "anchored": sorted(hashes)}))
    else:
        tell_verified(verified, f"study {study_id}: ", f"; {_proven(hashes)}")
    if verified.findings:
        raise typer.Exit(1)


def _files(paths: list[Path]) -> list[Path]:
    found = []
    for path in paths:
        inside = sorted(path.glob("[!.]*.json")) if path.is_dir() else [path]
        if not inside:
            raise UnreadableError(f"{path}: holds no anchors. `gemslide study anchor` makes them.")
        found += inside
    return found


def _signed_reports(project: Project, study_id: str) -> list[Path]:
    found = sorted(study_dir(project, study_id).glob(f"**/[!.]*{SIGNATURES_SUFFIX}"))
    return [path.with_name(path.name.removesuffix(SIGNATURES_SUFFIX)) for path in found]


def _proven(hashes: dict[int, str]) -> str:
    if not hashes:
        return "no anchor was given, so a log rewritten as a whole would not be seen"
    return f"proven by {len(hashes)} anchors up to entry {max(hashes)}"


def run_reproduce(study_id: str, project_dir: Path, percent: str, *, as_json: bool) -> None:
    with opened(project_dir, as_json=as_json) as (project, ledger):
        share = _share(percent)
        from pipeline.study.reproduction import Reproduced, reproduce, sample

        study = open_study(project, study_id, ledger)

        def said(found: Reproduced) -> None:
            if as_json:
                typer.echo(json.dumps(asdict(found)))
            else:
                typer.echo(
                    f"{found.slide_id}: {'differs: ' + ', '.join(found.differs) if found.differs else 'the same'}"
                )

        found = reproduce(study, sample(study, share), actor=actor_here(), said=said)
    if any(each.differs for each in found):
        raise typer.Exit(1)


def _share(percent: str) -> float:
    """Raises BadRecipeError: no share of a whole."""
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
    typer.echo(f"{path}: private key {public.key_id}; keep it to yourself. {path}.pub: give it to who verifies.")


def run_anchor(study_id: str, project_dir: Path, key: Path, out: Path | None) -> None:
    with opened(project_dir) as (project, ledger):
        folder = out or study_dir(project, study_id) / ANCHORS_DIR
        path = make_anchor(ledger, study_id, _opened(key), folder, actor=actor_here())
    typer.echo(f"{path}: signed. Keep a copy where nobody who can write the database can write.")


def run_countersign(anchor: Path, project_dir: Path, key: Path) -> None:
    with opened(project_dir) as (_, ledger):
        countersign(ledger, anchor, _opened(key))
    typer.echo(f"{anchor}: countersigned.")


def run_sign(study_id: str, project_dir: Path, report: Path, key: Path, *, meaning: Meaning, name: str) -> None:
    with opened(project_dir) as (_, ledger):
        signed = sign_report(ledger, study_id, report, _opened(key), meaning=meaning, name=name, actor=actor_here())
    typer.echo(f"{report}: signed by {name} ({meaning}), key {signed.signature.key_id}.")


def _opened(path: Path) -> SigningKey:
    """Who signs proves anew who they are: the passphrase is asked for at each signature, and kept nowhere."""
    return open_key(path, typer.prompt(f"Passphrase of {path.name}", hide_input=True))
