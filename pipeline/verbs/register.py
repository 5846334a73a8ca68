"""`gemslide register`: two slides by their tissue; registrations that are saved."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from pipeline.errors import BadManifestError
from pipeline.ledger import Ledger, actor_here, find_ledger, open_ledger
from pipeline.naming.slides import find_slide_id
from pipeline.project import Project, open_project
from pipeline.registration import register_slides
from pipeline.review import (
    Registration,
    SlidePixels,
    describe_error,
    describe_transform,
    registrations_of,
    remove_registration,
    save_registration,
)
from pipeline.store.reading.reader import StoreReader
from pipeline.verbs.cli_output import Reporter, report_errors
from training.foundation.errors import UnreadableError
from training.foundation.words.counts import counted


@dataclass(frozen=True)
class RegisterRequest:
    """The command's arguments: two slides, or a list of what is saved."""

    slides: tuple[str, ...]
    dry_run: bool = False
    listing: bool = False
    remove: bool = False


def run_register(asked: RegisterRequest, project_dir: Path, *, as_json: bool) -> None:
    project = open_project(project_dir)
    reporter = Reporter(as_json=as_json)
    with report_errors(as_json=as_json, name="register", reporter=reporter):
        _check(asked)
        if asked.listing:
            _list(project, asked.slides, reporter, as_json=as_json)
        elif asked.remove:
            _remove(project, *_two(asked, project), reporter, as_json=as_json)
        else:
            _register(project, *_two(asked, project), reporter, dry_run=asked.dry_run, as_json=as_json)


def _check(asked: RegisterRequest) -> None:
    if sum((asked.dry_run, asked.listing, asked.remove)) > 1:
        raise BadManifestError("give one of --dry-run, --list and --remove.")
    if (asked.listing and len(asked.slides) != 1) or (not asked.listing and len(asked.slides) == 2):
        return
    if asked.listing:
        raise BadManifestError("--list takes no slide, or two or more: those registered to each other.")
    raise BadManifestError(f"{counted(len(asked.slides), 'slide')} given; register takes two: A and B.")


def _two(asked: RegisterRequest, project: Project) -> tuple[str, str]:
    one, other = (find_slide_id(name, project) for name in asked.slides)
    if one == other:
        raise BadManifestError(f"{one}: a slide is not registered to itself. Name two slides.")
    return one, other


def _register(
    project: Project, moving_id: str, fixed_id: str, reporter: Reporter, *, dry_run: bool, as_json: bool
) -> None:
    start = time.perf_counter()
    moving, fixed = (StoreReader(project.stored_at(slide_id)) for slide_id in (moving_id, fixed_id))
    found = register_slides(moving, fixed)
    pixels = SlidePixels.of(moving), SlidePixels.of(fixed)
    given = Registration(
        moving_id, fixed_id, found.transform, "features", found.error_um, found.tested,
        pixels[0].sha256, pixels[1].sha256, found.matches, found.share_near, found.dice,
    )  # fmt: skip
    if not dry_run:
        with _writing(project) as ledger:
            given = save_registration(ledger, given, actor_here())
    seconds = time.perf_counter() - start
    if as_json:
        reporter.print_json({**_facts(given, pixels), "saved": not dry_run, "mpp": found.mpp, "seconds": seconds})
        return
    typer.echo(f"{moving_id} → {fixed_id}: {describe_transform(given.in_um(moving.mpp0, fixed.mpp0))}")
    typer.echo(f"  {describe_error(given)}; tissue overlaps by {found.dice:.0%}; {found.matches:,} features agree")
    typer.echo(f"  {'not saved (--dry-run)' if dry_run else f'saved as revision {given.revision}'} ({seconds:.1f} s)")


def _list(project: Project, names: tuple[str, ...], reporter: Reporter, *, as_json: bool) -> None:
    wanted = [find_slide_id(name, project) for name in names] or None
    ledger = find_ledger(project)
    saved: list[Registration] = []
    if ledger is not None:
        with ledger:
            saved = registrations_of(ledger, wanted)
    for given in saved:
        pixels = _pixels(project, given.moving_id), _pixels(project, given.fixed_id)
        if as_json:
            reporter.print_json(_facts(given, pixels))
            continue
        state = _state(given, pixels)
        words = f"{given.moving_id} → {given.fixed_id}: {describe_error(given)}, by {given.method}"
        typer.echo(f"{words}, {given.person}, {given.utc[:16]}{f'; {state}' if state else ''}")
    if not saved and not as_json:
        typer.echo("no registrations are saved")


def _remove(project: Project, one: str, other: str, reporter: Reporter, *, as_json: bool) -> None:
    ledger = find_ledger(project)
    if ledger is None:
        raise UnreadableError(f"{project.root}: no registration has been saved in this project yet.")
    with ledger:
        remove_registration(ledger, one, other, actor_here())
    if as_json:
        reporter.print_json({"moving": one, "fixed": other, "removed": True})
    else:
        typer.echo(f"{one} → {other}: registration removed")


def _pixels(project: Project, slide_id: str) -> SlidePixels | None:
    """The slide as it is now; None where it has been deleted."""
    store = project.stored_at(slide_id)
    return SlidePixels.of(StoreReader(store)) if store.exists() else None


def _state(given: Registration, pixels: tuple[SlidePixels | None, SlidePixels | None]) -> str:
    moving, fixed = pixels
    if moving is None or fixed is None:
        return "a slide is no longer in the project"
    return "outdated: a slide was ingested from another file since" if given.is_outdated(moving, fixed) else ""


def _facts(given: Registration, pixels: tuple[SlidePixels | None, SlidePixels | None]) -> dict[str, Any]:
    """The JSON line of a registration."""
    moving, fixed = pixels
    facts: dict[str, Any] = {"moving": given.moving_id, "fixed": given.fixed_id, "method": given.method}
    facts |= {"matrix_px0": list(given.transform.numbers), "inverse_px0": list(given.transform.inverse().numbers)}
    if moving is not None and fixed is not None:
        in_um = given.in_um(moving.mpp0, fixed.mpp0)
        facts |= {"degrees": in_um.degrees, "is_mirrored": in_um.is_mirrored, "scale": in_um.scale}
        facts |= {"shift_um": [in_um.c, in_um.f]}
    names = ("error_um", "places", "share_near", "dice", "matches", "revision", "person", "utc")
    facts |= {name: getattr(given, name) for name in names}
    return facts | {"state": _state(given, pixels) or "current"}


@contextmanager
def _writing(project: Project) -> Iterator[Ledger]:
    ledger = open_ledger(project)
    try:
        yield ledger
    finally:
        ledger.database.close()
