"""Hashes of files; and the functions that write files, which are in `training.foundation.publish`."""

from __future__ import annotations

import hashlib
import os
import threading
import unicodedata
from collections.abc import Sequence
from pathlib import Path

from training.foundation.locks import lock_temporary as lock_temporary
from training.foundation.publish import SHORT_WRITE_S as SHORT_WRITE_S
from training.foundation.publish import explain_unwritable as explain_unwritable
from training.foundation.publish import fsync_dir as fsync_dir
from training.foundation.publish import new_folder as new_folder
from training.foundation.publish import remove as remove
from training.foundation.publish import replace_file as replace_file
from training.foundation.publish import write_bytes_atomic as write_bytes_atomic
from training.foundation.publish import write_new_text as write_new_text
from training.foundation.publish import write_text_atomic as write_text_atomic
from training.foundation.reading import open_regular


def in_form_on_disk(folder: Path, relative: str) -> Path:
    """A path below a folder in the Unicode form that its names have on the disk; unchanged if none exists.

    A table written on one computer may spell "Müller" in six characters and another's disk in seven.
    """
    if relative.isascii():
        return folder / relative
    at = folder
    for part in Path(relative).parts:
        forms = (part, *(unicodedata.normalize(form, part) for form in ("NFC", "NFD")))
        at = next((at / form for form in forms if "\0" not in form and os.path.lexists(at / form)), at / part)
    return at


def sha256_of(path: Path, stop: threading.Event | None = None) -> str:
    """SHA-256 of a file's bytes, as hexadecimal text; of only some of them if `stop` is set meanwhile."""
    digest, piece = hashlib.sha256(), memoryview(bytearray(2**20))
    with open(open_regular(path), "rb", buffering=0) as stream:
        while (count := stream.readinto(piece)) and not (stop and stop.is_set()):
            digest.update(piece[:count])
    return digest.hexdigest()


def sha256_of_files(paths: Sequence[Path], stop: threading.Event | None = None) -> str:
    """SHA-256 of one file's bytes; of several, that of their sorted digests, whatever the names of the files."""
    digests = sorted(sha256_of(path, stop) for path in paths)
    return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()
