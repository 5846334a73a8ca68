"""Files that run code and that this user trusts: one small file per SHA-256, outside of every project.

A project or a package may come from anyone, so neither can vouch for itself.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path

from training.foundation.publish import write_text_atomic


def trusted_dir() -> Path:
    """`$XDG_CONFIG_HOME/gemslide/trusted`, by default below `~/.config`."""
    configured = os.environ.get("XDG_CONFIG_HOME", "")
    base = Path(configured) if Path(configured).is_absolute() else Path.home() / ".config"
    return base / "gemslide" / "trusted"


def is_trusted(sha256: str) -> bool:
    """Whether a file with this SHA-256 may run its code here."""
    return (trusted_dir() / f"{sha256}.json").is_file()


def trust(sha256: str) -> None:
    """Record that a file with this SHA-256 may run its code when this user loads it.

    Raises:
        DiskFullError: the folder cannot be written.
    """
    entry = {"sha256": sha256, "utc": datetime.now(UTC).isoformat(timespec="seconds")}
    write_text_atomic(trusted_dir() / f"{sha256}.json", json.dumps(entry) + "\n")
