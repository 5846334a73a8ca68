"""Names of slide files and their folders in every failure message: none is left where messages are stored.

`python -m tests.attacks.named_messages`: names of many kinds × cleaned messages of the system, libraries and our own
code about such a file; then a study whose slides fail in every way, with a byte-by-byte
search of its ledger, report and tables.
"""

from __future__ import annotations

import html
import json
import os
import random
import re
import shutil
import sqlite3
import subprocess
import tempfile
import traceback
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from urllib.parse import unquote, unquote_plus
from xml.etree import ElementTree

import numpy as np
import openslide
import tifffile
from PIL import Image

from pathology_app.jobs.log_writer import LogWriter
from pipeline.errors import ProcessFailedError
from pipeline.files import sha256_of
from pipeline.jobs.key import Key
from pipeline.jobs.stage import Stage, StageReport
from pipeline.ledger.ledger import Ledger
from pipeline.ledger.opening import open_ledger
from pipeline.naming.sources import SourceNames
from pipeline.project import Project
from pipeline.slides import open_slide
from pipeline.study.protocol import Protocol, load_study_cohort, study_dir
from pipeline.study.report.compose import sections_of
from pipeline.study.report.facts import gather
from pipeline.study.report.publish import render
from pipeline.study.stages.kind import sources_of
from pipeline.study.work.leases import Lease, Leases
from pipeline.study.work.limits import Limits
from pipeline.study.work.origin import Origin
from pipeline.study.work.owner import this_process
from pipeline.study.work.patients import Patients
from pipeline.study.work.stages import StudyStages
from pipeline.study.work.study import Study, _Work, names_of_sources, slides_of
from pipeline.study.work.worker import Worker
from tests.attacks.attack import Result, main
from training.foundation.errors import UnreadableError

FIRST = (
    "Erika",
    "Søren",
    "Zoë",
    "François",
    "Łukasz",
    "Дмитрий",
    "Jürgen",
    "Ngọc",
    "O'Neill",
    "José María",
    "愛子 さくら",
)
LAST = (
    "Mustermann",
    "Müller",
    "D'Artagnan",
    "Ångström",
    "Nuñez y Peña",
    "Çelik",
    "Иванова",
    "van der Velden",
    "Roe-Smythe",
)
MARKS = ("_", " ", "^", ", ", "%20", "\\", '"', "&", "#", "+", "(1) ", "'", ";", "=", "–", "<b>", "\t", "@", "{", "..")
SHORTEST_WORD = 4
MODEL = "m-00000000"


def made_name(chance: random.Random) -> tuple[str, list[str]]:
    """File stem that names a person, and the words that must not be found."""
    first, last = chance.choice(FIRST), chance.choice(LAST)
    born = f"19{chance.randrange(20, 99)}{chance.randrange(10, 13)}{chance.randrange(10, 29)}"
    stem = chance.choice(MARKS).join(chance.sample([first, last, born], 3))
    stem = unicodedata.normalize(chance.choice(["NFC", "NFD"]), stem)
    return stem, [
        word for part in (first, last, born) for word in re.findall(r"\w+", part) if len(word) >= SHORTEST_WORD
    ]


def found_in(text: str, words: list[str]) -> list[str]:
    """Words that a text contains in any reversible encoding."""
    readings = {text, unquote(text), unquote_plus(text), html.unescape(text), text.replace("\\", "")}
    for errors in ("ignore",):
        readings.add(text.encode("latin-1", errors).decode("utf-8", errors))
        readings.add(re.sub(r"\\(u[0-9a-f]{4}|x[0-9a-f]{2})", lambda hit: chr(int(hit[1][1:], 16)), text))
    plain = [unicodedata.normalize("NFC", reading).casefold() for reading in readings]
    return [
        word for word in words if any(unicodedata.normalize("NFC", word).casefold() in reading for reading in plain)
    ]


def raised(work: Callable[[], object]) -> tuple[str, str]:
    """Message of the error raised by `work`, and its traceback."""
    try:
        work()
    except Exception as error:
        return str(error) or repr(error), traceback.format_exc()
    return "", ""


