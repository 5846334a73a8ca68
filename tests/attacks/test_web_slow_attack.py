"""Slow and endless clients are disconnected, and nobody waits for them."""

from __future__ import annotations

from tests.attacks.web_slow import attack


def test_slow_clients_are_ended_while_tiles_keep_coming() -> None:
    assert attack(64, 1).findings == []
