"""Plan of each level, decided before anything is written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pipeline.ingest.damage.edges import EdgeCheck
from pipeline.ingest.damage.found import Damage
from pipeline.ingest.damage.left_out import APERIO
from pipeline.ingest.damage.masked import MaskedSlide
from pipeline.ingest.damage.repaired import RepairedSlide
from pipeline.ingest.gate import PassThroughGate
from pipeline.ingest.link.pointers import Pointing
from pipeline.settings.config import IngestConfig
from pipeline.slides.common.pyramid import LevelSize, level_size
from pipeline.slides.common.slide import EncodedLevel, NotCopied, Slide, planes_of
from pipeline.slides.common.tile_places import Position, TilePlaces
from pipeline.store.format.layout import (
    MAX_CHUNK_PX,
    MAX_SHARD_CHUNKS,
    MAX_TABLES_BYTES,
    ArraySpec,
    Codec,
    LinkSpec,
)
from pipeline.store.format.metadata import Gate, Level
from training.foundation.errors import BadRecipeError

PASS_THROUGH, LINKED = "pass-through", "linked"
"""Routes of levels whose tiles are copied, and of those that are pointed at."""
_FEW_SHARDS = 100
"""Of a level. A slide of 11 GB has 1,089 at level 0, and creating so many files takes half a second."""
_MAX_POINTERS_ALONG = 128
"""A shard's side in pointers; all of them, 400 KB, are read and hashed for the first one that is needed."""


@dataclass(frozen=True)
class StorePlan:
    """Everything that decides what a store is written from."""

    planes: list[list[LevelPlan]]
    """Levels at each focal plane, lowest first; all planes of a level are stored alike."""
    default: int = 0
    """Number of the plane on which the tissue is found."""
    damage: Damage | None = None
    """Tiles that must not be shown; None if they were not looked for."""
    pointing: Pointing | None = None
    """Of a store that points at the slide's tiles."""

    @property
    def levels(self) -> list[LevelPlan]:
        return self.planes[self.default]


@dataclass(frozen=True)
class LevelPlan:
    """One level of the store: its array, and where its chunks come from.

    A level with neither tiles nor a decoder is built from the level before it.
    """

    about: Level
    spec: ArraySpec
    encoded: EncodedLevel | None = None
    decoder: Slide | None = None
    places: TilePlaces | None = None
    """Of encoded tiles that are pointed at instead of copied."""

    @property
    def is_built(self) -> bool:
        return self.encoded is None and self.decoder is None


def plan_levels(
    slide: Slide, gates: Sequence[PassThroughGate] | None, config: IngestConfig, damage: Damage | None = None
) -> list[list[LevelPlan]]:
    """Plans of the source's levels, then of levels each half the last, until the slide fits a screen; by focal plane.

    Args:
        gates: of each focal plane; None: tiles are taken as they are, without comparing or repairing any.
        damage: tiles that must not be shown, whatever plane they are of; None if they were not looked for.

    Raises:
        CorruptTileError: a sampled tile that no decoder can read.
    """
    planes = [RepairedSlide(_without(plane, damage), {}) for plane in planes_of(slide)]
    num_levels, finest = len(slide.info.levels), slide.info.levels[0]
    comparing: Sequence[PassThroughGate | None] = gates or [None] * len(planes)
    by_level = [_source_routes(planes, level, comparing, config, damage) for level in range(num_levels)]
    plans = [list(levels) for levels in zip(*by_level, strict=True)]
    return [levels + list(_built(levels[-1].spec, num_levels, finest, config)) for levels in plans]


def as_links(planes: list[list[LevelPlan]], slide_id: str) -> list[list[LevelPlan]]:
    """The plans, with encoded tiles pointed at. Reduced levels whose tiles cannot be are stored as usual.

    Raises:
        BadRecipeError: the tiles of the finest level cannot be pointed at, or it is a stack.
        CorruptTileError: a tile is said to be outside its file.
    """
    plans, *others = planes
    finest, *coarser = map(_as_link, plans)
    if others:
        finest = NotCopied(f"it has {len(planes)} focal planes")
    if isinstance(finest, NotCopied):
        raise BadRecipeError(f"slide {slide_id}: cannot be linked: {finest.reason}. Ingest it without `--link`.")
    linked = [finest, *coarser]
    return [[plan if isinstance(link, NotCopied) else link for plan, link in zip(plans, linked, strict=True)]]