def messages(path: Path, chance: random.Random) -> Iterator[tuple[str, str]]:
    """Messages about a file that is no slide, each with the library that raised it."""
    missing = path.with_name(f"{path.stem}-2{path.suffix}")
    libraries: dict[str, Callable[[], object]] = {
        "open": lambda: missing.open(),
        "mkdir": lambda: path.mkdir(),
        "rename": lambda: os.rename(missing, path),
        "OpenSlide": lambda: openslide.OpenSlide(path),
        "tifffile": lambda: _with_tifffile(path),
        "Pillow": lambda: _with_pillow(path),
        "expat": lambda: ElementTree.parse(path),
        "numpy": lambda: np.load(path),
        "sqlite": lambda: sqlite3.connect(missing.as_uri() + "?mode=ro", uri=True),
        "json": lambda: json.loads(json.dumps(str(path)) + "x"),
        "our own reader": lambda: open_slide(path).close(),
        "our own reader of what is missing": lambda: open_slide(missing).close(),
        "shutil": lambda: shutil.copy(missing, path),
    }
    for who, work in libraries.items():
        message, trace = raised(work)
        yield who, message
        yield f"{who}, its traceback", trace
    for command in (["cat", "--", missing], ["ls", "-Q", "--", missing], ["tar", "tf", path], ["stat", "--", missing]):
        yield command[0].__str__(), subprocess.run(command, capture_output=True, text=True, check=False).stderr
    text = str(path)
    whole = {
        "repr": repr(path), "bytes": repr(os.fsencode(text)), "JSON": json.dumps({"path": text}), "URL": path.as_uri(),
        "twice escaped": repr(repr(text)), "HTML": html.escape(text), "ASCII": ascii(text), "relative":
        os.path.relpath(path), "the stem": f"slide {path.stem}: is damaged", "the folder": f"{path.parent}: is full",
        "a copy": f"{path.parent}/.{path.name}.a1b2.partial: No space left", "lower case": f"{path.name.lower()}",
        "a neighbour": f"cannot read {path.parent}/{path.stem}.ini: gone", "mojibake":
        f"cannot open {text.encode().decode('latin-1')}", "a line": f"reading\n{text}\nfailed", "NFC":
        unicodedata.normalize("NFC", text), "NFD": unicodedata.normalize("NFD", text),
    }  # fmt: skip
    yield from whole.items()
    end = len(text) - chance.randrange(1, max(2, len(path.name) - 6))
    yield "cut", f"cannot open {text[:end]}"
    yield "cut, with an ellipsis", f"cannot open {text[:end]}… (it is damaged)"
    yield "cut in the name", f"slide {path.name[: chance.randrange(6, len(path.name))]}... is damaged"


def _with_tifffile(path: Path) -> None:
    with path.open("rb") as stream:
        tifffile.TiffFile(stream)


def _with_pillow(path: Path) -> None:
    with path.open("rb") as stream:
        Image.open(stream)


