"""The file of people who may sign in: `accounts.toml` of the project, or the file that GEMSLIDE_ACCOUNTS names.

version = 1

[[person]]
name = "ada"
roles = ["reader"]
password = "$argon2id$v=19$…"      # `gemslide account` writes it
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from pathology_app.people.passwords import is_hash
from pathology_app.people.person import Person, Role
from training.foundation.errors import BadRecipeError, GemslideError
from training.foundation.publish import explain_unwritable, replace_file
from training.foundation.settings import Section, load_section, parse_section
from training.foundation.words.names import ALLOWED, comparable, is_name

ACCOUNTS_FILE = "accounts.toml"
ACCOUNTS_VARIABLE = "GEMSLIDE_ACCOUNTS"
STUDY_PREFIX = "study:"
_OTHERS = 0o077
_PATTERN = re.compile(r"[A-Za-z0-9._*?\[\]!-]{1,80}", re.ASCII)


class AccountError(GemslideError):
    """A request about accounts cannot be carried out."""

    code = "account"


def _checked_name(name: str) -> str:
    if not is_name(name):
        raise ValueError(f"expected {ALLOWED}")
    return name


def _checked_hash(password: str) -> str:
    if password and not is_hash(password):
        raise ValueError("not an Argon2id hash as `gemslide account` writes it")
    return password


def _checked_line(text: str) -> str:
    if len(text) > 200 or not text.isprintable() or text != text.strip():
        raise ValueError("expected at most 200 printable characters, without blanks around them")
    return comparable(text)


def _checked_slides(pattern: str) -> str:
    study = pattern.removeprefix(STUDY_PREFIX)
    if not (is_name(study) if study != pattern else _PATTERN.fullmatch(pattern)):
        raise ValueError("name slides as in S-001 or S-0*, or a study as in study:sites")
    return pattern


Line = Annotated[str, AfterValidator(_checked_line)]


class Account(Section):
    """`[[person]]`"""

    name: Annotated[str, AfterValidator(_checked_name)]
    roles: tuple[Role, ...] = Field(min_length=1, max_length=4)
    password: Annotated[str, AfterValidator(_checked_hash)] = Field("", repr=False)
    """Its hash; empty: this person only signs in elsewhere."""
    email: Line = ""
    """As the provider reports it, if it has verified it."""
    subject: Line = ""
    """The provider's own name for the person (`sub`), which never changes."""
    reader: Line = ""
    """The pseudonym under which they read for studies."""
    slides: tuple[Annotated[str, AfterValidator(_checked_slides)], ...] | None = Field(None, max_length=1000)
    """Slides they may see, by patterns of names, and studies (`study:sites`); left out: all."""

    @property
    def person(self) -> Person:
        """The person who acts when this account is signed in."""
        return Person(self.name, frozenset(self.roles), self.reader or None, self.slides)

    @property
    def stamp(self) -> str:
        """Changes with the person's credentials, which ends their sessions."""
        return hashlib.sha256(json.dumps([self.name, self.password, self.email, self.subject]).encode()).hexdigest()


class AccountFile(Section):
    """The whole file."""

    version: Literal[1] = 1
    person: tuple[Account, ...] = Field((), max_length=10_000)

    @model_validator(mode="after")
    def _each_is_one_person(self) -> AccountFile:
        for key in ("name", "email", "subject", "reader"):
            texts = [getattr(person, key).casefold() for person in self.person if getattr(person, key)]
            if twice := {text for text in texts if texts.count(text) > 1} if len(set(texts)) < len(texts) else set():
                raise ValueError(f"two people have the {key} {min(twice)}")
        return self


def account_path(project_root: Path) -> Path:
    """Path of a project's accounts, whether or not the file exists."""
    name = os.environ.get(ACCOUNTS_VARIABLE)
    return Path(name).absolute() if name else project_root / ACCOUNTS_FILE


def check_account_path(project_root: Path) -> None:
    """Raises AccountError: the project's file is a link. A project must not choose accounts elsewhere."""
    path = account_path(project_root)
    if path.is_symlink() and not os.environ.get(ACCOUNTS_VARIABLE):
        raise AccountError(f"{path}: is a link. Put the file itself there, or name it in {ACCOUNTS_VARIABLE}.")


def read_accounts(path: Path) -> AccountFile:
    """The accounts; none where there is no file.

    Raises:
        BadRecipeError: it cannot be read or is invalid. AccountError: others may read or write it.
    """
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return AccountFile()
    except OSError as error:
        raise BadRecipeError(f"{path}: cannot be read: {error.strerror}.") from error
    if mode & _OTHERS:
        raise AccountError(
            f"{path}: has mode {mode & 0o777:o}, so others can see or change who may sign in. "
            f"Check its contents, then run: chmod 600 {path}"
        )
    return load_section(AccountFile, path)


@contextmanager
def changing_accounts(path: Path) -> Iterator[list[Account]]:
    """The accounts as a list, which is written at the end of the block. Other writers wait.

    Raises:
        BadRecipeError, AccountError: as `read_accounts`, or the list is invalid. DiskFullError: not writable.
    """
    with explain_unwritable(path):
        descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        accounts = list(read_accounts(path).person)
        yield accounts
        parse_section(AccountFile, {"person": [account.model_dump() for account in accounts]}, where=str(path))
        with explain_unwritable(path):
            replace_file(path, _as_toml(accounts).encode(), mode=0o600)
    finally:
        os.close(descriptor)


def _as_toml(accounts: Sequence[Account]) -> str:
    lines = ["# Who may sign in to the web app. Written by `gemslide account`; mode 600.", "version = 1"]
    for account in accounts:
        lines += ["", "[[person]]"]
        fields = account.model_dump(mode="json", exclude_none=True)
        # A JSON text or list of printable characters is valid TOML, too.
        lines += [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in fields.items() if value != ""]
    return "\n".join(lines) + "\n"