def in_fewer_shards(planes: list[list[LevelPlan]]) -> list[list[LevelPlan]]:
    """The plans, with the pointers of large levels in fewer and larger files, for a store that is to appear soon.

    Not those of a level from which others are built: that is done a shard at a time, in memory.
    """
    return [
        [
            plan if plan.places is None or is_parent else replace(plan, spec=_in_fewer_shards(plan.spec))
            for plan, is_parent in zip(plans, [*(plan.is_built for plan in plans[1:]), False], strict=True)
        ]
        for plans in planes
    ]


def _in_fewer_shards(spec: ArraySpec) -> ArraySpec:
    while spec.shard_rows * spec.shard_columns > _FEW_SHARDS and spec.shard_chunks <= _MAX_POINTERS_ALONG // 2:
        spec = replace(spec, shard_chunks=2 * spec.shard_chunks)
    return spec


def _as_link(plan: LevelPlan) -> LevelPlan | NotCopied:
    if plan.encoded is None:
        return NotCopied((plan.about.gate and plan.about.gate.reason) or "its tiles are not stored as they are")
    places = plan.encoded.places()
    if isinstance(places, NotCopied):
        return places
    if len(places.rule.tables or b"") > MAX_TABLES_BYTES:
        return NotCopied("its tiles share too many JPEG tables")
    spec = replace(plan.spec, link=LinkSpec(places.rule.tables, places.rule.says_rgb, places.in_items))
    return replace(plan, about=plan.about.model_copy(update={"route": LINKED}), spec=spec, places=places)


def _without(slide: Slide, damage: Damage | None) -> Slide:
    return MaskedSlide(slide, damage) if damage and any(level.tiles for level in damage) else slide


def _source_routes(
    planes: list[RepairedSlide],
    level: int,
    gates: Sequence[PassThroughGate | None],
    config: IngestConfig,
    damage: Damage | None,
) -> list[LevelPlan]:
    """Plans of a level by focal plane; what was repaired in it is kept for the levels after it."""
    size = planes[0].info.levels[level]
    each = list(zip(planes, gates, strict=True))
    repaired_at = [_repair(slide, level, damage) if gate else () for slide, gate in each]
    checked = [
        _passing(slide, level, gate, config, without) for (slide, gate), without in zip(each, repaired_at, strict=True)
    ]
    passing, verdict = [encoded for encoded, _ in checked if encoded], _together([gate for _, gate in checked])
    num_planes = len(planes) if len(planes) > 1 else None
    if len(passing) < len(planes):
        spec = _spec(size, _decode_chunk_px(size, config), _codec(config), config.decode_shard_px, config)
        about = _level(level, size.downsample, "decode", spec, config, gate=verdict)
        sources: list[dict[str, Any]] = [{"decoder": slide} for slide in planes]
    else:
        first = passing[0]
        is_last = level == len(planes[0].info.levels) - 1  # others may be built from it
        spec = _spec(size, first.tile_px, first.codec, config.decode_shard_px if is_last else config.shard_px, config)
        about = Level(path=str(level), downsample=size.downsample, route=PASS_THROUGH, codec=spec.codec, gate=verdict)
        sources = [{"encoded": encoded} for encoded in passing]
    about = about.model_copy(update={"rebuilt": repaired_at[0]})
    return [
        LevelPlan(about, replace(spec, planes=num_planes, plane=plane), **source)
        for plane, source in enumerate(sources)
    ]


def _together(verdicts: list[Gate | None]) -> Gate | None:
    """The verdict on a level from those on its focal planes: all must pass."""
    known = [verdict for verdict in verdicts if verdict]
    if not known:
        return None
    first = next((verdict for verdict in known if not verdict.equal), known[0])
    against = ", ".join(dict.fromkeys(verdict.against for verdict in known))
    return first.model_copy(update={"tiles": sum(verdict.tiles for verdict in known), "against": against})