def attack(times: int, seed: int) -> Result:
    result = Result("names in messages")
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="gemslide-names-") as name:
        folder = Path(name)
        for number in range(times):
            _clean(result, folder / str(number), chance)
        for number in range(max(1, times // 50)):
            _study(result, folder / f"study-{number}", chance)
    return result


def _place(folder: Path, chance: random.Random) -> tuple[Path, Project, list[str]]:
    """Create a file named after a person in a folder named after another, perhaps behind a link; and a project."""
    (stem, words), (ward, more) = made_name(chance), made_name(chance)
    inside = folder / "in" / ward / "slides"
    inside.mkdir(parents=True)
    path = inside / f"{stem}{chance.choice(['.svs', '.tiff', '.ndpi', '.mrxs'])}"
    path.write_bytes(b"II*\0 and nothing more")
    if chance.random() < 0.3:
        link = folder / "in" / f"link{path.suffix}"
        link.symlink_to(path)
        path = link if chance.random() < 0.5 else path
    (folder / "p").mkdir()
    return path, Project(folder / "p"), [*words, *more]


def _clean(result: Result, folder: Path, chance: random.Random) -> None:
    path, project, words = _place(folder, chance)
    names = SourceNames(path, project=project)
    names.keep("S-1")
    with redirect_stderr(StringIO()):
        raised_messages = list(messages(path.resolve(), chance))
    for who, message in raised_messages:
        result.attempts += 1
        left = found_in(names.cleaned(message), words)
        result.check(not left, f"{who}: {left} in {names.cleaned(message)!r:.300}")
    # The same in a job's log, in pieces and as JSON not written by gemslide.
    lines = (
        "".join(f"{message}\n" for _, message in raised_messages) + json.dumps({"error": str(path.resolve())}) + "\n"
    )
    log = folder / "log"
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    (folder / "output").write_text("x" * chance.randrange(65_000, 65_600) + lines, errors="surrogateescape")
    with (folder / "output").open("rb") as output:
        LogWriter(output, descriptor, project, (path,), ("S-1",)).run()
    os.close(descriptor)
    result.attempts += 1
    left = found_in(log.read_text(errors="replace"), words)
    result.check(not left, f"a job's log: {left}")


class _Failing(Stage):
    """A stage that ends as requested."""

    name = "ingest"

    def __init__(self, slide_id: str, error: BaseException) -> None:
        self.slide_id, self._error = slide_id, error

    def key(self) -> Key:
        return {}

    def made_from(self) -> Key | None:
        return None

    def outputs(self) -> tuple[Path, ...]:
        return ()

    def run(self, advance: object) -> StageReport:
        raise self._error


class _FailingWork(_Work):
    """The real work, for slides that are not made to fail."""

    def stage_of(self, lease: Lease) -> Stage:
        path = self.stages.sources[lease.slide_id].path
        errors: dict[str, BaseException] = {
            "S-os": OSError(5, "Input/output error", str(path)),
            "S-memory": MemoryError(f"cannot allocate 9 GiB for {path.name}"),
            "S-defect": RuntimeError(f"no such key: {str(path)!r}"),
            "S-process": ProcessFailedError(f"the process that read {path} crashed: {path.stem}: Segmentation fault"),
            "S-ours": UnreadableError(f"{path.name}: lies beside {path.parent}/other.svs and cannot be read."),
        }
        error = errors.get(lease.slide_id)
        return _Failing(lease.slide_id, error) if error else self.stages.stage_of(lease)


def _study(result: Result, folder: Path, chance: random.Random) -> None:
    path, project, words = _place(folder, chance)
    at = study_dir(project, "s")
    at.mkdir(parents=True)
    source = path.resolve()
    ids = ("S-os", "S-memory", "S-defect", "S-process", "S-ours", "S-damaged", "S-missing", "S-out")
    (at / "cohort.csv").write_text(_manifest(source, ids))
    frozen = Protocol.model_validate(
        {
            "study": {"title": "t", "question": "?", "cohort": "cohort.csv"},
            "models": [{"id": MODEL, "sha256": "0" * 64, "config_sha256": "0" * 64}],
            "patience": {"max_attempts": 1, "backoff_s": 0},
        }
    )
    stderr = StringIO()
    with open_ledger(project) as ledger, redirect_stderr(stderr):
        pages = _run(ledger, project, frozen)
    kept = [*project.root.glob("gemslide.db*")]
    result.attempts += len(ids)
    for text in (*pages, stderr.getvalue(), *(file.read_bytes().decode(errors="replace") for file in kept)):
        left = found_in(text, words)
        result.check(not left, f"a study's ledger, report, table or worker: {left}")
    result.check(len(kept) > 0 and len(pages) > 1, "nothing was searched")
    result.check(stderr.getvalue().count("Traceback") == 1, "a worker did not say where a defect is")


def _manifest(source: Path, ids: tuple[str, ...]) -> str:
    rows = [["path", "slide_id", "exclude"]]
    for slide_id in ids:
        path = source.with_name(f"{source.stem}-{slide_id}{source.suffix}") if slide_id == "S-missing" else source
        rows.append([str(path), slide_id, f"the same as {source.name}" if slide_id == "S-out" else ""])
    quoted = [",".join('"' + cell.replace('"', '""') + '"' for cell in row) for row in rows]
    return "\n".join(quoted) + "\n"


def _run(ledger: Ledger, project: Project, frozen: Protocol) -> list[str]:
    """Work on all slides; return everything that a report would contain."""
    cohort, _ = load_study_cohort(frozen, study_dir(project, "s"))
    manifest_sha256 = sha256_of(cohort.path)
    ledger.begin("s", frozen.frozen(), manifest_sha256, slides_of(cohort), frozen.stages, actor="ada")
    limits = Limits(max_attempts=1, backoff_s=0)
    stages = StudyStages(project, sources_of(cohort), {}, {}, frozen, Patients.of(frozen, cohort))
    work = _FailingWork(stages, Origin("s", 1, "0" * 64, manifest_sha256), ledger, names_of_sources(cohort, project))
    Worker(Leases(ledger, this_process(), limits, actor="w"), limits, work).run(
        "s", until=lambda: ledger.counts("s").is_over
    )
    facts = gather(Study(project, "s", ledger, frozen, manifest_sha256))
    sections = sections_of(facts, verified="-")
    return [render(facts, sections), *(table.as_csv() for section in sections for table in section.tables)]


if __name__ == "__main__":
    main(attack, times=400)
