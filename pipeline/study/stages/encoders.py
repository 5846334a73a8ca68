"""Encoders of a study: their rows and weights, as its protocol names them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from pydantic import Field

from pipeline.errors import ChangedSourceError
from pipeline.files import sha256_of
from pipeline.project import Project
from pipeline.study.stages.hashes import Sha256
from training.foundation.settings import Section

_RESTORE = "Restore the encoder that the study began with."


class StudyEncoder(Section):
    """`[[encoders]]`: one encoder that embeds every slide."""

    id: str = Field(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]{0,54}-[0-9a-f]{8}$")
    """Of its features: the name of its row, and eight digits of a hash."""
    sha256: Sha256
    """Of the weights; another file of the same name is refused."""
    row_sha256: Sha256
    """Of the project's `encoders/NAME.toml`: with other tiles or colours, the same weights give other features."""

    @property
    def name(self) -> str:
        """Of the row."""
        return self.id[:-9]


def find_encoders(encoders: Iterable[StudyEncoder], project: Project) -> dict[str, Path]:
    """Row of each encoder, by its id. Each encoder is opened, which compares its weights with the row.

    Raises:
        UnreadableError: a row or its weights are missing or damaged, or the weights are others than the row says.
        ChangedSourceError: an encoder's row, weights or configuration are not those that the protocol names.
        BadRecipeError: a package that an encoder needs is not installed.
    """
    return {encoder.id: _row(encoder, project) for encoder in encoders}


def encoders_named(names: Sequence[str], project: Project) -> list[StudyEncoder]:
    """A project's encoders as a protocol names them, in their present state.

    Raises:
        UnreadableError, BadRecipeError: as `find_encoders`. BadManifestError: not a name.
    """
    return [_present(_find(name, project)) for name in names]


def _row(encoder: StudyEncoder, project: Project) -> Path:
    path = _find(encoder.name, project)
    _compare(path, encoder, "a row", sha256_of(path), encoder.row_sha256)
    present = _present(path)
    _compare(path, encoder, "weights", present.sha256, encoder.sha256)
    if present.id != encoder.id:
        raise ChangedSourceError(
            f"{path}: is encoder {present.id}, but the protocol names {encoder.id}: the configuration beside its "
            f"weights is another. {_RESTORE}"
        )
    return path


def _compare(path: Path, encoder: StudyEncoder, what: str, now: str, then: str) -> None:
    if now != then:
        raise ChangedSourceError(
            f"{path}: has {what} with SHA-256 {now[:12]}…, but the protocol names for {encoder.id} {then[:12]}…. "
            f"{_RESTORE}"
        )


# What opens an encoder is imported where it is needed: reading a protocol needs none of it.


def _find(name: str, project: Project) -> Path:
    from pipeline.embedding.rows import find_encoder

    return find_encoder(name, project)


def _present(path: Path) -> StudyEncoder:
    from pipeline.batches.where import RunOn
    from pipeline.embedding.encoder import TileEncoder

    row_sha256 = sha256_of(path)
    encoder = TileEncoder.load(path, RunOn("cpu"))
    return StudyEncoder(id=encoder.encoder_id, sha256=encoder.weights_sha256, row_sha256=row_sha256)
