"""Assignment of slides to readers and sessions, by the design and the seed alone, so that anyone can repeat it."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.errors import BadManifestError
from pipeline.study.reading.questions import ReadingConfig
from training.foundation.words.counts import counted


@dataclass(frozen=True)
class Assignment:
    """One reading to be done."""

    reader: str
    session: int
    """From 1; a washout separates a reader's sessions."""
    position: int
    """In the session, from 1."""
    slide_id: str
    arm: str


def lay_out(config: ReadingConfig, slide_ids: Sequence[str], seed: int) -> list[Assignment]:
    """All readings of a study. In each session a reader's slides come in a separate random order.

    With a crossover of two arms, half of each group of readers begins with one arm and half with the other, drawn by
    the seed.

    Raises:
        BadManifestError: fewer slides than groups.
    """
    slides = sorted(slide_ids)
    if len(slides) < config.groups:
        groups = counted(config.groups, "group")
        raise BadManifestError(f"a reading design of {groups} needs as many slides, got {len(slides)}.")
    _draw(seed, "slides").shuffle(slides)
    readers = sorted(config.readers)
    _draw(seed, "readers").shuffle(readers)
    assignments = []
    for group in range(config.groups):
        own_slides = slides[group :: config.groups]
        for place, reader in enumerate(readers[group :: config.groups]):
            assignments += _reader_assignments(config, reader, place, own_slides, seed)
    return assignments


def _reader_assignments(
    config: ReadingConfig, reader: str, place: int, slide_ids: Sequence[str], seed: int
) -> list[Assignment]:
    starts_with_second = config.order == "crossover" and place % 2 == 1
    arms = config.arms[::-1] if starts_with_second else config.arms
    assignments = []
    for session, arm in enumerate((arm for _ in range(config.repeats) for arm in arms), start=1):
        order = sorted(slide_ids)
        _draw(seed, f"{reader} {session}").shuffle(order)
        assignments += [
            Assignment(reader, session, position, slide, arm) for position, slide in enumerate(order, start=1)
        ]
    return assignments


def _draw(seed: int, purpose: str) -> random.Random:
    """A separate generator for each purpose: one reader's draws do not depend on the others'."""
    return random.Random(hashlib.sha256(f"{seed} {purpose}".encode()).digest())
