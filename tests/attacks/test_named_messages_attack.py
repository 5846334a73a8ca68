"""Short run of the attack on names in messages; `make attack` runs it in full."""

from __future__ import annotations

from tests.attacks import named_messages


def test_no_message_that_is_kept_names_a_source_or_its_folder() -> None:
    result = named_messages.attack(6, 3)

    assert result.findings == []
    assert result.attempts > 250


def test_the_search_finds_a_name_in_every_writing() -> None:
    """Without this, the attack could not fail."""
    for text in ("M\\xfcller", "M%C3%BCller", "MU\u0308LLER", "M&uuml;ller", "M\\u00fcller", "Mu\u0308ller", "MÃ¼ller"):
        assert named_messages.found_in(f"of {text}.svs", ["Müller"]) == ["Müller"], text
    assert named_messages.found_in("nobody", ["Müller"]) == []
