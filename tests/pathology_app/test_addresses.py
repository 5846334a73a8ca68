"""X-Forwarded-For is trusted only from the installation's proxies, and only the part that they wrote."""

from __future__ import annotations

import ipaddress

import pytest

from pathology_app.callers.addresses import client_address, neighbourhood

PROXIES = tuple(map(ipaddress.ip_network, ("127.0.0.1/32", "10.0.0.0/8", "fd00::/8")))


def address(client: str, *forwarded: str, proxies: tuple = PROXIES) -> str:
    headers = [(b"x-forwarded-for", value.encode()) for value in forwarded]
    return client_address({"type": "http", "client": (client, 1), "headers": headers}, proxies)


@pytest.mark.parametrize(
    ("client", "said", "expected"),
    [
        ("203.0.113.9", ["198.51.100.1"], "203.0.113.9"),
        ("127.0.0.1", ["198.51.100.1"], "198.51.100.1"),
        ("127.0.0.1", [], "127.0.0.1"),
        ("127.0.0.1", ["1.2.3.4, 198.51.100.1"], "198.51.100.1"),
        ("127.0.0.1", ["1.2.3.4, 198.51.100.1, 10.1.1.1"], "198.51.100.1"),
        ("127.0.0.1", ["1.2.3.4", "198.51.100.1", "10.1.1.1"], "198.51.100.1"),
        ("127.0.0.1", ["10.9.9.9, 10.1.1.1"], "10.9.9.9"),
        ("127.0.0.1", ["198.51.100.1, unknown, 10.1.1.1"], "10.1.1.1"),
        ("127.0.0.1", ["<script>, 10.1.1.1"], "10.1.1.1"),
        ("127.0.0.1", ["198.51.100.1, "], "127.0.0.1"),
        ("127.0.0.1", ["198.51.100.1:4711"], "198.51.100.1"),
        ("fd00::1", ['"[2001:db8::7]:4711"'], "2001:db8::7"),
        ("fd00::1", ["2001:db8::7"], "2001:db8::7"),
        ("::ffff:127.0.0.1", ["::ffff:198.51.100.1"], "198.51.100.1"),
        ("fe80::1%eth0", ["198.51.100.1"], "fe80::1"),
        ("nonsense", ["198.51.100.1"], "unknown"),
    ],
)
def test_the_first_address_from_the_end_that_is_no_proxys_is_the_callers(
    client: str, said: list[str], expected: str
) -> None:
    assert address(client, *said) == expected


def test_without_proxies_nobody_is_believed() -> None:
    assert address("127.0.0.1", "198.51.100.1", proxies=()) == "127.0.0.1"


def test_a_household_counts_as_one() -> None:
    assert neighbourhood("2001:db8:1:2:3::4") == neighbourhood("2001:db8:1:2:ffff::1") == "2001:db8:1:2::/64"
    assert neighbourhood("198.51.100.1") == "198.51.100.1"
