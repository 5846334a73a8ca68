"""Implementation of `gemslide account …`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import typer

from pathology_app.people.account_file import Account, AccountError, account_path, changing_accounts, read_accounts
from pathology_app.people.passwords import MAX_LENGTH, hash_password
from pathology_app.serving.command_errors import plain_errors
from pipeline.project import open_project
from training.foundation.errors import BadRecipeError
from training.foundation.settings import parse_section


def run_add(
    project: Path,
    name: str,
    roles: Sequence[str],
    *,
    reader: str,
    slides: Sequence[str] | None,
    email: str,
    subject: str,
) -> None:
    with plain_errors(extra="app"):
        path = account_path(open_project(project).root)
        fields = {"name": name, "roles": tuple(dict.fromkeys(roles)), "reader": reader, "email": email}
        account = _account({**fields, "subject": subject, "slides": tuple(slides) if slides else None})
        if any(existing.name == name for existing in read_accounts(path).person):
            raise AccountError(f"{name}: is in {path} already. `gemslide account remove {name}` removes it.")
        if not (email or subject):
            account = account.model_copy(update={"password": hash_password(_password(name))})
        with changing_accounts(path) as accounts:
            accounts.append(account)
        typer.echo(f"{name} may sign in as {', '.join(account.roles)} ({path})")


def run_remove(project: Path, name: str) -> None:
    with plain_errors(extra="app"):
        path = account_path(open_project(project).root)
        with changing_accounts(path) as accounts:
            accounts.remove(_find_account(accounts, name, path))
        typer.echo(f"{name} may no longer sign in ({path})")


def run_passwd(project: Path, name: str) -> None:
    with plain_errors(extra="app"):
        path = account_path(open_project(project).root)
        _find_account(read_accounts(path).person, name, path)
        hashed = hash_password(_password(name))
        with changing_accounts(path) as accounts:
            at = accounts.index(_find_account(accounts, name, path))
            accounts[at] = accounts[at].model_copy(update={"password": hashed})
        typer.echo(f"{name} has a new password, and is signed out everywhere")


def run_list(project: Path, *, as_json: bool) -> None:
    with plain_errors(extra="app"):
        path = account_path(open_project(project).root)
        accounts = read_accounts(path).person
        for account in accounts:
            fields = account.model_dump(mode="json", exclude={"password"}, exclude_none=True)
            fields["signs_in"] = "by password" if account.password else "at the provider"
            typer.echo(json.dumps(fields) if as_json else _line(fields))
        if not accounts and not as_json:
            typer.echo(f"nobody: {path} has no accounts, or does not exist. `gemslide account add NAME --role reader`")


def _account(fields: dict[str, object]) -> Account:
    return parse_section(Account, fields, where="account")


def _find_account(accounts: Sequence[Account], name: str, path: Path) -> Account:
    account = next((account for account in accounts if account.name == name), None)
    if account is None:
        raise AccountError(f"{name}: is not in {path}. `gemslide account list` shows who is.")
    return account


def _password(name: str) -> str:
    """A password, typed twice without being shown; from a pipe, the first line."""
    if sys.stdin.isatty():
        password: str = typer.prompt(f"Password for {name}", hide_input=True, confirmation_prompt=True)
        return password
    line = sys.stdin.readline(MAX_LENGTH + 2).rstrip("\r\n")
    if not line:
        raise BadRecipeError("no password on standard input. Send it there as one line, or run this in a terminal.")
    return line


def _line(fields: dict[str, object]) -> str:
    parts = [f"{key} {_field_text(value)}" for key, value in fields.items() if key != "name" and value]
    return f"{fields['name']}: " + "; ".join(parts).replace("signs_in ", "signs in ")


def _field_text(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
