"""The project folder of a user: where each stage writes and where the next one reads."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import BadManifestError, OutsideFoldersError, ReadOnlyStoreError
from pipeline.places.object_path import ObjectPath, StorePath
from pipeline.settings.site import LINKS_VARIABLE, bucket_of, is_confined, is_within, link_folders
from training.foundation.leftovers import recover_files, recover_folder
from training.foundation.words.names import ALLOWED, is_name

STORE_SUFFIX = ".ome.zarr"
LINKS_FILE = "links.json"
_RUN_RECORD = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{6}\.json")


def check_name(name: str, *, what: str, remedy: str = "Use another name.") -> str:
    """Return `name` if it can name one file or folder of a project and nothing else; otherwise say what is allowed.

    Raises:
        BadManifestError: empty, too long, `.`, `..`, a separator, a control character, or any other disallowed one.
    """
    if is_name(name):
        return name
    raise BadManifestError(f"{what} {name!r:.200}: allowed are {ALLOWED}. {remedy}")


def check_slide_id(slide_id: str, *, where: str) -> str:
    """Return `slide_id` if it can name a folder; otherwise say what is allowed."""
    remedy = "Give the slide a `slide_id` in the cohort manifest."
    return check_name(slide_id, what=f"slide_id ({where})", remedy=remedy)


def slide_id_of(store: StorePath) -> str:
    """The slide that a store's folder is named after."""
    name = store.name if isinstance(store, ObjectPath) else Path(os.path.abspath(store)).name
    return name.removesuffix(STORE_SUFFIX)


def writable(store: StorePath) -> Path:
    """A store's folder, to write into. Raises ReadOnlyStoreError: it is in a bucket."""
    if isinstance(store, ObjectPath):
        raise ReadOnlyStoreError(
            f"slide {slide_id_of(store)}: its store is in a bucket, {store}, from which slides are only read. Copy it "
            "into the project's folder `slides`, and run this again."
        )
    return store


