"""`make prove`: docs/reference/proof.md states what held, and at which commit."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / ".ci/prove.py"
spec = importlib.util.spec_from_file_location("prove", SCRIPT)
assert spec is not None
assert spec.loader is not None
prove = importlib.util.module_from_spec(spec)
sys.modules["prove"] = prove  # dataclasses look the module up here
spec.loader.exec_module(prove)

HOLDS = prove.Part("Holds", ("-c", "print('many lines'); print('=== 12 tried, 0 findings ==='); print()"))
FAILS = prove.Part("Fails", ("-c", "print('1 finding'); raise SystemExit(1)"))


@pytest.fixture
def page(tmp_path):
    return tmp_path / "proof.md"


def test_the_page_says_what_ran_on_which_commit_with_its_counts(page):
    assert prove.prove([HOLDS], page, commit="abc123") == 0

    row = rf"\| Holds \| abc123 \| 20[-0-9 :]+ \| `{re.escape(HOLDS.command)}` \| \d+ \| 12 tried, 0 findings \|"
    assert len(re.findall(row, page.read_text())) == 1


def test_a_part_that_fails_fails_the_whole_keeps_its_row_and_the_rest_runs(page, capsys):
    was = prove.Part("Fails", HOLDS.arguments)
    other = prove.Part("Other", HOLDS.arguments)
    assert prove.prove([was, other], page, commit="before") == 0

    assert prove.prove([HOLDS, FAILS, other], page, commit="after") == 1

    rows = [line.split(" | ")[:2] for line in page.read_text().splitlines() if line.startswith("| ")]
    assert rows[1:] == [["| Fails", "before"], ["| Other", "after"], ["| Holds", "after"]]
    assert "Fails failed (exit code 1): 1 finding" in capsys.readouterr().err


def test_the_page_is_left_where_there_is_no_commit_to_name(page):
    page.write_text("the proof before")

    assert prove.prove([HOLDS], page, commit=None) == 0

    assert page.read_text() == "the proof before"


def test_files_that_differ_from_the_commit_are_noticed_and_the_page_itself_may(page, tmp_path):
    def git(*arguments):
        who = ("-c", "user.name=a", "-c", "user.email=a@b.c")
        subprocess.run(["git", *who, *arguments], cwd=tmp_path, check=True, capture_output=True)

    git("init")
    (tmp_path / "code.py").write_text("1")
    git("add", ".")
    git("commit", "-m", "first")

    page.write_text("another proof")
    assert len(prove.commit_of(tmp_path, page)) == 12
    (tmp_path / "code.py").write_text("2")
    assert prove.commit_of(tmp_path, page) is None


def test_no_attack_is_left_out():
    from tests.attacks.__main__ import WHOLE

    assert sorted(prove.FILES + prove.WEB) == sorted(WHOLE)


def test_what_is_proven_is_there_to_be_run():
    for part in prove.parts(0, 10):
        flag, module = part.arguments[:2]
        assert flag == "-m"
        assert importlib.util.find_spec(module) is not None, part
