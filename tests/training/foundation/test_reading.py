"""Foreign files: reads never block and are always bounded."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from training.foundation.reading import parse_json, read_json_file, read_regular


def test_a_named_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "zarr.json")
    with pytest.raises(OSError, match="not a regular file"):
        read_regular(tmp_path / "zarr.json", max_bytes=10)


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="not a regular file"):
        read_regular(tmp_path, max_bytes=10)


def test_a_file_is_read_up_to_its_bound_and_refused_beyond(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"0123456789")
    assert read_regular(tmp_path / "a", max_bytes=10) == b"0123456789"
    with pytest.raises(OSError, match="longer than 9 bytes"):
        read_regular(tmp_path / "a", max_bytes=9)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"a":' * 100_000,
        "1" * 5000,
        "[1e999]",
        "[-Infinity]",
        "1" * 21,
        "\xff".encode("latin-1"),
        "{",
        '[{"a": 1, "b": 2, "a": 1}]',
        r'{"a": ["\ud800"]}',
        r'{"\uDFFF": 1}',
        r'["\udc00\ud800"]',
        '["\ud800"]',
        b'["\xed\xa0\x80"]',
    ],
)
def test_json_that_cannot_be_parsed_is_one_kind_of_error(text: str | bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_json(text)


def test_two_halves_of_a_surrogate_pair_are_one_character() -> None:
    assert parse_json(rb'["\ud83d\ude00", "\\ud800"]') == ["\U0001f600", "\\ud800"]


def test_a_json_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"a": 1}', encoding="utf-8")
    assert read_json_file(tmp_path / "a.json") == {"a": 1}
