"""Choices in the forms that start runs: slides in allowed folders, recipes, models, studies.

Everything that a form sends back is looked up again: having been offered once does not make a choice allowed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.cohort.manifest import Cohort, SlideEntry, load_cohort
from pipeline.errors import OutsideFoldersError
from pipeline.naming.slides import OFFERED_MANIFEST_SUFFIXES, included_in
from pipeline.project import Project
from pipeline.settings.site import SLIDES_VARIABLE, slide_folders
from pipeline.settings.source_folders import check_source
from pipeline.slides.dicom.suffixes import DICOM_SUFFIXES
from pipeline.slides.suffixes import has_slide_suffix, slide_id_from
from pipeline.study.protocol import PROTOCOL_FILE
from training.foundation.errors import GemslideError
from training.foundation.recipe_file import RECIPES_DIR, is_recipe
from training.foundation.toml_file import read_toml
from training.foundation.words.counts import counted
from training.foundation.words.names import is_name

MAX_OFFERED = 1000
MAX_LOOKED_AT = 20_000
MAX_DEPTH = 5
MAX_MANIFESTS = 50
"""Searched for one slide."""
_SHIPPED = " (shipped)"


class BadRunError(GemslideError):
    """A run cannot be started or stopped as requested."""

    code = "bad_run"


@dataclass(frozen=True)
class SlideSource:
    """The file from which a slide can be ingested.

    Attributes:
        name: as displayed: the file's, or that of the manifest which lists it.
        typed: its path on a command line in the project's folder.
        series: which image of the file; None: its only one.
    """

    name: str
    path: Path
    typed: str
    series: str | None = None


@dataclass(frozen=True)
class SlideFolders:
    """Folders whose slides and manifests may be ingested.

    Attributes:
        root: the project's folder.
        folders: where slides are searched for, by displayed name.
        allowed: where they must be, with all links followed: in the project itself, or in a folder that the
            installation allows. The project cannot add to these.
    """

    root: Path
    folders: dict[str, Path]
    allowed: tuple[str, ...]

    @classmethod
    def of(cls, project: Project, own: Sequence[str]) -> SlideFolders:
        """The folders of the project (`[app] slide_folders`) and of the installation.

        Raises:
            BadRecipeError: as `pipeline.slide_folders`.
        """
        outside = [Path(name) for name in slide_folders()]
        root = project.root.resolve()
        folders: dict[str, Path] = {}
        for path in [*(root / name for name in own), *outside]:
            name = os.path.relpath(path, root) if path.is_relative_to(root) else path.name
            number = 2
            while name in folders:
                name, number = f"{path.name} ({number})", number + 1
            folders[name] = path
        return cls(root, folders, allowed_folders(project))

    def offered(self) -> list[str]:
        """Manifests and slides, in name order; the first thousand."""
        names = (
            f"{name}/{path.relative_to(folder)}" for name, folder in self.folders.items() for path in _slides_in(folder)
        )
        return sorted(shown for shown, _ in zip(names, range(MAX_OFFERED), strict=False) if shown.isprintable())

    def checked(self, name: str) -> Path:
        """The path of a name from `offered`.

        Raises:
            BadRunError: not a slide or a manifest in one of the folders, or a link that leads out of them.
        """
        for shown, folder in self.folders.items():
            inside = name.removeprefix(f"{shown}/")
            path = folder / inside
            is_below = name != inside and not os.path.isabs(inside) and ".." not in Path(inside).parts
            if is_below and "\0" not in name and _is_offered(path) and self._is_inside(path):
                return path
        raise BadRunError(
            f"{name!r:.200}: not a slide or manifest in the folders that may be ingested from "
            f"({', '.join(self.folders) or 'there are none'})."
        )

    def checked_manifest(self, path: Path) -> Cohort:
        """A manifest in the folders, if all of its slides and annotation files are there, too.

        Raises:
            BadManifestError: it is invalid. BadRunError: it names files elsewhere.
        """
        cohort = load_cohort(path)
        entries = included_in(cohort)
        outside = sum(not self._holds(cohort, entry) for entry in entries)
        if outside:
            slides = counted(len(entries), "slide")
            are = counted(outside, f"of its {slides} is", f"of its {slides} are")
            raise BadRunError(
                f"{path.name}: {are} outside the folders that may be ingested "
                f"from ({', '.join(self.folders)}), or their annotation files are. Ingest it on the command line, or "
                f"ask the app's operator to name the folder in {SLIDES_VARIABLE} or the site file."
            )
        return cohort

    def sources_of(self, slide_id: str) -> list[SlideSource]:
        """Every file in the folders from which this slide would be ingested, by its name or through a manifest.

        Different manifests may list the same file, which counts once. Manifests that cannot be read are left out.
        """
        sources: dict[tuple[str, str | None], SlideSource] = {}
        manifests: list[str] = []
        for name in self.offered():
            if name.lower().endswith(OFFERED_MANIFEST_SUFFIXES):
                manifests.append(name)
            elif slide_id_from(Path(name)) == slide_id:
                path = self.checked(name)
                sources[os.path.realpath(path), None] = SlideSource(name, path, self.typed(path))
        for name in manifests[:MAX_MANIFESTS]:
            for path, series in self._in_manifest(name, slide_id):
                key = (os.path.realpath(path), series)
                sources.setdefault(key, SlideSource(f"{path.name} in {name}", path, self.typed(path), series))
        return list(sources.values())

    def _in_manifest(self, name: str, slide_id: str) -> list[tuple[Path, str | None]]:
        """Files of a slide in a manifest, each with the image in it; none where it is outside the folders."""
        try:
            cohort = load_cohort(self.checked(name))
        except GemslideError:  # the ingest form says why
            return []
        entries = [entry for entry in cohort.entries if entry.slide_id == slide_id and not entry.exclude]
        return [(cohort.slide_path(entry), entry.series) for entry in entries if self._holds(cohort, entry)]

    def typed(self, path: Path) -> str:
        """A path as written on a command line in the project's folder."""
        return os.path.relpath(path, self.root) if path.is_relative_to(self.root) else str(path)

    def _holds(self, cohort: Cohort, entry: SlideEntry) -> bool:
        paths = (cohort.slide_path(entry), cohort.annotations_path(entry))
        return all(self._is_inside(path) for path in paths if path is not None)

    def _is_inside(self, path: Path) -> bool:
        try:
            check_source(path, self.allowed)
        except OutsideFoldersError:
            return False
        return True


