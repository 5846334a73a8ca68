"""The file of accounts, and the verbs that write it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pathology_app.access.sign_in_routes import own_path
from pathology_app.access.visibility import may_see, may_see_study, visible
from pathology_app.account_cli import account_cli
from pathology_app.people.account_file import ACCOUNTS_FILE, ACCOUNTS_VARIABLE, AccountError, read_accounts
from pathology_app.people.accounts import Accounts
from pathology_app.people.passwords import MIN_LENGTH, WeakPasswordError, hash_password, is_hash, is_password
from pathology_app.people.person import Action, Person, Role
from pathology_app.project.served import PROJECT_VARIABLE
from tests.pathology_app.signed_in import PASSWORD, add_people, hashed
from tests.pathology_app.small_study import STUDY, make_study
from training.foundation.errors import BadRecipeError

RUNNER = CliRunner()


def run(root: Path, *words: str, typed: str = "") -> tuple[int, str]:
    done = RUNNER.invoke(account_cli, [*words, "--project", str(root)], input=typed)
    return done.exit_code, done.output


def test_people_are_added_listed_given_passwords_and_removed(tmp_path: Path) -> None:
    add = ("add", "ada", "--role", "admin", "--reader", "R1", "--slides", "S-0*")
    assert run(tmp_path, *add, typed=f"{PASSWORD}\n")[0] == 0
    path = tmp_path / ACCOUNTS_FILE
    assert path.stat().st_mode & 0o777 == 0o600
    assert PASSWORD not in path.read_text()
    accounts = Accounts(path)
    ada = accounts.find("ada")
    assert ada
    assert ada.person == Person("ada", frozenset({Role.ADMIN}), "R1", ("S-0*",))
    assert is_password(PASSWORD, ada.password)
    listed = json.loads(run(tmp_path, "list", "--json")[1])
    assert (listed["name"], "password" in listed) == ("ada", False)

    assert run(tmp_path, "passwd", "ada", typed="another long password\n")[0] == 0
    changed = accounts.find("ada")
    assert changed
    assert not is_password(PASSWORD, changed.password)
    assert changed.stamp != ada.stamp  # earlier sessions have ended

    assert run(tmp_path, "add", "bob", "--role", "reader", "--email", "bob@lab.example")[0] == 0
    assert run(tmp_path, "remove", "ada")[0] == 0
    assert list(accounts.all()) == ["bob"]


@pytest.mark.parametrize(
    ("words", "typed", "said"),
    [
        (("add", "eve", "--role", "reader"), "short\n", f"{MIN_LENGTH} to"),
        (("add", "eve", "--role", "reader"), "", "no password on standard input"),
        (("add", "eve", "--role", "boss"), "", "'reader', 'reviewer', 'coordinator' or 'admin'"),
        (("add", "../eve", "--role", "reader"), "", "letters, digits"),
        (("add", "eve", "--role", "reader", "--slides", "../x"), "", "name slides as in"),
        (("add", "bob", "--role", "reader"), f"{PASSWORD}\n", "is in"),
        (("add", "eve", "--role", "reader", "--email", "a\nb"), "", "printable"),
        (("remove", "eve"), "", "is not in"),
        (("passwd", "eve"), f"{PASSWORD}\n", "is not in"),
    ],
)
def test_what_does_not_fit_is_one_message_and_changes_nothing(
    tmp_path: Path, words: tuple[str, ...], typed: str, said: str
) -> None:
    add_people(tmp_path)
    before = (tmp_path / ACCOUNTS_FILE).read_bytes()
    code, output = run(tmp_path, *words, typed=typed)
    assert (code, said in " ".join(output.split())) == (1, True), output
    assert (tmp_path / ACCOUNTS_FILE).read_bytes() == before


@pytest.mark.parametrize(
    "content",
    [
        "version = 2", "nonsense", "[[person]]\nname = 'a'", "[[person]]\nname='a'\nroles=[]",
        "[[person]]\nname='a'\nroles=['reader']\npassword='plain text'",
        "[[person]]\nname='a'\nroles=['reader']\npassword='$argon2id$v=19$m=9999999,t=999,p=99$c2FsdHNhbHQ$aGFzaGhhc2g'",
        "[[person]]\nname='a'\nroles=['reader']\nadmin=true",
        "[[person]]\nname='a'\nroles=['reader']\n[[person]]\nname='A'\nroles=['admin']",
        "[[person]]\nname='a/b'\nroles=['reader']", "person = 3",
        "[[person]]\nname='a'\nroles=['reader']\nslides=['*;']",
        "\x00", "a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.q.r = 1",
    ],
)  # fmt: skip
def test_a_hostile_file_is_one_error(tmp_path: Path, content: str) -> None:
    path = tmp_path / ACCOUNTS_FILE
    path.touch(mode=0o600)
    path.write_text(content)
    with pytest.raises(BadRecipeError, match=ACCOUNTS_FILE):
        read_accounts(path)
    with pytest.raises(BadRecipeError):
        Accounts(path).find("a")


def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    add_people(tmp_path)
    (tmp_path / ACCOUNTS_FILE).chmod(0o640)
    with pytest.raises(AccountError, match="chmod 600"):
        read_accounts(tmp_path / ACCOUNTS_FILE)


def test_the_operator_can_keep_the_file_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project, path = tmp_path / "project", tmp_path / "elsewhere.toml"
    project.mkdir()
    monkeypatch.setenv(ACCOUNTS_VARIABLE, str(path))
    assert run(project, "add", "ada", "--role", "admin", typed=f"{PASSWORD}\n")[0] == 0
    assert path.exists()
    assert not (project / ACCOUNTS_FILE).exists()


def test_a_password_is_its_own_alone() -> None:
    assert is_hash(hashed())
    assert is_password(PASSWORD, hashed())
    assert not is_password(PASSWORD + "x", hashed())
    assert not is_password(PASSWORD, None)
    for weak in ("", "x" * (MIN_LENGTH - 1), "x" * 5000):
        with pytest.raises(WeakPasswordError):
            hash_password(weak)


def test_what_a_person_may_see(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PROJECT_VARIABLE, str(tmp_path))
    make_study(tmp_path)
    everything, by_name = Person(), Person("ada", slides=("S-00[12]", "X-*"))
    by_study = Person("bob", slides=(f"study:{STUDY}",))
    assert visible(everything, ["S-001", "T"]) == ["S-001", "T"]
    assert visible(by_name, ["S-001", "S-002", "S-003", "X-7"]) == ["S-001", "S-002", "X-7"]
    assert [may_see(by_study, slide_id) for slide_id in ("S-001", "S-999")] == [True, False]
    assert not may_see(Person("eve", slides=("study:nothing",)), "S-001")
    assert not may_see(Person("eve", slides=()), "S-001")
    assert [may_see_study(person, STUDY) for person in (everything, by_name, by_study)] == [True, False, True]


def test_each_role_may_do_what_it_must_and_no_more() -> None:
    reader, coordinator = (Person("x", frozenset({role})) for role in (Role.READER, Role.COORDINATOR))
    assert [reader.may(action) for action in (Action.READ, Action.COORDINATE, Action.ADMINISTER)] == [
        True,
        False,
        False,
    ]
    assert [coordinator.may(action) for action in (Action.READ, Action.COORDINATE)] == [False, True]
    assert not any(Person("x", frozenset()).may(action) for action in Action)


@pytest.mark.parametrize("wanted", ["/", "/?slide=S-1", "/slide?slide=S-1&at=1,2,3", "/worklist"])
def test_an_own_path_is_kept(wanted: str) -> None:
    assert own_path(wanted) == wanted


@pytest.mark.parametrize(
    "wanted", [None, "", "//x", "/\\x", "https://x", "/%0a\n", "x", "/ x", "/sign-in?next=/", "/" * 9999]
)
def test_any_other_is_the_first_page(wanted: str | None) -> None:
    assert own_path(wanted) == "/"
