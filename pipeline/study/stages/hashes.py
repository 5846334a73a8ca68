"""One SHA-256 of all files of a folder."""

from pathlib import Path

from pipeline.files import sha256_of
from pipeline.ledger.chain import digest


def folder_sha256(folder: Path) -> str:
    """SHA-256 of its files by name; hidden ones do not count. Raises OSError: one cannot be read."""
    paths = [path for path in folder.rglob("*") if path.is_file() and path.name[0] != "."]
    return digest({path.relative_to(folder).as_posix(): sha256_of(path) for path in paths})