@dataclass(frozen=True)
class Project:
    """Paths inside one project folder. Nothing is created until something is written.

    Here and in `pipeline.store.layers.overlays` names become paths, and are checked: BadManifestError; in the web app
    and its runs also OutsideFoldersError, if a link leads out.
    """

    root: Path

    def inside(self, path: Path) -> Path:
        """Return a path in the project unchanged.

        Raises:
            OutsideFoldersError: a link leads out of the project, to a folder that the installation does not allow.
        """
        if not is_within(path, (self.root,)) and not is_within(path, link_folders(self.root)):
            raise OutsideFoldersError(
                f"{path}: a link leads out of the project {self.root}. A project from someone else could reach "
                "files that are not its own that way. If you created the link yourself, name the folder it leads to in "
                f"{LINKS_VARIABLE} or in the site file (docs/how_to/operating.md)."
            )
        return path

    def _own(self, path: Path) -> Path:
        """Return the path; in the web app and its runs, used by others than the operator, refuse one that leads out.

        At a terminal, where operators keep their slides is up to them.
        """
        return self.inside(path) if is_confined() else path

    @property
    def slides_dir(self) -> Path:
        return self.root / "slides"

    @property
    def tiles_dir(self) -> Path:
        return self.root / "tiles"

    @property
    def models_dir(self) -> Path:
        return self.root / "models"

    @property
    def checkpoints_dir(self) -> Path:
        """Checkpoints from which interrupted training resumes: written and read only by training."""
        return self.root / "checkpoints"

    @property
    def results_dir(self) -> Path:
        return self.root / "results"

    @property
    def runs_dir(self) -> Path:
        return self.root / "runs"

    @property
    def jobs_dir(self) -> Path:
        """Runs that the web app started: a record and a log of each."""
        return self.runs_dir / "jobs"

    @property
    def cache_dir(self) -> Path:
        """Files that can be recreated from the rest at any time, and may be deleted."""
        return self.root / "cache"

    @property
    def links_path(self) -> Path:
        """Where linked stores find the slides' files: paths, which no store holds. Readable by its owner only."""
        return self.root / LINKS_FILE

    @property
    def settings_path(self) -> Path:
        return self.root / "gemslide.toml"

    def store_path(self, slide_id: str) -> Path:
        """Folder of a slide's store, to write into; whether or not there is one.

        Raises:
            ReadOnlyStoreError: the slide's store is in the project's bucket. What `stored_at` raises.
        """
        return writable(self.stored_at(slide_id))

    def stored_at(self, slide_id: str) -> StorePath:
        """Where a slide's store is, to read it: in the project; if it is not there, but in the project's bucket, there.

        Raises:
            UnreadableError: the bucket cannot be read. BadRecipeError: the environment does not say how to read it.
        """
        local = self._own(self.slides_dir / f"{check_name(slide_id, what='slide')}{STORE_SUFFIX}")
        in_bucket = None if local.exists() else self.place_in_bucket(slide_id)
        return in_bucket if in_bucket and (in_bucket / "zarr.json").is_file() else local

    def place_in_bucket(self, slide_id: str) -> ObjectPath | None:
        """Where a slide's store is in the project's bucket, if it is there; None: the project has no bucket."""
        bucket = bucket_of(self.root)
        return bucket / f"{check_name(slide_id, what='slide')}{STORE_SUFFIX}" if bucket else None

    def tile_table_path(self, tile_set: str) -> Path:
        return self._own(self.tiles_dir / f"{check_name(tile_set, what='tile set')}.parquet")

    def model_path(self, model_id: str) -> Path:
        """Folder of a model package."""
        return self._own(self.models_dir / check_name(model_id, what="model"))

    def model_results_dir(self, model_id: str) -> Path:
        """Folder of one model's results: a folder for each slide, and the evaluations."""
        return self._own(self.results_dir / check_name(model_id, what="model"))

    def result_dir(self, slide_id: str, model_id: str) -> Path:
        """Folder of one model's files (CSV, GeoJSON, hotspots, PNG) for one slide."""
        return self._own(self.model_results_dir(model_id) / check_name(slide_id, what="slide"))

    def quality_dir(self, slide_id: str) -> Path:
        """Folder of the image that `gemslide qc` makes for one slide."""
        return self._own(self.results_dir / "quality" / check_name(slide_id, what="slide"))

    def has_store(self, slide_id: str) -> bool:
        """Whether there is a store, intact or not. Raises: as `stored_at`."""
        store = self.stored_at(slide_id)
        return isinstance(store, ObjectPath) or os.path.lexists(store / "zarr.json")

    def owns(self, store: StorePath) -> bool:
        """Whether a store is the one of a slide of this project. Raises: as `stored_at`."""
        return store.resolve() == self.stored_at(slide_id_of(store)).resolve()

    def slide_ids(self) -> list[str]:
        """Slides whose store is complete, here or in the bucket, in name order. Partial stores start with a dot.

        Bytes of a name that are not UTF-8 become "�": they could be neither printed nor stored. No
        slide can have such a name.
        """
        return sorted({*self._stores(), *self._stores_elsewhere()})

    def _stores(self) -> Iterator[str]:
        if not self.slides_dir.is_dir():
            return
        with os.scandir(self.slides_dir) as entries:  # closed even if only the first is needed
            for entry in entries:
                if entry.name.endswith(STORE_SUFFIX) and entry.name[0] != "." and _is_folder(entry):
                    yield os.fsencode(entry.name).decode(errors="replace").removesuffix(STORE_SUFFIX)

    def _stores_elsewhere(self) -> list[str]:
        bucket = bucket_of(self.root)
        if bucket is None:
            return []
        names = (name.removesuffix(STORE_SUFFIX) for name in bucket.names() if name.endswith(STORE_SUFFIX))
        return [name for name in names if is_name(name)]

    def recover(self) -> list[str]:
        """Complete or remove what killed runs have left anywhere in the project. Returns what was done.

        A folder that is not a project yet is left alone, and no link is followed: the current folder is the default
        project, and may be any folder.
        """
        if not self.is_project:
            return []
        folders = [
            *(self.tiles_dir, self.models_dir, self.runs_dir, self.jobs_dir),
            *(self.results_dir, self.slides_dir, self.cache_dir, self.root / "encoders"),
        ]
        folders += _folders_in(self.checkpoints_dir)
        for model_results in _folders_in(self.results_dir):
            folders += [model_results, *_folders_in(model_results)]
        for store in _folders_in(self.slides_dir):
            folders += [store, *(store / layer for layer in ("predictions", "features", "attention", "0/labels"))]
        return recover_files(self.root) + [line for folder in folders for line in recover_folder(folder)]

    @property
    def is_project(self) -> bool:
        """Whether it has settings, a store or a run record. A folder named `slides` alone proves nothing."""
        if self.settings_path.exists() or next(self._stores(), None):
            return True
        return any(_RUN_RECORD.fullmatch(path.name) for path in self.runs_dir.glob("*.json"))


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Whether it is a folder, or links to one. Except for links, the listing itself says so, at no cost."""
    return os.path.isdir(entry.path) if entry.is_symlink() else entry.is_dir(follow_symlinks=False)


def open_project(root: Path) -> Project:
    """Open a project as every verb does: what killed runs have left is completed or removed first."""
    project = Project(root)
    for line in project.recover():
        sys.stderr.write(f"recovered {line}\n")
    return project


def _folders_in(folder: Path) -> list[Path]:
    """Folders in a folder, without links."""
    try:
        if folder.is_symlink() or not folder.is_dir():
            return []
        entries = [entry for entry in os.scandir(folder) if entry.name[0] != "."]
    except OSError:  # not ours to read, nor to clean
        return []
    return [folder / entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
