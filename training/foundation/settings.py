"""Settings and recipes: tables of a TOML file as checked, frozen objects. A misspelt key is an error with a hint.

Findings are one sentence each, and name a key as it appears in the file: `[ingest.tissue] min_delta_e`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Tag, ValidationError

from training.foundation.errors import BadRecipeError
from training.foundation.toml_file import read_toml
from training.foundation.words.findings import message_of
from training.foundation.words.spelling import nearest


class Section(BaseModel):
    """Base of every table: frozen, rejects misspelt keys and numbers that are not finite."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


T = TypeVar("T", bound=Section)


def load_section(kind: type[T], path: Path, *, default: T | None = None) -> T:
    """Read a TOML file as `kind`.

    Args:
        default: used if the file does not exist; None: it must exist.

    Raises:
        BadRecipeError: cannot be read, not TOML, an unknown key, or values that do not fit.
    """
    try:
        raw = read_toml(path)
    except OSError as error:
        if default is not None and isinstance(error, FileNotFoundError | NotADirectoryError):
            return default
        raise BadRecipeError(f"{path}: cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise BadRecipeError(f"{path}: not valid TOML: {error}.") from error
    return parse_section(kind, raw, where=str(path))


def parse_section(kind: type[T], raw: Mapping[str, object], *, where: str) -> T:
    """Check settings, and explain each finding in a sentence.

    Args:
        where: source of the settings, such as a file, for the message.

    Raises:
        BadRecipeError: an unknown key, or values that do not fit.
    """
    try:
        return kind.model_validate(raw)
    except ValidationError as error:
        findings = "; ".join(_sentence(kind, dict(detail)) for detail in error.errors())
        raise BadRecipeError(f"{where}: {findings}" + ("" if findings.endswith("?") else ".")) from error


def replace(section: T, **changes: object) -> T:
    """A copy of `section` with the options that were given (not None) on the command line.

    Raises:
        BadRecipeError: values that do not fit.
    """
    given = {key: value for key, value in changes.items() if value is not None}
    return parse_section(type(section), {**section.model_dump(), **given}, where="command line")


def did_you_mean(word: str, known: Iterable[str], *, what: str = "keys") -> str:
    """A hint with the known word nearest to a misspelt one; with all of them if none is near."""
    near = nearest(word, known)
    return f"did you mean `{near[0]}`?" if near else f"known {what}: {', '.join(sorted(known))}"


def _sentence(kind: type[Section], detail: dict[str, Any]) -> str:
    """Explain one of pydantic's findings to people."""
    name, around = _locate(kind, detail["loc"], detail["input"])
    if detail["type"] == "extra_forbidden":
        return f"unknown key {name}: {did_you_mean(str(detail['loc'][-1]), around.model_fields)}"
    if detail["type"] == "missing":
        return f"{name} is missing"
    message = message_of(detail)
    if isinstance(detail["input"], dict | BaseModel):  # the finding concerns a whole table
        return f"{name}: {message}" if name else message
    return f"{name} = {detail['input']!r:.200}: {message}"


def _locate(kind: type[Section], location: Iterable[int | str], value: object) -> tuple[str, type[Section]]:
    """A key as it appears in the file, and the table in which pydantic looked for it."""
    tables: list[str] = []
    keys: list[str] = []
    annotation: object = kind
    around = kind
    for part in location:
        if part in set(_tags(annotation)):  # the form that pydantic took a value for is not in the file
            continue
        inside = next(_sections(annotation), None)
        field = inside.model_fields.get(str(part)) if inside else None
        annotation, around = field.annotation if field else None, inside or around
        is_table = isinstance(annotation, type) and issubclass(annotation, Section)
        if not keys and (is_table or (field is None and isinstance(value, dict))):
            tables.append(str(part))
        else:
            keys.append(str(part))
    return " ".join(([f"[{'.'.join(tables)}]"] if tables else []) + ([".".join(keys)] if keys else [])), around


def _sections(annotation: object) -> Iterator[type[Section]]:
    """Tables that a value can be, at any depth of a union."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        yield annotation
    for inner in get_args(annotation):
        yield from _sections(inner)


def _tags(annotation: object) -> Iterator[str]:
    """Names of the forms that a value can have (pydantic's `Tag`)."""
    if isinstance(annotation, Tag):
        yield annotation.tag
    for inner in get_args(annotation):
        yield from _tags(inner)
