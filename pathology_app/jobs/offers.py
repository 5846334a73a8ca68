"""What can be chosen in the forms that start runs: slides in folders that are allowed, recipes, models, studies.

Whatever a form sends back is looked up again: a choice is never taken for allowed because it was offered once.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from pipeline.cohort.manifest import SLIDE_SUFFIXES, Cohort, load_cohort
from pipeline.errors import BadRecipeError, GemslideError
from pipeline.project import Project
from pipeline.slide_names import MANIFEST_SUFFIX, included_in
from pipeline.study.protocol import PROTOCOL_FILE
from training.foundation.names import is_name

SLIDES_VARIABLE = "GEMSLIDE_SLIDES"
"""Folders outside the project whose slides may be ingested from the app; separated as in PATH."""
MAX_OFFERED = 1000
MAX_LOOKED_AT = 20_000
MAX_DEPTH = 5


class BadRunError(GemslideError):
    """A run cannot be started, or stopped, as it was asked for."""

    code = "bad_run"


def check_slide_folders() -> None:
    """Whether the folders outside the project can be used, told to whoever starts the app.

    Raises:
        BadRecipeError: one is no folder, or not named by its whole path.
    """
    for name in _named_outside():
        if not os.path.isabs(name) or not os.path.isdir(name):
            raise BadRecipeError(
                f"{SLIDES_VARIABLE}: {name!r:.200} is not the whole path of a folder. Name folders as in PATH, "
                f"separated by {os.pathsep!r}."
            )


def _named_outside() -> list[str]:
    return [name for name in os.environ.get(SLIDES_VARIABLE, "").split(os.pathsep) if name]


@dataclass(frozen=True)
class SlideFolders:
    """Folders whose slides and manifests may be ingested.

    Attributes:
        root: the project's folder.
        folders: by the name they are shown under.
    """

    root: Path
    folders: dict[str, Path]

    @classmethod
    def of(cls, project: Project, slide_folders: Sequence[str]) -> SlideFolders:
        """The project's own (`[app] slide_folders`), and those that whoever started the app has named."""
        outside = [Path(name) for name in _named_outside() if os.path.isabs(name)]
        root = project.root.resolve()
        folders: dict[str, Path] = {}
        for path in [*(root / name for name in slide_folders), *outside]:
            name = os.path.relpath(path, root) if path.is_relative_to(root) else path.name
            number = 2
            while name in folders:
                name, number = f"{path.name} ({number})", number + 1
            folders[name] = path
        return cls(root, folders)

    def offered(self) -> list[str]:
        """Manifests and slides, in name order; the first thousand."""
        found = (
            f"{name}/{path.relative_to(folder)}" for name, folder in self.folders.items() for path in _slides_in(folder)
        )
        return sorted(shown for shown, _ in zip(found, range(MAX_OFFERED), strict=False) if shown.isprintable())

    def checked(self, name: str) -> Path:
        """The path of what `offered` calls so.

        Raises:
            BadRunError: not a slide or a manifest in one of the folders; links that lead out of them are not either.
        """
        for shown, folder in self.folders.items():
            inside = name.removeprefix(f"{shown}/")
            path = folder / inside
            is_below = name != inside and not os.path.isabs(inside) and ".." not in Path(inside).parts
            if is_below and "\0" not in name and _is_offered(path) and self._is_inside(path):
                return path
        raise BadRunError(
            f"{name!r:.200}: is no slide and no manifest in the folders that may be ingested from "
            f"({', '.join(self.folders) or 'there are none'})."
        )

    def checked_manifest(self, path: Path) -> Cohort:
        """A manifest, all of whose slides lie in the folders.

        Raises:
            BadManifestError: it does not hold together. BadRunError: it names files elsewhere.
        """
        cohort = load_cohort(path)
        entries = included_in(cohort)
        outside = sum(not self._is_inside(cohort.slide_path(entry)) for entry in entries)
        if outside:
            raise BadRunError(
                f"{path.name}: {outside} of its {len(entries)} slides lie outside of the folders that may be ingested "
                f"from ({', '.join(self.folders)}). Ingest it on the command line, or let who runs this app name "
                f"the folder in {SLIDES_VARIABLE}."
            )
        return cohort

    def typed(self, path: Path) -> str:
        """A path as a command line in the project's folder has it."""
        return os.path.relpath(path, self.root) if path.is_relative_to(self.root) else str(path)

    def _is_inside(self, path: Path) -> bool:
        real = Path(os.path.realpath(path))
        return any(real.is_relative_to(os.path.realpath(folder)) for folder in self.folders.values())


def recipes(project: Project) -> dict[str, str]:
    """Recipes by the name they are shown under, each as a command line has it: the project's, and the shipped ones."""
    own = {
        str(path.relative_to(project.root)): f"./{path.relative_to(project.root)}"
        for folder in (project.root, project.root / "recipes")
        for path in _entries(folder)
        if path.suffix == ".toml" and path.name != project.settings_path.name
        and path.is_file() and not path.is_symlink() and path.name.isprintable()
    }  # fmt: skip
    spec = find_spec("training")
    places = spec.submodule_search_locations if spec else None
    shipped = _entries(Path(places[0]) / "recipes") if places else []
    names = sorted(path.name for path in shipped if path.suffix == ".toml")
    return {**dict(sorted(own.items())), **{f"{name} (shipped)": name for name in names if name not in own}}


def model_ids(project: Project) -> list[str]:
    """Models with a package in the project, in name order."""
    return sorted(
        path.name for path in _entries(project.models_dir) if is_name(path.name) and (path / "config.json").is_file()
    )


def study_ids(project: Project) -> list[str]:
    """Studies with a protocol in the project, in name order."""
    return sorted(
        path.name
        for path in _entries(project.root / "studies")
        if is_name(path.name) and (path / PROTOCOL_FILE).is_file()
    )


def _entries(folder: Path) -> list[Path]:
    try:
        return [folder / name for name in sorted(os.listdir(folder)) if not name.startswith(".")]
    except OSError:
        return []


def _slides_in(folder: Path) -> Iterator[Path]:
    """Slides and manifests below a folder. Links to folders are not followed, and a slide's own folder not entered."""
    waiting, looked_at = [(folder, 0)], 0
    while waiting and looked_at < MAX_LOOKED_AT:
        here, depth = waiting.pop()
        for path in _entries(here):
            looked_at += 1
            if _is_offered(path):
                yield path
            elif depth < MAX_DEPTH and path.is_dir() and not path.is_symlink():
                waiting.append((path, depth + 1))


def _is_offered(path: Path) -> bool:
    suffix = path.suffix.lower()
    if path.is_file():
        return suffix == MANIFEST_SUFFIX or (suffix in SLIDE_SUFFIXES and suffix != ".dcm")
    return path.is_dir() and (suffix == ".zarr" or any(entry.suffix.lower() == ".dcm" for entry in _entries(path)))
