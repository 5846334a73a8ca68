"""`make audit`: licences that an Apache-2.0 product may ship; those of the locked packages are among them."""

from __future__ import annotations

import importlib.util
from email.message import Message
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / ".ci/licences.py"
spec = importlib.util.spec_from_file_location("licences", SCRIPT)
assert spec is not None
assert spec.loader is not None
licences = importlib.util.module_from_spec(spec)
spec.loader.exec_module(licences)


def verdict(**fields: str | list[str]) -> str | None:
    metadata = Message()
    for name, values in fields.items():
        for value in [values] if isinstance(values, str) else values:
            metadata[name.replace("_", "-")] = value
    return licences.why_not(licences.licence_of("some-package", metadata))


@pytest.mark.parametrize(
    "expression",
    [
        "MIT",
        "MIT OR GPL-3.0-only",
        "LGPL-3.0",
        "LGPL-2.1-or-later AND (GPL-2.0-only OR MPL-1.1)",
        "GPL-3.0-or-later WITH GCC-exception-3.1",
        "Apache-2.0 WITH LLVM-exception",
        "((MIT))",
    ],
)
def test_a_licence_that_may_be_shipped_passes(expression):
    assert verdict(License_Expression=expression) is None


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("GPL-3.0-only", "reach the whole program"),
        ("GPL-2.0-or-later WITH Font-exception-2.0", "reach the whole program"),
        ("MIT AND GPL-3.0-or-later", "reach the whole program"),
        ("AGPL-3.0-only OR SSPL-1.0", "reach the whole program"),
        ("CC-BY-NC-4.0", "forbids commercial use"),
        ("MIT AND CC-BY-NC-SA-4.0", "forbids commercial use"),
        ("LicenseRef-NonCommercial", "forbids commercial use"),
        ("Mystery-1.0", "is not known"),
        ("MIT Mystery", "not understood"),
        ("(MIT", "not understood"),
        ("MIT AND", "not known"),
    ],
)
def test_a_licence_that_may_not_be_shipped_or_is_not_understood_fails(expression, why):
    assert why in str(verdict(License_Expression=expression))


def test_a_package_that_says_nothing_fails():
    assert "says nothing" in str(verdict())
    assert "not known" in str(verdict(License="UNKNOWN"))


def test_the_field_and_the_classifiers_must_both_pass():
    gpl, mit = (
        "License :: OSI Approved :: " + name for name in ("GNU General Public License v3 (GPLv3)", "MIT License")
    )

    assert verdict(Classifier=mit) is None
    assert verdict(License="MIT", Classifier=mit) is None
    assert verdict(License="Copyright (c) 2001 by its authors.\nAll of it.", Classifier=mit) is None
    assert "whole program" in str(verdict(Classifier=gpl))
    assert "whole program" in str(verdict(License="MIT", Classifier=gpl))
    assert "whole program" in str(verdict(Classifier=[mit, gpl]))
    assert verdict(License="GNU GPL v3", Classifier=mit) is not None


def test_every_locked_package_may_be_shipped():
    names = licences.locked()
    rows, failures = licences.audit(names)

    assert failures == []
    assert [name for name, *_ in rows] == names
    assert {"torch", "numpy", "pyside6"} <= set(names)


def test_a_package_that_is_locked_but_not_there_fails():
    assert licences.audit(["no-such-package"])[1] == [
        "no-such-package: is locked but not installed; run `make setup`"
    ]  # fmt: skip


def test_what_a_person_has_read_is_needed_and_has_its_reason():
    assert set(licences.REVIEWED) <= set(licences.locked())
    assert all(licences.why_not(licence) is None and reason for licence, reason in licences.REVIEWED.values())
