"""Foreign text is shown as plain text."""

from __future__ import annotations

from pathlib import Path

import pytest

from pathology_app.html.text import MAX_SHOWN, as_markdown, as_text, message_of
from training.foundation.errors import UnreadableError


@pytest.mark.parametrize("name", ["S-001", "demo-0a1b2c3d", "tumour, grade 2", "9 × 8 mm"])
def test_plain_names_stay_what_they_are(name: str) -> None:
    """Also when copied from the page: no invisible characters."""
    assert as_text(name) == name
    assert as_markdown(name).replace("\\", "") == name


@pytest.mark.parametrize(
    ("text", "markdown"),
    [
        ("![x](http://a/b.png)", r"\!\[x\]\(http\:⁠\/\/a\/b\.png\)"),
        (":red[a]", r"\:⁠red\[a\]"),
        (":material/home:", r"\:⁠material\/home\:"),
        ("$x$ `y` *z* _u_ ~~v~~", r"\$x\$ \`y\` \*z\* \_u\_ \~\~v\~\~"),
        ("<img src=x>", r"\<img src\=x\>"),
        ("a\\", r"a\\"),
        ("# a\n- b", r"\# a \- b"),
        ("www.a.b", "www⁠\\.a\\.b"),
        ("a@b.c", "a\\@⁠b\\.c"),
        ("a -> b", r"a \-⁠\> b"),
        ("&amp;", r"\&amp\;"),
        ("    code", "code"),
    ],
)  # fmt: skip
def test_markdown_is_escaped(text: str, markdown: str) -> None:
    assert as_markdown(text) == markdown


def test_what_cannot_be_drawn_is_marked() -> None:
    assert as_text("a\u202eb\x00c\ud800d\ue000") == "a\ufffdb\ufffdc\ufffdd\ufffd"
    assert as_text("a\r\nb\tc") == "a  b c"
    assert len(as_text("x" * 10**6)) == MAX_SHOWN


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("/data/study/slides/a.ome.zarr: damaged", "slides/a.ome.zarr: damaged"),
        ("nothing in /data/study", "nothing in the project"),
        ("[Errno 13] Permission denied: '/data/study/slides/a'", "[Errno 13] Permission denied: 'slides/a'"),
        ("[Errno 2] No such file: '/home/jo/x/y.py'", "[Errno 2] No such file: '…/y.py'"),
        ("s3://scans/trial/x: cannot be read (no such object).", "…/x: cannot be read (no such object)."),
        ("9 mm/px, 3/4", "9 mm/px, 3/4"),
    ],
)
def test_messages_name_no_folder_outside_the_project(said: str, shown: str) -> None:
    assert message_of(UnreadableError(said), Path("/data/study")) == shown
