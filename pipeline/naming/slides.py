"""Slides as the user names them: ids, stores, slide files or one manifest, as all verbs accept them.

A plain name is a slide of the project if the project has one of that name, and a path otherwise; `./NAME` is always
a path. Nothing here opens a slide or a store, so that a misspelt name is reported at once.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.cohort.manifest import Cohort, SlideEntry, load_cohort
from pipeline.errors import BadManifestError, NoSlidesError, OutsideFoldersError
from pipeline.naming.models import did_you_mean
from pipeline.places.connection import SCHEME
from pipeline.places.object_path import ObjectPath, StorePath
from pipeline.project import STORE_SUFFIX, Project, check_name, slide_id_of
from pipeline.settings.site import is_confined
from pipeline.slides.suffixes import slide_id_from
from pipeline.spreadsheets import TABLE_SUFFIXES, WORKBOOK_SUFFIXES
from training.foundation.errors import GemslideError, UnreadableError
from training.foundation.words.counts import counted
from training.foundation.words.names import is_name

MANIFEST_SUFFIXES = (*TABLE_SUFFIXES, *WORKBOOK_SUFFIXES)
"""Suffixes of a typed name that is taken for a manifest."""
OFFERED_MANIFEST_SUFFIXES = (".csv", ".tsv")
"""Suffixes of manifests that are searched for: a folder of slides has other text files, too."""


def manifest_in(names: Sequence[str]) -> Path | None:
    """The manifest, if one was typed in place of slides.

    Raises:
        BadManifestError: slides beside it, or several.
    """
    manifests = [name for name in names if name.lower().endswith(MANIFEST_SUFFIXES)]
    if manifests and len(names) > 1:
        raise BadManifestError(f"give slides or one manifest, not both: {', '.join(names)}.")
    return Path(manifests[0]) if manifests else None


def find_slide(name: str, project: Project) -> StorePath:
    """A slide of the project by its id: its store. Else the path of a slide file, a slide folder or any store.

    Raises:
        UnreadableError: a plain name that is neither.
    """
    store = _store_by_id(name, project)
    if store or os.path.exists(name) or not _is_plain(name) or not project.slide_ids():
        return store or Path(name)
    raise _unknown(name, project)


def find_store(name: str, project: Project) -> StorePath:
    """A store by the id of a slide of the project, or by its path, wherever it is, also in a bucket.

    Raises:
        UnreadableError: no such slide, no such store, or a slide file. NoSlidesError: the project has none.
        BadManifestError: neither a path nor a name that a slide can have.
    """
    store = _store_by_id(name, project)
    if store or os.path.isdir(name):
        return store or Path(os.path.abspath(name))
    raise _unknown(name, project)


def find_slide_id(name: str, project: Project) -> str:
    """A slide of this project by its id, or by its store's path.

    Raises:
        UnreadableError: no such slide, another project's store, or a slide file. NoSlidesError: the project has none.
        BadManifestError: neither a path nor a name that a slide can have.
    """
    store = find_store(name, project)
    if not project.owns(store):
        raise UnreadableError(
            f"{name}: is not a store of the project {project.root}. Give the slide's id, its store's path, or the "
            "--project it belongs to; a slide file must be ingested first."
        )
    return slide_id_of(store)


def find_slide_ids(names: Sequence[str], project: Project) -> list[str]:
    """Slides of this project, each once: those named, those of the one manifest named, or all.

    A manifest's slides may lack a store; the work on each reports that.

    Raises:
        NoSlidesError: all are requested, and there are none. What `find_slide_id` and `load_cohort` raise.
    """
    manifest = manifest_in(names)
    if manifest:
        return [entry.slide_id for entry in included_in(load_cohort(manifest))]
    slide_ids = [find_slide_id(name, project) for name in names] or project.slide_ids()
    if not slide_ids:
        raise NoSlidesError(f"{project.slides_dir}: no slides. Run `gemslide ingest` first, or name another --project.")
    return list(dict.fromkeys(slide_ids))


@dataclass(frozen=True)
class SlideToDo:
    """A slide to be processed, and the file to ingest first if it has no store yet."""

    slide_id: str
    path: Path | None = None
    manifest_mpp: float | None = None
    series: str | None = None


def find_slides_to_do(names: Sequence[str], project: Project) -> list[SlideToDo]:
    """Like `find_slide_ids`, but slide files may be named, too; and a manifest's slides without a store are ingested.

    Raises:
        What `find_slide_ids` raises. BadManifestError: two slide files of one name.
    """
    manifest = manifest_in(names)
    if manifest:
        cohort = load_cohort(manifest)
        entries = included_in(cohort)
        return [_to_do(entry.slide_id, cohort.slide_path(entry), project, entry.mpp, entry.series) for entry in entries]
    if not names:
        return [SlideToDo(slide_id) for slide_id in find_slide_ids([], project)]
    named = [_named(name, project) for name in names]
    by_id: dict[str, SlideToDo] = {}
    for slide in named:
        earlier = by_id.setdefault(slide.slide_id, slide)
        if earlier != slide:
            raise BadManifestError(
                f"{earlier.path} and {slide.path}: both would be slide {slide.slide_id!r}. Give them ids in a "
                "manifest, or ingest one with --slide-id."
            )
    return list(by_id.values())


def _named(name: str, project: Project) -> SlideToDo:
    path = Path(name)
    is_source = path.is_file() or (path.is_dir() and not name.rstrip(os.sep).endswith(STORE_SUFFIX))
    if is_source and not _store_by_id(name, project):
        return _to_do(slide_id_from(path), path, project)
    return SlideToDo(find_slide_id(name, project))


def _to_do(
    slide_id: str, path: Path, project: Project, mpp: float | None = None, series: str | None = None
) -> SlideToDo:
    has_store = project.stored_at(slide_id).exists()
    return SlideToDo(slide_id) if has_store and not path.exists() else SlideToDo(slide_id, path, mpp, series)


def find_stores(names: Sequence[str], project: Project) -> list[StorePath]:
    """Like `find_slide_ids`, but stores; those named may be anywhere."""
    if names and not manifest_in(names):
        return list(dict.fromkeys(find_store(name, project) for name in names))
    return [_stored(slide_id, project) for slide_id in find_slide_ids(names, project)]


def _stored(slide_id: str, project: Project) -> StorePath:
    """A store by the name of its folder, which may be one that no slide can have: the work on it reports that."""
    folder = project.slides_dir / f"{slide_id}{STORE_SUFFIX}"
    return folder if folder.exists() else project.stored_at(slide_id)


def included_in(cohort: Cohort) -> tuple[SlideEntry, ...]:
    """A manifest's slides that are not excluded.

    Raises:
        BadManifestError: all are.
    """
    if cohort.included:
        return cohort.included
    raise BadManifestError(
        f"{cohort.path}: excludes all that it lists, {counted(len(cohort.entries), 'slide')} (column `exclude`)."
    )


def _store_by_id(name: str, project: Project) -> StorePath | None:
    """A store of the project; at a terminal also any other that was named by its address in a bucket.

    Raises:
        OutsideFoldersError: the web app, or a run that it started, is asked for another bucket.
    """
    if name.startswith(SCHEME):
        place = ObjectPath.parse(name)
        if is_confined() and not project.owns(place):
            raise OutsideFoldersError(f"{place}: is not in this project's bucket. Name a slide of the project.")
        return place
    slide_id = name.removesuffix(STORE_SUFFIX)
    store = project.stored_at(slide_id) if is_name(slide_id) else None
    return store if store and store.exists() else None


def _is_plain(name: str) -> bool:
    """Whether a name can be meant as an id: not a path, and not named like a store or a file."""
    return os.sep not in name and not name.endswith(STORE_SUFFIX)


def _unknown(name: str, project: Project) -> GemslideError:
    """Error that says why a name stands for no store, and what may have been meant."""
    if os.path.isfile(name):
        return UnreadableError(f"{name}: is a file, not a store. Ingest it first, then give the slide's id.")
    if _is_plain(name):
        check_name(name, what="slide", remedy="Give a slide's id, or its store's path.")
    known = project.slide_ids()
    where = f"in the project {project.root}, and no such path" if _is_plain(name) else "there"
    if known:
        return UnreadableError(f"{name}: no such slide {where}. {did_you_mean(slide_id_of(Path(name)), known)}")
    return NoSlidesError(f"{name}: no such slide {where}; {project.slides_dir} has none. Ingest it first.")
