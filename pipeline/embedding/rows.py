"""Rows of encoders: those of a project, in `encoders/NAME.toml`, and those that come with gemslide."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pipeline.embedding.encoder import ROWS_DIR, SUFFIX, check_encoder, describe_encoder
from pipeline.project import Project, check_name
from pipeline.settings.site import is_confined
from training.foundation.errors import BadRecipeError, UnreadableError
from training.foundation.publish import write_bytes_atomic
from training.foundation.reading import read_regular
from training.foundation.toml_file import MAX_TOML_BYTES
from training.foundation.words.spelling import nearest

UNTRAINED = "-untrained"
"""End of the names of encoders with random weights: `gemslide evaluate` compares with the one of the same name."""


def encoders_dir(project: Project) -> Path:
    """Folder of a project's rows, in which their relative paths start."""
    return project.root / "encoders"


def row_path(name: str, project: Project) -> Path:
    """File of an encoder's row; it may not exist.

    Raises:
        BadManifestError: not a name. OutsideFoldersError: in the web app, a link that leads out of the project.
    """
    path = encoders_dir(project) / f"{check_name(name, what='encoder')}{SUFFIX}"
    return project.inside(path) if is_confined() else path


def find_encoder(name: str, project: Project) -> Path:
    """The row of a project's encoder.

    Raises:
        UnreadableError: the project has none of this name. BadManifestError: not a name.
    """
    path = row_path(name, project)
    if path.is_file():
        return path
    if name in _names_in(ROWS_DIR):
        remedy = f"Add the one that comes with gemslide: `gemslide encoder add {name}`."
    else:
        own = _names_in(encoders_dir(project))
        near = nearest(name, own, most=3)
        remedy = f"Did you mean {' or '.join(near)}?" if near else f"There are: {', '.join(own) or 'none'}."
    raise UnreadableError(f"{path}: no such encoder. {remedy}")


def list_encoders(project: Project) -> list[dict[str, Any]]:
    """Describe a project's encoders, and those that come with gemslide and are not in it.

    Returns:
        For each, as `training.encoding.describe_encoder`, and whether it is the project's (`own`).
    """
    own, shipped = _names_in(encoders_dir(project)), _names_in(ROWS_DIR)
    rows = [(encoders_dir(project) / f"{name}{SUFFIX}", True) for name in own]
    rows += [(ROWS_DIR / f"{name}{SUFFIX}", False) for name in shipped if name not in own]
    return [{**describe_encoder(path), "own": is_own} for path, is_own in rows]


def check_own_encoder(name: str, project: Project) -> dict[str, Any]:
    """Open a project's encoder and run it on probe tiles.

    Returns:
        As `training.encoding.check_encoder`.

    Raises:
        GemslideError: there is none, or the row, the weights or the network are at fault.
    """
    return check_encoder(find_encoder(name, project))


def add_encoder(name: str, project: Project, source: Path | None = None, *, untrained: bool = False) -> dict[str, Any]:
    """Copy a row into a project, if the encoder that it describes passes its check there.

    Args:
        name: of the encoder in the project.
        source: the row's file; None: the project's own of that name for an untrained one, or the one that comes with
            gemslide.
        untrained: add the same network with random weights, as NAME-untrained.

    Returns:
        As `training.encoding.check_encoder`, and whether the project had the same row before (`already_there`).

    Raises:
        GemslideError: the row, the weights or the network are at fault, or the project has another encoder of the name.
    """
    if source is None:
        own = row_path(name, project)
        source = own if untrained and own.is_file() else _shipped(name)
    name = f"{name}{UNTRAINED}" if untrained else name
    target = row_path(name, project)
    try:
        content = read_regular(source, max_bytes=MAX_TOML_BYTES)
        before = read_regular(target, max_bytes=MAX_TOML_BYTES) if target.exists() else None
    except OSError as error:
        raise BadRecipeError(
            f"{error.filename or source}: cannot be read: {error.strerror}. Name a row (TOML) with --from."
        ) from error
    if untrained:
        content = content.rstrip() + b"\nuntrained = true\n"
    if before not in (None, content):
        raise BadRecipeError(
            f"{target}: the project has another encoder of this name, and features may have been made with it. Choose "
            "another name, or remove the file first."
        )
    with ExitStack() as stack:
        if untrained:
            source = Path(stack.enter_context(TemporaryDirectory(prefix="gemslide-"))) / target.name
            source.write_bytes(content)
        report = check_encoder(source, name=name, folder=encoders_dir(project))
    if before is None:
        write_bytes_atomic(target, content)
    return {**report, "already_there": before is not None}


def _shipped(name: str) -> Path:
    known = _names_in(ROWS_DIR)
    if name not in known:
        raise BadRecipeError(
            f"{name}: no encoder of this name comes with gemslide, which has: {', '.join(known)}. Name the row of your "
            "own with --from FILE.toml."
        )
    return ROWS_DIR / f"{name}{SUFFIX}"


def _names_in(folder: Path) -> list[str]:
    return sorted(path.stem for path in folder.glob(f"[!.]*{SUFFIX}") if path.is_file())
