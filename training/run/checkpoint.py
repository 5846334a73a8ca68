"""Checkpoints, from which a run that died resumes: complete or absent (docs/store.md, "Checkpoints").

Each rank writes the tensors that it alone provides, under the names of the whole network, so that any number of ranks
can read what any other number has written. The first rank writes the manifest, which lists the files and their SHA-256,
and gives the folder its name.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

from pydantic import Field
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from training.foundation.errors import GemslideError, UnreadableError
from training.foundation.publish import explain_unwritable, new_folder, remove, write_bytes_atomic
from training.foundation.reading import read_json_file, read_regular
from training.foundation.settings import Section, parse_section
from training.run.state import RunState

MANIFEST = "manifest.json"
WEIGHT, SLOT, AVERAGE, BEST = "weight/", "optimizer/", "average/", "best/"
"""Prefixes of names in a part: for current weights and buffers, state of optimizers, the average over steps, the best
epoch."""
MAX_PARTS = 100_000
_STEP = re.compile(r"step-(\d{8,})")
T = TypeVar("T")


class Part(Section):
    """One rank's file."""

    file: str = Field(pattern=r"^part-\d{5,}\.safetensors$")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    bytes: int = Field(ge=0)


class Manifest(Section):
    """`manifest.json`."""

    version: Literal[1] = 1
    decides: dict[str, Any]
    """`state.what_decides`: the same in a run that resumes."""
    arithmetic: dict[str, Any]
    """Settings with which numbers were computed: a run that resumes with others reports it."""
    state: RunState
    parts: tuple[Part, ...] = Field(min_length=1, max_length=MAX_PARTS)


class Ranks(Protocol):
    """The ranks of the run, as in `Engine`."""

    def share(self, value: Any, *, during: str) -> list[Any]: ...


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint found complete."""

    folder: Path
    manifest: Manifest

    def tensors(self) -> dict[str, Tensor]:
        """All tensors of all ranks, by name, in CPU memory.

        Raises:
            UnreadableError: a file is damaged, or missing.
        """
        tensors: dict[str, Tensor] = {}
        for part in self.manifest.parts:
            tensors |= _part_tensors(self.folder, part)
        return tensors


class Checkpoints:
    """Checkpoints of one run. Every rank has an instance and calls `write` at the same step."""

    def __init__(self, folder: Path, *, rank: int, ranks: Ranks, keep: int) -> None:
        self._folder, self._rank, self._ranks, self._keep = folder, rank, ranks, keep
        self.went_on_after = 0
        """The step of the checkpoint from which the run resumed."""
        self._written: set[Path] = set()

    def write(self, own: Mapping[str, Tensor], state: RunState, **described: dict[str, Any]) -> None:
        """Write the ranks' tensors, then remove the oldest checkpoints and those found damaged.

        After an error all earlier ones are kept.

        Args:
            own: the tensors that this rank provides.
            described: `decides` and `arithmetic` of the manifest.

        Raises:
            DiskFullError: no space, or not writable; on every rank.
        """
        final = self._folder / f"step-{state.steps_done:08}"
        with ExitStack() as stack:
            folders = self._together(lambda: self._begin(stack, final), during="beginning a checkpoint")
            partial = next(folder for folder in folders if folder is not None)
            parts = self._together(lambda: self._write_part(partial, own), during="writing a checkpoint")
            manifest = Manifest(state=state, parts=tuple(part for part in parts if part is not None), **described)
            self._together(lambda: self._publish(stack, partial, manifest, final), during="publishing a checkpoint")

    def _together(self, work: Callable[[], T], *, during: str) -> list[T]:
        """Do each rank's work and return the results, by rank; an error on one is raised on all."""
        mine: T | GemslideError
        try:
            mine = work()
        except GemslideError as error:
            mine = error
        results = self._ranks.share(mine, during=during)
        for result in results:
            if isinstance(result, GemslideError):
                raise result
        return results

    def _begin(self, stack: ExitStack, final: Path) -> Path | None:
        return stack.enter_context(new_folder(final)) if self._rank == 0 else None

    def _write_part(self, folder: Path, own: Mapping[str, Tensor]) -> Part | None:
        if not own:
            return None
        data = save({name: tensor.detach().cpu().contiguous() for name, tensor in sorted(own.items())})
        name = f"part-{self._rank:05}.safetensors"
        write_bytes_atomic(folder / name, data)
        return Part(file=name, sha256=hashlib.sha256(data).hexdigest(), bytes=len(data))

    def _publish(self, stack: ExitStack, partial: Path, manifest: Manifest, final: Path) -> None:
        if self._rank == 0:
            write_bytes_atomic(partial / MANIFEST, manifest.model_dump_json(indent=1).encode())
            stack.close()
            self._written.add(final)
            self._drop_others()

    def _drop_others(self) -> None:
        """Now that another is complete, remove those that the run skipped when it resumed, and the oldest."""
        folders = _newest_first(self._folder)
        whole = [folder for folder in folders if folder in self._written or _step_number(folder) <= self.went_on_after]
        for folder in set(folders) - set(whole[: self._keep]):
            remove(folder)


