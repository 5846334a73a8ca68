"""The connection to a bucket, as the environment says to make it, and its library's errors as those of a file.

With `bucket.py` the only file that imports obstore. Region, endpoint and credentials come from the environment alone
(AWS_…). No message repeats what the library says: it may name a host, a token or the id of a key.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

from training.foundation.errors import BadRecipeError

if TYPE_CHECKING:
    from obstore.store import S3Store

SCHEME = "s3://"
MAX_AT_ONCE = 16
"""Requests of this process at the same time."""
CREDENTIALS = (
    ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
    ("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN"),
    ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",),
    ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"),
)
"""All of one row must be set, or AWS_SKIP_SIGNATURE: otherwise the library would ask a cloud's metadata service."""
REPLACED = "was replaced while it was being read"
_REQUEST, _CONNECT = timedelta(seconds=20), timedelta(seconds=5)
_RETRIES, _RETRY = 2, timedelta(seconds=20)
_THREAD = threading.local()
T = TypeVar("T")


def url_of(bucket: str, key: str) -> str:
    """An object's address, as it is typed."""
    return f"{SCHEME}{bucket}/{key}"


@lru_cache(maxsize=64)
def connect(bucket: str) -> S3Store:
    """A bucket to read from.

    Raises:
        BadRecipeError: no library, no credentials, or settings that cannot be used.
    """
    try:
        from obstore.exceptions import BaseError
        from obstore.store import S3Store
    except ImportError as error:
        raise BadRecipeError(
            f"{url_of(bucket, '')}: slides in a bucket are read with gemslide's extra `buckets`: "
            "`pip install 'gemslide[buckets]'`."
        ) from error
    if not (_is_on("AWS_SKIP_SIGNATURE") or any(all(map(os.environ.get, row)) for row in CREDENTIALS)):
        raise BadRecipeError(
            f"{url_of(bucket, '')}: the environment names no credentials. Set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY; for a public bucket AWS_SKIP_SIGNATURE=true (docs/how_to/buckets.md)."
        )
    try:
        return S3Store(
            bucket,
            client_options={"timeout": _REQUEST, "connect_timeout": _CONNECT, "allow_http": _is_on("AWS_ALLOW_HTTP")},
            retry_config={"max_retries": _RETRIES, "retry_timeout": _RETRY},
        )
    except (BaseError, ValueError) as error:
        raise BadRecipeError(
            f"{url_of(bucket, '')}: the settings in the environment (AWS_…) cannot be used ({type(error).__name__}). "
            "Check region and endpoint; one without https needs AWS_ALLOW_HTTP=true."
        ) from None


def _is_on(variable: str) -> bool:
    """Whether a variable is set to a word that the library takes for true."""
    return os.environ.get(variable, "").lower() in ("1", "true", "on", "yes", "y")


@contextmanager
def connected(bucket: str, key: str) -> Iterator[S3Store]:
    """A bucket for a request about one object or folder.

    Raises:
        OSError: what goes wrong. FileNotFoundError: no such object. ESTALE: it was replaced.
        BadRecipeError: as `connect`; or this process was forked from one that has read objects.
    """
    _check_process()
    store, where = connect(bucket), url_of(bucket, key)
    from obstore import exceptions as library

    try:
        yield store
    except (FileNotFoundError, library.NotFoundError):
        raise FileNotFoundError(errno.ENOENT, "no such object", where) from None
    except library.PreconditionError:
        raise OSError(errno.ESTALE, REPLACED, where) from None
    except (library.PermissionDeniedError, library.UnauthenticatedError):
        raise PermissionError(errno.EACCES, "the object store refuses access", where) from None
    except library.BaseError:
        raise OSError(errno.EIO, "the object store did not answer, or not as expected", where) from None


def _check_process() -> None:
    """Refuse a fork of a process that has read objects: it lacks the library's threads, and would wait forever."""
    if _first_process() != os.getpid():
        raise BadRecipeError(
            "a process that was forked from one that has read from a bucket cannot read from it. Start it otherwise: a "
            'DataLoader with multiprocessing_context="forkserver".'
        )


@lru_cache(maxsize=1)
def _first_process() -> int:
    """The process that asked first; a fork of it remembers the answer."""
    return os.getpid()


def side_by_side(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Results of calls that wait for a bucket, in order, made at the same time. Raises the first error of them."""
    if len(calls) == 1 or getattr(_THREAD, "is_ours", False):  # a call within a call would wait for its own thread
        return [call() for call in calls]
    futures = [_threads(os.getpid()).submit(call) for call in calls]
    try:
        return [future.result() for future in futures]
    finally:
        for future in futures:  # after an error, those that have not begun
            future.cancel()


@lru_cache(maxsize=1)
def _threads(_process: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(MAX_AT_ONCE, thread_name_prefix="bucket", initializer=_mark)


def _mark() -> None:
    _THREAD.is_ours = True
