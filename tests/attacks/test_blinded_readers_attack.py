"""Nothing of a model reaches a reader before their readings are signed, whatever they open."""

from __future__ import annotations

import pytest

from tests.attacks.blinded_readers import attack

pytestmark = pytest.mark.xdist_group("sign_in")


@pytest.mark.parametrize("times", [14, pytest.param(600, marks=pytest.mark.prove)])
def test_a_blinded_reader_is_sent_nothing_of_a_model(times: int) -> None:
    assert attack(times, seed=1).findings == []
