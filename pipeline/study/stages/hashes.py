"""One SHA-256 of all files of a folder."""

from pathlib import Path

from pipeline.files import sha256_of
from pipeline.ledger.chain import digest


def folder_sha256(folder: Path) -> str:
    """Of its files by name; hidden ones are none of its own. Raises OSError: one cannot be read."""
    paths = [path for path in folder.rglob("*") if path.is_file() and path.name[0] != "."]
    return digest({path.relative_to(folder).as_posix(): sha256_of(path) for path in paths})
