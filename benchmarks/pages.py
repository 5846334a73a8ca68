"""Pages of docs/benchmarks: tables between two markers, made from the committed results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "results"


def lines_of(name: str) -> list[dict[str, Any]]:
    """Committed results of one benchmark."""
    return [json.loads(line) for line in (RESULTS / name).read_text(encoding="utf-8").splitlines()]


def between(page: str, name: str, rows: list[str]) -> str:
    """Page with new rows between its two markers of that name."""
    before, rest = page.split(f"<!-- {name} -->\n")
    _, after = rest.split(f"<!-- end of {name} -->")
    return before + f"<!-- {name} -->\n" + "\n".join(rows) + f"\n<!-- end of {name} -->" + after


def reached(target: str, value: float) -> str:
    """Whether a figure meets its target, such as "≤ 2"; empty without a target."""
    if not target:
        return ""
    sign, limit = target.split()
    fits = {"≤": value <= float(limit), "≥": value >= float(limit), ">": value > float(limit)}
    return "yes" if fits[sign] else "**no**"
