"""Paths of objects in a bucket, with the reading half of pathlib's interface, so that readers need not tell them apart.

A bucket has no folders and no links: a folder is the common beginning of the keys of its objects.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pipeline.places.bucket import has_keys_below, keys_below, names_below, recent_state
from pipeline.places.connection import SCHEME, side_by_side, url_of
from training.foundation.errors import BadRecipeError, UnreadableError

MAX_KEY = 1024
"""Characters; the limit of S3 in bytes, and every name of a store is ASCII."""
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_NOT_IN_KEYS = re.compile(r"[\x00-\x1f\x7f\\?#]")


@dataclass(frozen=True, order=True)
class ObjectPath:
    """An object, or all objects whose keys begin with `key/`."""

    bucket: str
    key: str = ""
    """Without a slash at either end; "" is the whole bucket."""

    @classmethod
    def parse(cls, url: str) -> ObjectPath:
        """Parse `s3://bucket/beginning/of/keys`.

        Raises:
            BadRecipeError: not such a URL. It may contain neither credentials nor a query.
        """
        name, _, key = url.removeprefix(SCHEME).partition("/")
        parts = key.removesuffix("/").split("/") if key else []
        is_key = all(part not in ("", ".", "..") for part in parts) and not _NOT_IN_KEYS.search(key)
        if not (url.startswith(SCHEME) and _BUCKET.fullmatch(name) and is_key and len(key) <= MAX_KEY):
            raise BadRecipeError(
                f"{_without_credentials(url)!r:.200}: not the address of slides in a bucket. Write "
                f"{SCHEME}BUCKET/FOLDER; endpoint, region and credentials are read from the environment (AWS_…)."
            )
        return cls(name, "/".join(parts))

    def __str__(self) -> str:
        return url_of(self.bucket, self.key).rstrip("/")

    def __truediv__(self, below: str | PurePosixPath) -> ObjectPath:
        """Raises ValueError: it leads out of this folder."""
        parts = str(below).split("/")
        if any(part in ("", ".", "..") for part in parts):
            raise ValueError(f"{below!s:.200}: not a path below {self}")
        return ObjectPath(self.bucket, "/".join([*filter(None, (self.key,)), *parts]))

    @property
    def name(self) -> str:
        return self.key.rpartition("/")[2]

    @property
    def parent(self) -> ObjectPath:
        return ObjectPath(self.bucket, self.key.rpartition("/")[0])

    @property
    def parents(self) -> tuple[ObjectPath, ...]:
        """All folders that it is in, the nearest first."""
        return (self.parent, *self.parent.parents) if self.key else ()

    def exists(self) -> bool:
        """Whether it is an object, or a folder of objects. Raises UnreadableError: the bucket cannot be read."""
        return any(side_by_side([self.is_file, self.is_dir]))

    def is_file(self) -> bool:
        """Whether there is such an object. Raises UnreadableError."""
        try:
            with self._readable():
                recent_state(self.bucket, self.key)
        except FileNotFoundError:
            return False
        return True

    def is_dir(self) -> bool:
        """Whether there are objects below it. Raises UnreadableError."""
        with self._readable():
            return has_keys_below(self.bucket, self.key)

    def iterdir(self) -> Iterator[ObjectPath]:
        """What is in the folder: objects, and folders of objects. Raises UnreadableError."""
        return (self / name for name in self.names())

    def names(self) -> list[str]:
        """Names of what is in the folder, sorted. Raises UnreadableError."""
        with self._readable():
            return names_below(self.bucket, self.key)

    def rglob(self, name: str) -> Iterator[ObjectPath]:
        """All objects of one name below it; "*": all. Raises UnreadableError."""
        with self._readable():
            paths = [ObjectPath(self.bucket, key) for key in keys_below(self.bucket, self.key)]
        return (path for path in paths if name in ("*", path.name))

    @contextmanager
    def _readable(self) -> Iterator[None]:
        """Explain that the bucket cannot be read, since callers only expect that something is there or is not."""
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as error:
            raise UnreadableError(
                f"{self}: cannot be read ({error.strerror}). Check the bucket's name, the environment (AWS_…) and the "
                "network."
            ) from error

    def resolve(self) -> ObjectPath:
        """Itself: a bucket has no links."""
        return self

    def identity(self) -> tuple[str, int]:
        """ETag and length of the object, as they were within the last few seconds.

        Raises:
            OSError: no such object (FileNotFoundError), or the bucket cannot be read.
        """
        state = recent_state(self.bucket, self.key)
        return state.etag, state.num_bytes


StorePath = Path | ObjectPath
"""Of a store, or of something in it."""


def below(path: StorePath, folder: StorePath) -> PurePosixPath:
    """The part of a path that is below a folder. Raises ValueError: it is not below it."""
    return PurePosixPath(str(path)).relative_to(str(folder))


def place_of(name: StorePath | str) -> StorePath:
    """A path, or an object's address, as somebody typed it. Raises BadRecipeError: as `ObjectPath.parse`."""
    if isinstance(name, ObjectPath):
        return name
    return ObjectPath.parse(name) if isinstance(name, str) and name.startswith(SCHEME) else Path(name)


def _without_credentials(url: str) -> str:
    """A URL that somebody typed, without the part before "@" and without a query, which may hold a secret."""
    scheme, separator, rest = url.partition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2].partition('?')[0]}"