def allowed_folders(project: Project) -> tuple[str, ...]:
    """Folders, with all links followed, that contain everything a run started by the app may read.

    Raises:
        BadRecipeError: as `pipeline.slide_folders`.
    """
    folders = (str(project.root), *slide_folders())
    return tuple(os.path.realpath(folder) for folder in folders)


def recipes(project: Project) -> dict[str, str]:
    """Recipes by displayed name, each as written on a command line: the project's, and the shipped ones.

    Other TOML files of a project (settings, accounts, protocols) are not recipes, whatever they are called.
    """
    own = {
        str(path.relative_to(project.root)): f"./{path.relative_to(project.root)}"
        for folder in (project.root, project.root / "recipes")
        for path in _entries(folder)
        if path.suffix == ".toml" and path.name.isprintable() and not path.is_symlink() and is_recipe(path)
    }  # fmt: skip
    names = sorted(path.name for path in _entries(RECIPES_DIR) if path.suffix == ".toml")
    return {**dict(sorted(own.items())), **{f"{name}{_SHIPPED}": name for name in names if name not in own}}


def default_recipe(project: Project, offered: Sequence[str]) -> str | None:
    """The first of these recipes for which the project has tiles or a cohort; None where there is none.

    Args:
        offered: names from `recipes`.
    """
    return next((name for name in offered if _has_data(project, recipe_path(project, name))), None)


def _has_data(project: Project, recipe: Path) -> bool:
    """Whether the project has a recipe's tile set; of a slide-level one, its manifest."""
    try:
        data = read_toml(recipe).get("data")
    except (OSError, ValueError):
        return False
    if isinstance(data, dict) and data.get("source") == "features":
        cohort = data.get("cohort")
        return isinstance(cohort, str) and "\0" not in cohort and (project.root / cohort).is_file()
    tile_set = data.get("tile_set") if isinstance(data, dict) else None
    return isinstance(tile_set, str) and is_name(tile_set) and project.tile_table_path(tile_set).is_file()


def recipe_path(project: Project, recipe: str) -> Path:
    """The file of a name from `recipes`."""
    if recipe.endswith(_SHIPPED):
        return RECIPES_DIR / recipe.removesuffix(_SHIPPED)
    return project.root / recipe


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
    """Slides and manifests below a folder. Links to folders are not followed, nor is a slide's own folder entered."""
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
        return suffix in OFFERED_MANIFEST_SUFFIXES or (has_slide_suffix(path.name) and suffix not in DICOM_SUFFIXES)
    return path.is_dir() and (
        suffix == ".zarr" or any(entry.suffix.lower() in DICOM_SUFFIXES for entry in _entries(path))
    )