def latest(folder: Path, decides: Mapping[str, Any]) -> tuple[Checkpoint | None, list[str]]:
    """The newest complete checkpoint of a run, and what is wrong with newer ones, for people."""
    complaints: list[str] = []
    for candidate in _newest_first(folder):
        try:
            return _read_own(candidate, decides), complaints
        except GemslideError as error:
            complaints.append(f"{error} Resuming from an earlier one, or from the start.")
    return None, complaints


def _newest_first(folder: Path) -> list[Path]:
    names = (path for path in folder.iterdir() if _STEP.fullmatch(path.name)) if folder.is_dir() else ()
    return sorted(names, key=_step_number, reverse=True)


def _step_number(folder: Path) -> int:
    return int(folder.name.removeprefix("step-"))


def _read_own(folder: Path, decides: Mapping[str, Any]) -> Checkpoint:
    checkpoint = read_checkpoint(folder)
    if checkpoint.manifest.decides != dict(decides):
        raise UnreadableError(f"{folder / MANIFEST}: belongs to another run than its folder's name says.")
    return checkpoint


def read_checkpoint(folder: Path) -> Checkpoint:
    """Read a checkpoint whose files match its manifest.

    Raises:
        UnreadableError, BadRecipeError: they do not match, or there is no checkpoint.
    """
    where = folder / MANIFEST
    try:
        raw = read_json_file(where)
    except (OSError, ValueError) as error:
        raise UnreadableError(f"{where}: cannot be read ({error}).") from error
    manifest = parse_section(Manifest, raw if isinstance(raw, dict) else {}, where=str(where))
    for part in manifest.parts:
        data = _part_bytes(folder, part)
        if hashlib.sha256(data).hexdigest() != part.sha256:
            raise UnreadableError(f"{folder / part.file}: damaged; its SHA-256 is not the one in {MANIFEST}.")
    return Checkpoint(folder, manifest)


def _part_bytes(folder: Path, part: Part) -> bytes:
    try:
        return read_regular(folder / part.file, max_bytes=part.bytes)
    except OSError as error:
        raise UnreadableError(f"{folder / part.file}: {error.strerror}.") from error


def _part_tensors(folder: Path, part: Part) -> dict[str, Tensor]:
    try:
        return load(_part_bytes(folder, part))
    except (SafetensorError, ValueError) as error:
        raise UnreadableError(f"{folder / part.file}: damaged ({error}).") from error


def forget(folder: Path) -> None:
    """Remove all checkpoints of a run: it has succeeded, or starts from scratch.

    Raises:
        DiskFullError: the folder is not writable.
    """
    with explain_unwritable(folder):
        if folder.is_dir():
            shutil.rmtree(folder)


def named(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors under the names that they have in a part."""
    return {prefix + name: tensor for name, tensor in tensors.items()}


def unnamed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a checkpoint whose names begin with `prefix`, named without it."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
