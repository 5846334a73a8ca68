"""Strangers' requests are refused at once and the app contacts nobody: behind a silent proxy, and with no network."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from tests.attacks.web_strangers import attack

IN_A_NAMESPACE = ["unshare", "--map-root-user", "--net", "sh", "-c"]


def test_strangers_are_refused_at_once_and_nobody_is_asked() -> None:
    assert attack(120, 1).findings == []


def test_without_any_network_strangers_are_refused_at_once() -> None:
    """Run in a network namespace with a loopback interface and no route."""
    if not shutil.which("unshare") or not shutil.which("ip"):
        pytest.skip("!! unshare or ip is missing: the app was not tried without any network")
    may = subprocess.run([*IN_A_NAMESPACE, "ip link set lo up"], capture_output=True, text=True, check=False)
    if may.returncode:
        pytest.skip(f"!! no network namespace of our own here: {may.stderr.strip()}")
    program = f"ip link set lo up && exec '{sys.executable}' -m tests.attacks.web_strangers --times 25 --seed 2"

    done = subprocess.run([*IN_A_NAMESPACE, program], capture_output=True, text=True, check=False, timeout=120)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "25 attempts, 0 findings" in done.stdout
