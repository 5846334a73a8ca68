"""A damaged or foreign project: one of its files is changed at random, and a verb is run on it.

Whatever is changed, a verb ends in time, with an exit code and a message, never with a traceback; and no other
published file of the project is lost. `python -m tests.attacks.damaged_projects --times 1500 --seed 0`
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from pipeline.cli import cli
from tests.attacks.attack import Result, main
from tests.small_trained_project import SmallProject, make_small_project

LONGEST_S = 60
ODD: tuple[Any, ...] = (
    None, "", "x", "../x", "![x](http://127.0.0.1/)", "\ud800", "a\0b", 0, -1, 1e300, 10**30, float("nan"),
    float("inf"), True, [], {}, [[]], ["a"], {"a": 1}, "9" * 300,
)  # fmt: skip
TEXTS = ("", "{", "[]", "null", "[" * 100_000, "9" * 5000, "\0", "a = 1", '{"a": 1}', "Ã\x28")

VERBS: tuple[tuple[str, ...], ...] = (
    ("info", "small-test"),
    ("verify", "--sample-chunks", "2"),
    ("qc", "small-test"),
    ("tile", "--tile-set", "fresh", "--tile-px", "32", "--tile-mpp", "1.0"),
    ("infer", "{model}", "small-test"),
    ("evaluate", "{model}", "--tile-set", "small", "--no-baselines"),
    ("export", "small-test", "{out}", "--to", "ngff-0.5"),
    ("export", "small-test", "{out}", "--to", "ngff-0.4"),
    ("export", "small-test", "{out}", "--to", "ome-tiff"),
)


class TookTooLongError(Exception):
    """A verb did not end."""


def prepare(small_project: SmallProject) -> SmallProject:
    """Add quality scores, predictions and an evaluation: more kinds of files to damage."""
    for verb in (
        ("qc",),
        ("infer", small_project.model_id),
        ("evaluate", small_project.model_id, "--tile-set", "small"),
    ):
        done = CliRunner().invoke(cli, [*verb, "--project", str(small_project.project.root)])
        assert done.exit_code == 0, done.output
    return small_project


def attack(times: int, seed: int, small_project: SmallProject | None = None) -> Result:
    """Args: small_project: a prepared project; made if not given."""
    result, chance = Result("hostile projects"), random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        small_project = small_project or prepare(make_small_project(home / "small_project"))
        for number in range(times):
            project = home / "project"
            shutil.copytree(small_project.project.root, project, symlinks=True)
            what = _change_one(project, chance)
            verb = chance.choice(VERBS)
            _run(result, f"{number}: {what}; {verb[0]}", verb, project, small_project.model_id)
            shutil.rmtree(project)
            out = home / "out"
            shutil.rmtree(out, ignore_errors=True) if out.is_dir() else out.unlink(missing_ok=True)
    return result


def _run(result: Result, what: str, verb: tuple[str, ...], project: Path, model_id: str) -> None:
    result.attempts += 1
    arguments = [part.format(model=model_id, out=project.parent / "out") for part in verb]
    before = _published(project)
    try:
        with _time_limit(LONGEST_S):
            done = CliRunner().invoke(cli, [*arguments, "--project", str(project)])
    except TookTooLongError:
        result.findings.append(f"{what}: did not end in {LONGEST_S} s")
        return
    error = done.exception
    if error is not None and not isinstance(error, SystemExit):
        lines = traceback.format_exception(error)[-3:]
        result.findings.append(f"{what}: {type(error).__name__}: {error!s:.150} {lines[0].strip():.300}")
    result.check("Traceback" not in done.output, f"{what}: shows a traceback")
    if done.exit_code:
        result.check(len(done.output) > 20, f"{what}: ends with {done.exit_code} without a word")
    gone = before - _published(project)
    result.check(not gone, f"{what}: {sorted(gone)[:3]} are gone")


def _published(project: Path) -> set[str]:
    """Paths that no verb may remove: stores, tables, models and their files."""
    kept = ("slides", "tiles", "models")
    paths = {str(path.relative_to(project)) for name in kept for path in (project / name).glob("*")}
    return paths | {str(path.relative_to(project)) for path in (project / "slides").glob("*/0/*/c/*/*")}


@contextmanager
def _time_limit(seconds: int) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TookTooLongError

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _change_one(project: Path, chance: random.Random) -> str:
    """Change one file, usually metadata. Return a description of the change."""
    files = sorted(path for path in project.rglob("*") if path.is_file() and "runs" not in path.parts)
    small = [path for path in files if path.suffix in (".json", ".toml", ".parquet", ".safetensors")]
    path = chance.choice(small if chance.random() < 0.8 else files)
    name = path.relative_to(project)
    change = chance.choice((_field, _field, _field, _text, _bytes, _bytes, _kind))
    return f"{name}: {change(path, chance)}"


def _field(path: Path, chance: random.Random) -> str:
    if path.suffix != ".json":
        return _bytes(path, chance)
    content = json.loads(path.read_text(encoding="utf-8"))
    places = list(_places(content))
    keys = chance.choice(places) if places else ()
    part = content
    for key in keys[:-1]:
        part = part[key]
    value = chance.choice(ODD)
    if keys and chance.random() < 0.2:
        del part[keys[-1]]
        value = "absent"
    elif keys:
        part[keys[-1]] = value
    path.write_text(json.dumps(content), encoding="utf-8")
    return f"{'.'.join(map(str, keys))} = {value!r:.40}"


def _places(content: Any, keys: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    children: Any = ()
    if isinstance(content, dict):
        children = content.items()
    elif isinstance(content, list):
        children = enumerate(content[:4])
    for key, value in children:
        yield (*keys, key)
        yield from _places(value, (*keys, key))


def _text(path: Path, chance: random.Random) -> str:
    text = chance.choice(TEXTS)
    path.write_text(text, encoding="latin-1")
    return f"now {text[:20]!r}"


def _bytes(path: Path, chance: random.Random) -> str:
    data = bytearray(path.read_bytes())
    if not data:
        return "empty as before"
    at = chance.randrange(len(data))
    if chance.random() < 0.4:
        path.write_bytes(data[:at])
        return f"cut at {at}"
    data[at] ^= 1 << chance.randrange(8)
    path.write_bytes(data)
    return f"a flipped bit at {at}"


def _kind(path: Path, chance: random.Random) -> str:
    """Remove a regular file, or replace it by another kind of file."""
    kinds: dict[str, Callable[[], object]] = {
        "gone": lambda: None,
        "a named pipe": lambda: os.mkfifo(path),
        "a folder": path.mkdir,
        "a link to itself": lambda: path.symlink_to(path),
        "a link to nowhere": lambda: path.symlink_to("/nowhere"),
        "a link to another file": lambda: path.symlink_to("/etc/hostname"),
    }
    kind = chance.choice(list(kinds))
    path.unlink()
    kinds[kind]()
    return kind


if __name__ == "__main__":
    main(attack, times=1500)
