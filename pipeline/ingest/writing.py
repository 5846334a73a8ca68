"""What writes a store from an open slide, whether its tiles are copied or pointed at."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import ChangedSourceError, CorruptTileError
from pipeline.files import sha256_of_files
from pipeline.ingest.damage.absent import find_absent, refuse_absent, refuse_without_data
from pipeline.ingest.damage.found import HOW_TO_MASK, Damage, in_any, refuse_mostly_damaged
from pipeline.ingest.damage.scan import scan_for_damage
from pipeline.ingest.gate import PassThroughGate
from pipeline.ingest.link.pointers import Pointing
from pipeline.ingest.mpp import Mpp
from pipeline.ingest.routes import StorePlan, as_links, in_fewer_shards, plan_levels
from pipeline.ingest.store_writer import StoreWriter
from pipeline.settings.config import IngestConfig
from pipeline.slides.common.slide import Slide, planes_of
from pipeline.store.format.metadata import Level, Source
from pipeline.units import default_plane
from training.foundation.progress import Advance


@dataclass(frozen=True)
class Written:
    """A store that was written."""

    sha256: str
    tissue_fraction: float
    levels: tuple[Level, ...]
    damaged: tuple[int, int] | None
    """Tiles of level 0 that are damaged and masked, and of how many; None: not checked."""
    warnings: tuple[str, ...]


def write_compared(
    folder: Path, slide: Slide, slide_id: str, config: IngestConfig, mpp: Mpp, advance: Advance,
    pointing: Pointing | None = None,
) -> Written:  # fmt: skip
    """Compare a slide's tiles, copy them or point at them, and write all the rest of its store.

    Raises:
        CorruptTileError, ChangedSourceError, UnreadableError: the slide. BadRecipeError: it cannot be linked.
    """
    before = identity_of(slide)
    with _Hash(slide) as digest, _say_how_to_mask(config):
        damage = _find_damage(slide, slide_id, config, advance)
        with ExitStack() as opened:
            gates = [opened.enter_context(PassThroughGate(plane, config.gate_tiles)) for plane in planes_of(slide)]
            plans = plan_levels(slide, gates, config, damage)
            default = default_plane(slide.info.planes_um or (0.0,))
            plan = StorePlan(as_links(plans, slide_id) if pointing else plans, default, damage, pointing)
            writer = StoreWriter(folder, slide, plan, config, mpp, advance)
            tissue = writer.write(slide_id, lambda: source_of(slide, digest.result()))
        if identity_of(slide) != before:
            raise ChangedSourceError(
                f"slide {slide_id}: {slide.files[0].name} changed while it was read. "
                "Wait until it is fully copied and ingest it again."
            )
    assert tissue is not None  # only a first appearance has none
    damaged = (len(damage[0].tiles), damage[0].num_tiles) if damage else None
    levels = tuple(level.about for level in plan.levels)
    return Written(digest.result(), tissue.fraction, levels, damaged, tuple(writer.warnings))


def write_first_appearance(
    folder: Path, slide: Slide, slide_id: str, config: IngestConfig, mpp: Mpp, advance: Advance, pointing: Pointing
) -> None:
    """Write a linked store without reading more of the slide than its coarsest level.

    Raises:
        BadRecipeError: the slide cannot be linked. CorruptTileError: it is cut short.
    """
    plans = in_fewer_shards(as_links(plan_levels(slide, None, config), slide_id))
    plan = StorePlan(plans, pointing=pointing)
    StoreWriter(folder, slide, plan, config, mpp, advance).write(slide_id, lambda: source_of(slide))


def source_of(slide: Slide, sha256: str | None = None) -> Source:
    """Facts about a slide's files, as a store states them."""
    length = sum(path.stat().st_size for path in slide.files)
    return Source(
        sha256=sha256, bytes=length, format=slide.info.format, files=len(slide.files), series=slide.info.series
    )


def identity_of(slide: Slide) -> list[tuple[int, int, int]]:
    """Length and times of each file, which change when it is written to."""
    stats = [path.stat() for path in slide.files]
    return [(stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns) for stat in stats]


def _find_damage(slide: Slide, slide_id: str, config: IngestConfig, advance: Advance) -> Damage | None:
    """Scan a slide for damage; None if only absent data need to be looked for, since other damage ends the ingest.

    A tile that is damaged at one focal plane is left out at all of them: masks are of the slide.
    """
    planes, absent = planes_of(slide), []
    for plane in planes:
        absent.append(find_absent(plane, config))
        refuse_without_data(absent[-1], slide_id)
        if config.damaged == "refuse":
            refuse_absent(absent[-1], slide_id)
    if config.damaged == "refuse":
        return None
    damage = in_any([scan_for_damage(plane, config, one, advance) for plane, one in zip(planes, absent, strict=True)])
    refuse_mostly_damaged(damage, slide_id)
    return damage


@contextmanager
def _say_how_to_mask(config: IngestConfig) -> Iterator[None]:
    """Add to the refusal of a damaged slide how to ingest it all the same."""
    try:
        yield
    except CorruptTileError as error:
        if config.damaged == "mask":
            raise
        raise CorruptTileError(f"{error} {HOW_TO_MASK}") from error


class _Hash:
    """SHA-256 of the source, computed by a thread while others copy."""

    def __init__(self, slide: Slide) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="sha256")
        self._stop = threading.Event()
        self._future: Future[str] = self._pool.submit(sha256_of_files, slide.files, self._stop)

    def result(self) -> str:
        return self._future.result()

    def __enter__(self) -> _Hash:
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._pool.shutdown()
