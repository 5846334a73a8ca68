"""Settings of an installation, made by the person who runs gemslide on a computer, never by a project.

A project may come from someone else, so settings that point outside it are kept elsewhere: in the environment, or in
the TOML file that GEMSLIDE_SITE names, such as /etc/gemslide/site.toml. The environment takes precedence.

slides = ["/mnt/scans"]             # GEMSLIDE_SLIDES: folders whose slides the web app may ingest or follow links to
proxies = ["10.0.0.5", "fd00::/8"]  # GEMSLIDE_PROXIES: proxies whose X-Forwarded-For is trusted

[project."/srv/projects/trial"]
ledger = "postgresql://db.example.org/gemslide"  # GEMSLIDE_LEDGER: ledger of this project's studies
links = ["/mnt/large/trial"]                     # GEMSLIDE_LINKS: folders to which links in the project may lead
bucket = "s3://scans/trial"                      # GEMSLIDE_BUCKET: where this project's other slides are read from
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from pipeline.places.object_path import ObjectPath
from training.foundation.errors import BadRecipeError
from training.foundation.settings import Section, load_section

SITE_VARIABLE = "GEMSLIDE_SITE"
LEDGER_VARIABLE = "GEMSLIDE_LEDGER"
SLIDES_VARIABLE = "GEMSLIDE_SLIDES"
LINKS_VARIABLE = "GEMSLIDE_LINKS"
PROXIES_VARIABLE = "GEMSLIDE_PROXIES"
BUCKET_VARIABLE = "GEMSLIDE_BUCKET"
WITHIN_VARIABLE = "GEMSLIDE_SOURCES_WITHIN"
"""A JSON list of folders, set by the web app in its own environment and that of its runs."""
_OTHERS_WRITE = 0o022

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def _checked_folder(name: str) -> str:
    if not os.path.isabs(name) or "\0" in name or not os.path.isdir(name):
        raise ValueError("not the absolute path of an existing folder")
    return name


def _checked_proxy(text: str) -> str:
    try:
        ipaddress.ip_network(text)
    except ValueError as error:
        raise ValueError("neither an IP address nor a network such as 10.0.0.0/8") from error
    return text


Folder = Annotated[str, AfterValidator(_checked_folder)]
Proxy = Annotated[str, AfterValidator(_checked_proxy)]


class ProjectSite(Section):
    """`[project."FOLDER"]`"""

    ledger: str = ""
    """Database of its studies: "postgresql://host/database", or "sqlite:////local/path/gemslide.db"."""
    links: tuple[Folder, ...] = ()
    """Folders outside the project to which its links may lead."""
    bucket: str = ""
    """Where its other slides are read from: "s3://bucket/folder"."""


class Site(Section):
    """The whole file."""

    slides: tuple[Folder, ...] = ()
    proxies: tuple[Proxy, ...] = ()
    project: dict[str, ProjectSite] = Field({})

    def for_project(self, root: Path) -> ProjectSite:
        """Settings for a project, whichever path it is opened by."""
        real = os.path.realpath(root)
        matches = (site for folder, site in self.project.items() if os.path.realpath(folder) == real)
        return next(matches, ProjectSite())


def load_site() -> Site:
    """The installation's file; empty settings if the environment names none.

    Raises:
        BadRecipeError: the file cannot be read, is invalid, or is writable by others.
    """
    named = os.environ.get(SITE_VARIABLE)
    if not named:
        return Site()
    path = Path(named)
    try:
        status = path.stat()
    except OSError as error:
        raise BadRecipeError(f"{SITE_VARIABLE}: {path}: cannot be read: {error.strerror}.") from error
    if status.st_mode & _OTHERS_WRITE:
        raise BadRecipeError(
            f"{SITE_VARIABLE}: {path}: has mode {status.st_mode & 0o777:o}, so others can change what this "
            f"installation allows. Review its content, then run: chmod go-w {path}"
        )
    return _loaded(path, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


@lru_cache(maxsize=4)
def _loaded(path: Path, *_identity: int) -> Site:
    """The file's settings, parsed once: they are looked up for each tile of the web app."""
    return load_section(Site, path)


def slide_folders() -> tuple[str, ...]:
    """Folders outside projects whose slides may be ingested from the web app.

    Raises:
        BadRecipeError: one is not a folder, or not an absolute path; or as `load_site`.
    """
    return _from_environment(SLIDES_VARIABLE, os.pathsep, _checked_folder) or load_site().slides


def link_folders(root: Path) -> tuple[str, ...]:
    """Folders outside a project to which its links may lead. Raises BadRecipeError: as `slide_folders`."""
    return _from_environment(LINKS_VARIABLE, os.pathsep, _checked_folder) or load_site().for_project(root).links


def trusted_proxies() -> tuple[Network, ...]:
    """Proxies whose X-Forwarded-For is trusted.

    Raises:
        BadRecipeError: one is neither an address nor a network; or as `load_site`.
    """
    named = _from_environment(PROXIES_VARIABLE, ",", _checked_proxy) or load_site().proxies
    return tuple(ipaddress.ip_network(proxy) for proxy in named)


def ledger_elsewhere(root: Path) -> str:
    """URL of the ledger of a project's studies; empty if it is in the project. Raises: as `load_site`."""
    return os.environ.get(LEDGER_VARIABLE) or load_site().for_project(root).ledger


def bucket_of(root: Path) -> ObjectPath | None:
    """Where a project's other slides are; None: all are in the project.

    Raises:
        BadRecipeError: not the address of a bucket; or as `load_site`.
    """
    named = os.environ.get(BUCKET_VARIABLE) or load_site().for_project(root).bucket
    return ObjectPath.parse(named) if named else None


def is_confined() -> bool:
    """Whether this process is the web app, or was started by it, and thus acts for people other than the operator."""
    return WITHIN_VARIABLE in os.environ


def is_within(path: str | os.PathLike[str], folders: Sequence[str | os.PathLike[str]]) -> bool:
    """Whether a path, with all links resolved, is in one of the folders or is one."""
    real = Path(os.path.realpath(path))
    return any(real.is_relative_to(os.path.realpath(folder)) for folder in folders)


def _from_environment(variable: str, separator: str, check: Callable[[str], str]) -> tuple[str, ...]:
    names = [name.strip() for name in re.split(re.escape(separator), os.environ.get(variable, "")) if name.strip()]
    for name in names:
        try:
            check(name)
        except ValueError as error:
            raise BadRecipeError(f"{variable}: {name!r:.200}: {error}. Separate several with {separator!r}.") from error
    return tuple(names)
