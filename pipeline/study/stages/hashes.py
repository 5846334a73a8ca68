"""SHA-256 in a protocol, and one of all files of a folder."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from pipeline.files import sha256_of
from pipeline.ledger.chain import digest

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


def folder_sha256(folder: Path) -> str:
    """SHA-256 of its files by name; hidden ones do not count. Raises OSError: one cannot be read."""
    paths = [path for path in folder.rglob("*") if path.is_file() and path.name[0] != "."]
    return digest({path.relative_to(folder).as_posix(): sha256_of(path) for path in paths})
