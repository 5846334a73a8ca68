"""Which patients or slides are in each batch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from training.data.bag_source import BagSource, with_targets
from training.data.tile_dataset import Indices
from training.foundation.errors import EmptyTableError
from training.foundation.words.counts import counted


class BagPlan:
    """Units of each batch, decided by the seed alone, so that ranks agree without communicating.

    The last batch of an epoch holds the remainder: every unit is seen once in each epoch, unless classes are balanced.
    For Cox's loss each batch has an event: the order is mended with units that have one.
    """

    def __init__(
        self, source: BagSource, *, batch_size: int, seed: int, balance: bool, event_column: int | None = None
    ) -> None:
        self._train = with_targets(source, "train")
        self._seed, self._size = seed, batch_size
        self._chances = None
        if balance:
            self._chances = balanced_chances(source.values[self._train, 0], source.patients[self._train])
        self._events = None if event_column is None else source.values[self._train, event_column] == 1
        self._epoch, self._order = -1, self._train
        self.steps_per_epoch = -(-len(self._train) // batch_size)
        if self._events is not None and self._events.sum() < self.steps_per_epoch:
            raise EmptyTableError(
                f"Cox's loss needs an event in each step: there are {counted(int(self._events.sum()), 'event')} among "
                f"{counted(len(self._train), source.unit)} to train on, for {counted(self.steps_per_epoch, 'step')} of "
                f'{batch_size}. Raise [parallel] num_microbatches, or use loss = "discrete" for the target.'
            )

    def place(self, step: int) -> tuple[int, int]:
        """The epoch of a step, and its number in that epoch; both from 0."""
        return divmod(step, self.steps_per_epoch)

    def batch(self, step: int) -> Indices:
        """Units of an optimizer step, counted from 0 over the whole run."""
        epoch, within = self.place(step)
        if epoch != self._epoch:
            self._epoch, self._order = epoch, self._ordered(epoch)
        return self._order[within * self._size : (within + 1) * self._size]

    def _ordered(self, epoch: int) -> Indices:
        random = np.random.default_rng((self._seed, epoch))
        count = len(self._train)
        chosen = random.permutation(count) if self._chances is None else random.choice(count, count, p=self._chances)
        if self._events is not None:
            chosen = _with_enough_events(chosen, self._events, self.steps_per_epoch, random)
            chosen = _with_an_event_each(chosen, self._events, self._size)
        ordered: Indices = self._train[chosen]
        return ordered


def balanced_chances(labels: NDArray[np.float64], patients: NDArray[np.str_]) -> NDArray[np.float64]:
    """How likely each unit is to be drawn, (units,), in all 1: alike for all classes, and for all patients of a class.

    Units without a label, which may have other targets, keep their share.

    Args:
        labels: class of each unit, NaN where unknown.
    """
    known = np.isfinite(labels)
    chances = np.full(len(labels), 1.0 / len(labels))
    classes = np.unique(labels[known])
    for label in classes:
        own = np.flatnonzero(labels == label)
        _, patient_of, slides_of_patient = np.unique(patients[own], return_inverse=True, return_counts=True)
        chances[own] = 1.0 / slides_of_patient[patient_of] / len(slides_of_patient)
    chances[known] *= known.mean() / max(1, len(classes))
    normalised: NDArray[np.float64] = chances / chances.sum()
    return normalised


def _with_enough_events(
    order: Indices, events: NDArray[np.bool_], num_batches: int, random: np.random.Generator
) -> Indices:
    """Where fewer units with an event were drawn than there are batches, draw such units in place of others."""
    lacking = num_batches - int(events[order].sum())
    if lacking <= 0:
        return order
    order = order.copy()
    places = random.choice(np.flatnonzero(~events[order]), lacking, replace=False)
    order[places] = random.choice(np.flatnonzero(events), lacking)
    return order


def _with_an_event_each(order: Indices, events: NDArray[np.bool_], size: int) -> Indices:
    """Swap units between batches until each batch has an event; the others keep their places."""
    order = order.copy()
    starts = range(0, len(order), size)
    counts = {start: int(events[order[start : start + size]].sum()) for start in starts}
    for start in starts:
        if counts[start]:
            continue
        giver = max(counts, key=lambda other: (counts[other], -other))
        given = giver + int(np.flatnonzero(events[order[giver : giver + size]])[-1])
        taken = min(start + size, len(order)) - 1
        order[given], order[taken] = order[taken], order[given]
        counts[giver], counts[start] = counts[giver] - 1, 1
    return order
