"""A model package's description of itself, for a report: as much as can be read, since it may come from elsewhere."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training.foundation.reading import read_json_file, read_regular

MAX_BYTES = 2**20
MAX_METRICS, MAX_TEXT, MAX_WORD = 12, 700, 200
_FACTS = {
    "architecture": "architecture",
    "patch_size_pixels": "tile, px",
    "spacing_um_px": "tile, µm/px",
}
_OWN_FACTS = {
    "read": "tile, read",
    "run_id": "trained by run",
    "epoch": "epoch",
    "weights_sha256": "SHA-256 of the weights",
}
_SECTIONS = re.compile(r"^#+\s*(intended use|limits|limitations|data)\b[^\n]*\n(.*?)(?=^#|\Z)", re.I | re.M | re.S)


@dataclass(frozen=True)
class ModelEssentials:
    """Essentials for a page: every text is short, and must be escaped like any other."""

    facts: dict[str, str]
    metrics: dict[str, str]
    sections: dict[str, str]
    """Sections of the card: intended use, limits, data, where present."""
    missing: tuple[str, ...]
    """Files that are missing or cannot be read."""


def read_essentials(package: Path | None) -> ModelEssentials:
    """The essentials of a package; what is missing or damaged is named and left out."""
    if package is None:
        return ModelEssentials({}, {}, {}, ())
    missing: list[str] = []
    config = _table(package / "config.json", missing)
    own = config.get("gemslide")
    facts = {label: _short(config[key]) for key, label in _FACTS.items() if _is_plain(config.get(key))}
    facts |= {
        label: _short(own[key])
        for key, label in _OWN_FACTS.items()
        if isinstance(own, dict) and _is_plain(own.get(key))
    }
    return ModelEssentials(
        facts, _metrics(_table(package / "metrics.json", missing)), _card(package / "card.md", missing), tuple(missing)
    )


def _table(path: Path, missing: list[str]) -> dict[str, Any]:
    try:
        content = read_json_file(path, max_bytes=MAX_BYTES)
    except (OSError, ValueError):
        content = None
    if isinstance(content, dict):
        return content
    missing.append(path.name)
    return {}


def _is_plain(value: object) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)


def _short(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)[:MAX_WORD]


def _metrics(table: dict[str, Any]) -> dict[str, str]:
    plain = [(str(name)[:MAX_WORD], f"{value:.4g}") for name, value in table.items() if isinstance(value, int | float)]
    return dict(plain[:MAX_METRICS])


def _card(path: Path, missing: list[str]) -> dict[str, str]:
    try:
        text = read_regular(path, max_bytes=MAX_BYTES).decode()
    except (OSError, ValueError):
        missing.append(path.name)
        return {}
    sections = {title.capitalize(): _prose(body) for title, body in _SECTIONS.findall(text)}
    if not sections:  # cards of versions before 0.2 have no headings; their last paragraph explains the numbers
        sections = {"Card": _prose(text.strip().rpartition("\n\n")[2])}
    return {title: body for title, body in sections.items() if body}


def _prose(markdown: str) -> str:
    """Running text of a section, without tables."""
    lines = [line for line in markdown.splitlines() if not line.lstrip().startswith(("|", "#"))]
    words = " ".join(" ".join(lines).replace("*", "").replace("`", "").split())
    return words if len(words) <= MAX_TEXT else words[:MAX_TEXT].rstrip() + " …"
