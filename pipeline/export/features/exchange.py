"""Features exchanged with other programs: written as their files, and taken from them into a slide's store."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pipeline.errors import BadManifestError, WrongSlideError
from pipeline.export.features.clam import read_clam, write_clam
from pipeline.export.features.stamp import read_stamp, write_stamp
from pipeline.export.features.tile_size import NOTHING_GIVEN, ForeignFeatures, TileSize
from pipeline.export.features.trident import read_trident, write_trident
from pipeline.files import sha256_of
from pipeline.project import check_name
from pipeline.store.layers.feature_checks import imported_id, values_sha256
from pipeline.store.layers.features import Features, features_path, list_features, new_features, read_features
from pipeline.store.reading.reader import StoreReader
from training.foundation.errors import UnreadableError

Program = Literal["trident", "clam", "stamp"]
MAX_NAME = 55
"""Letters of an encoder's name: with the digits of its id it must still be a name."""

_WRITERS: dict[Program, Callable[[Path, StoreReader, Features], tuple[Path, ...]]] = {
    "trident": write_trident,
    "clam": write_clam,
    "stamp": write_stamp,
}
_READERS: dict[Program, Callable[[Path, StoreReader, TileSize], ForeignFeatures]] = {
    "trident": read_trident,
    "clam": read_clam,
    "stamp": read_stamp,
}


@dataclass(frozen=True)
class FeatureFile:
    """Another program's file, and what a person states about it."""

    path: Path
    program: Program
    name: str
    """Of the encoder that made the features."""
    given: TileSize = NOTHING_GIVEN


def check_encoder_name(name: str) -> str:
    """The name of an encoder whose features are imported. Raises BadManifestError: it cannot begin an id."""
    if len(name) > MAX_NAME:
        raise BadManifestError(f"encoder {name!r:.80}: {len(name)} characters; at most {MAX_NAME} fit into an id.")
    return check_name(name, what="encoder", remedy="Give --encoder one name.")


def export_features(
    reader: StoreReader, program: Program, folder: Path, *, encoder_id: str | None = None
) -> tuple[Path, ...]:
    """Write a slide's features into a folder as another program's files. Returns their paths.

    Args:
        encoder_id: None: the only one that the slide has.

    Raises:
        UnreadableError: no such features, or damaged ones; or several, and none is named.
        WrongSlideError: the features are another slide's.
        BadRecipeError: a file exists, or something the format must state is not known.
        DiskFullError: no space, or not writable. LockedError: another process is writing the same file.
    """
    features = read_features(reader.path, encoder_id or _only_encoder(reader))
    return _WRITERS[program](folder, reader, features)


def _only_encoder(reader: StoreReader) -> str:
    encoder_ids = list_features(reader.path)
    if len(encoder_ids) == 1:
        return encoder_ids[0]
    if encoder_ids:
        raise UnreadableError(
            f"slide {reader.slide_id}: has features of {len(encoder_ids)} encoders. Choose one with --encoder: "
            f"{', '.join(encoder_ids)}."
        )
    raise UnreadableError(f"slide {reader.slide_id}: has no features. Make them with `gemslide embed`.")


def import_features(reader: StoreReader, file: FeatureFile) -> Features:
    """Features from another program's file, ready to be stored.

    Raises:
        BadManifestError: a name that cannot be, or corners that are outside the slide, not whole, or twice the same.
        UnreadableError: damaged, or not such a file. DecompressionBombError: it declares more than can be read.
        ImplausibleOutputError: a value is not finite, or too large for half precision.
        BadRecipeError: the size of tiles is not known, or contradictory. WrongSlideError: made from another slide.
    """
    name = check_encoder_name(file.name)
    try:
        file_sha256 = sha256_of(file.path)
    except OSError as error:
        raise UnreadableError(f"{file.path}: cannot be read ({error.strerror}).") from error
    foreign = _READERS[file.program](file.path, reader, file.given)
    # Neither the file's name nor any text in it: both can identify people.
    text = foreign.encoder_text
    row = {
        "name": name,
        "dims": foreign.values_nd.shape[1],
        "tile_px": foreign.tile_px,
        "stated_name_sha256": None if text is None else hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest(),
        "imported": {"from": file.program, "sha256": file_sha256},
    }
    tiles = {"tile_px": foreign.tile_px, "mpp": foreign.mpp, "mask": None}
    return Features(
        encoder_id=imported_id(row),
        values_nd=foreign.values_nd,
        xy0_n2=foreign.xy0_n2,
        side_px0=foreign.side_px0,
        stride_px0=foreign.stride_px0,
        attributes={
            "encoder": row,
            "weights_sha256": None,
            "made_from": {"source_sha256": reader.source_sha256, "tiles": tiles},
        },
    )


def store_imported(reader: StoreReader, features: Features) -> bool:
    """Put imported features into their slide's store. Returns False if it has them already.

    Raises:
        BadManifestError: it has other features of the encoder, or features of an encoder of this project by the name.
        DiskFullError: no space, or not writable. LockedError: another process has been writing the same for too long.
    """
    name = features.attributes["encoder"]["name"]
    others = [encoder_id for encoder_id in list_features(reader.path) if encoder_id.rpartition("-")[0] == name]
    for encoder_id in others:
        kept = _readable(reader, encoder_id)
        if kept is None:
            continue
        if kept.attributes["weights_sha256"] is not None:
            raise BadManifestError(
                f"slide {reader.slide_id}: has features of an encoder {name!r} that were made here ({encoder_id}). "
                "Give the imported ones another name with --encoder."
            )
        if encoder_id == features.encoder_id and _is_same(kept, features):
            return False
        if encoder_id == features.encoder_id:
            raise BadManifestError(
                f"slide {reader.slide_id}: has other features imported as {encoder_id}, perhaps made with other "
                "weights or from other tiles. Give these another name with --encoder, or delete "
                f"{features_path(reader.folder, encoder_id)} to replace them."
            )
    with new_features(reader.folder, features):
        pass
    return True


def _readable(reader: StoreReader, encoder_id: str) -> Features | None:
    """Features in the store; None if they are damaged or do not belong there, and may be replaced."""
    try:
        return read_features(reader.path, encoder_id)
    except (UnreadableError, WrongSlideError):
        return None


def _is_same(one: Features, other: Features) -> bool:
    hashes = {values_sha256(features.values_nd, features.xy0_n2) for features in (one, other)}
    return len(hashes) == 1 and (one.side_px0, one.stride_px0) == (other.side_px0, other.stride_px0)