def _repair(slide: RepairedSlide, level: int, damage: Damage | None) -> tuple[Position, ...]:
    """Tiles of a reduced level that are made from the level before: damaged ones, and those Aperio scrambles."""
    if not level:
        return ()
    masked = damage[level].tiles if damage else frozenset()
    own = slide.encoded_level(level)
    if slide.info.format != APERIO or isinstance(own, NotCopied):
        return tuple(sorted(masked))
    is_masked = damage[level - 1].touches if damage else lambda _: False
    repaired = EdgeCheck(slide, level, own, is_masked).repair()
    if repaired:
        slide.levels[level] = repaired
    return tuple(sorted(masked | set(repaired.repaired if repaired else ())))


def _spec(size: LevelSize, chunk_px: int, codec: Codec, shard_px: int, config: IngestConfig) -> ArraySpec:
    chunks = _shard_chunks(min(shard_px, config.shard_px), chunk_px)
    return ArraySpec(size.width_px, size.height_px, chunk_px, chunks, codec)


def _passing(
    slide: Slide, level: int, gate: PassThroughGate | None, config: IngestConfig, repaired_at: tuple[Position, ...]
) -> tuple[EncodedLevel | None, Gate | None]:
    """The level's own tiles if they pass the gate, else None and the reason."""
    encoded: EncodedLevel | NotCopied = NotCopied("`pass_through = false` in the settings")
    if config.pass_through:
        encoded = slide.encoded_level(level)
    if not isinstance(encoded, NotCopied) and encoded.tile_px > MAX_CHUNK_PX:
        encoded = NotCopied(f"its tiles of {encoded.tile_px} px are larger than the {MAX_CHUNK_PX} px of a chunk")
    if isinstance(encoded, NotCopied):
        return None, Gate(tiles=0, against=gate.against if gate else "", equal=False, reason=encoded.reason)
    if gate is None:
        return encoded, None
    verdict = gate.check(level, encoded, without=repaired_at)
    return (encoded if verdict.equal else None), verdict


def _built(parent: ArraySpec, level: int, finest: LevelSize, config: IngestConfig) -> Iterator[LevelPlan]:
    """Plans of built levels. Each has its parent's chunks and shards: four shards of the parent make one of it."""
    codec = parent.codec if parent.codec == "zstd" else _codec(config)
    while max(parent.width_px, parent.height_px) > config.smallest_level_px:
        width_px, height_px = -(-parent.width_px // 2), -(-parent.height_px // 2)
        spec = replace(parent, width_px=width_px, height_px=height_px, codec=codec)
        size = level_size(width_px, height_px, finest.width_px, finest.height_px)
        yield LevelPlan(_level(level, size.downsample, "built", spec, config), spec)
        parent, level = spec, level + 1


def _level(
    level: int, downsample: float, route: str, spec: ArraySpec, config: IngestConfig, *, gate: Gate | None = None
) -> Level:
    quality = config.jpeg_quality if spec.codec == "imagecodecs_jpeg" else None
    return Level(path=str(level), downsample=downsample, route=route, codec=spec.codec, gate=gate, quality=quality)


def _codec(config: IngestConfig) -> Codec:
    return "zstd" if config.decode_to == "zstd" else "imagecodecs_jpeg"


def _decode_chunk_px(size: LevelSize, config: IngestConfig) -> int:
    """The largest multiple of the source's tiles that fits, if they are known, so that none is decoded twice."""
    if size.tile_px is None or not 16 <= size.tile_px <= 2 * config.decode_chunk_px:
        return config.decode_chunk_px
    return size.tile_px * max(1, config.decode_chunk_px // size.tile_px)


def _shard_chunks(shard_px: int, chunk_px: int) -> int:
    """Chunks along a shard's side: the most that fit into `shard_px`, an even number of pixels, at least one."""
    chunks = min(max(1, shard_px // chunk_px), MAX_SHARD_CHUNKS)
    return chunks if chunks * chunk_px % 2 == 0 else chunks + 1
