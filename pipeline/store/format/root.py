"""The root of a slide store: its own metadata, checked, also against the name of its folder."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from pipeline.errors import WrongSlideError
from pipeline.places.bucket import ObjectState, fetch
from pipeline.places.object_path import ObjectPath, StorePath
from pipeline.project import slide_id_of
from pipeline.store.format.layout import CONTRACT_VERSION
from pipeline.store.format.metadata import SlideAttributes, first_finding, read_json
from training.foundation.errors import UnreadableError
from training.foundation.reading import MAX_JSON_BYTES, parse_json


def read_root(store: StorePath) -> SlideAttributes:
    """The root attribute `gemslide`, checked. Raises: as `open_root`."""
    return open_root(store)[0]


def open_root(store: StorePath) -> tuple[SlideAttributes, ObjectState | None]:
    """The root attribute `gemslide`, checked, and in a bucket the state of the object that says so.

    Raises:
        UnreadableError: no store, another contract version, or damaged.
        WrongSlideError: the folder is named after another slide.
    """
    try:
        content, state = _content(store / "zarr.json")
        raw = content["attributes"]["gemslide"]
        version = raw["contract_version"]
    except FileNotFoundError as error:
        remedy = (
            "Its upload may not be complete." if isinstance(store, ObjectPath) else "Make one with `gemslide ingest`."
        )
        raise UnreadableError(f"{store}: no slide store there. {remedy}") from error
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise UnreadableError(f"{store}: not a gemslide store ({type(error).__name__}: {error}).") from error
    if version != CONTRACT_VERSION or isinstance(version, bool | float):
        raise UnreadableError(
            f"{store}: is a store of contract version {version!r:.40}; this gemslide reads version {CONTRACT_VERSION}. "
            "Delete the store and ingest the slide again."
        )
    try:
        attributes = SlideAttributes.model_validate(raw)
    except ValidationError as error:
        raise UnreadableError(
            f"{store}: its attributes are damaged ({first_finding(error)}). "
            "Delete the store and ingest the slide again."
        ) from error
    if slide_id_of(store) != attributes.slide_id:
        raise WrongSlideError(
            f"{store}: holds slide {attributes.slide_id!r}, but its folder is named after {slide_id_of(store)!r}. "
            f"Folders were renamed or swapped: rename it to {attributes.slide_id}.ome.zarr, or ingest the slide again."
        )
    return attributes, state


def _content(meta: StorePath) -> tuple[Any, ObjectState | None]:
    if isinstance(meta, ObjectPath):
        fetched = fetch(meta.bucket, meta.key, max_bytes=MAX_JSON_BYTES)
        return parse_json(fetched.data), fetched.state
    return read_json(meta), None
