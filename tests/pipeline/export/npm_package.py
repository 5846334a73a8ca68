"""Packages of npm that tests show our files to: fetched once, checked, and kept outside the project."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

import pytest

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gemslide-tests/npm"
TIMEOUT_S = 120


def npm_package(name: str, version: str, sha512: str) -> Path:
    """Folder of a package's files. The test is skipped where it cannot be had.

    Args:
        sha512: of the package as npm states it, in base64; a package with another one fails the test.
    """
    kept = CACHE / f"{name}-{version}"
    if not kept.is_dir():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:
            packed = _packed(f"{name}@{version}", Path(folder))
            assert base64.b64encode(hashlib.sha512(packed.read_bytes()).digest()).decode() == sha512, packed.name
            with tarfile.open(packed) as archive:
                archive.extractall(folder, filter="data")
            if not kept.is_dir():
                (Path(folder) / "package").rename(kept)
    return kept


def _packed(package: str, folder: Path) -> Path:
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip(f"!! npm is missing: {package} was not tried")
    try:
        command = [npm, "pack", package, "--fetch-retries=1", "--pack-destination", str(folder)]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
        code = re.search(r"npm (?:error|ERR!) code (\w+)", done.stderr)
        why = code[1] if code else f"exit code {done.returncode}"
    except subprocess.TimeoutExpired:
        why = f"no answer in {TIMEOUT_S} s"
    packed = list(folder.glob("*.tgz"))
    if not packed:
        pytest.skip(f"!! npm cannot fetch {package}, so it was not tried ({why})")
    return packed[0]
