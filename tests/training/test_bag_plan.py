"""Which patients are in each batch, and which of their tiles."""

from dataclasses import dataclass, field
from itertools import chain

import numpy as np
import pytest
from numpy.typing import NDArray

from training.data.bag_batch import BagBatch
from training.data.bag_plan import BagPlan, balanced_chances
from training.foundation.errors import EmptyTableError

NAN = float("nan")


@dataclass
class Bags:
    """Units with targets, and nothing to read."""

    values: NDArray[np.float64]
    units: NDArray[np.str_] = field(default_factory=lambda: np.array([]))
    patients: NDArray[np.str_] = field(default_factory=lambda: np.array([]))
    unit: str = "patient"
    dims: int = 4

    def __post_init__(self) -> None:
        self.units = self.units if len(self.units) else np.array([f"P{i:02}" for i in range(len(self.values))])
        self.patients = self.patients if len(self.patients) else self.units
        self.splits = np.full(len(self.values), "train")
        self.num_tiles = np.full(len(self.values), 1000)


def epochs(plan: BagPlan, number: int) -> list[list[int]]:
    return [plan.batch(step).tolist() for step in range(number * plan.steps_per_epoch)]


def labelled(*labels: float) -> NDArray[np.float64]:
    return np.array(labels)[:, None]


def test_without_balance_each_unit_is_seen_once_in_an_epoch():
    plan = BagPlan(Bags(labelled(*[0, 1] * 6, 0)), batch_size=4, seed=3, balance=False)
    batches = epochs(plan, 1)
    assert [len(batch) for batch in batches] == [4, 4, 4, 1]
    assert sorted(chain.from_iterable(batches)) == list(range(13))


def test_balance_draws_classes_alike_and_patients_of_a_class_alike():
    # Class 0: patient A with three slides; class 1: patients B, with two, and C, with one.
    labels = np.array([0, 0, 0, 1, 1, 1.0])
    chances = balanced_chances(labels, np.array(["A", "A", "A", "B", "B", "C"]))
    np.testing.assert_allclose(chances, [1 / 6, 1 / 6, 1 / 6, 1 / 8, 1 / 8, 1 / 4])


def test_balance_leaves_units_without_a_class_their_share():
    chances = balanced_chances(np.array([0, 0, 0, 1, NAN, NAN]), np.array(list("ABCDEF")))
    np.testing.assert_allclose(chances, [1 / 9, 1 / 9, 1 / 9, 1 / 3, 1 / 6, 1 / 6])
    # They have another target, which would be lost if they were never drawn.
    bags = Bags(np.column_stack([[0, 1] * 10 + [NAN] * 10, np.arange(30.0)]))
    plan = BagPlan(bags, batch_size=5, seed=0, balance=True)
    assert set(chain.from_iterable(epochs(plan, 40))) == set(range(30))


@pytest.mark.parametrize("class_of_events", [[NAN] * 8, [0] * 4 + [1] * 4, [0] * 7 + [NAN]])
def test_every_batch_has_an_event_for_cox_also_where_classes_are_balanced(class_of_events):
    classes = class_of_events + [0, 1] * 26
    events = [1] * 8 + [0] * 52
    bags = Bags(np.column_stack([classes, np.arange(60.0), events]))
    for balance in (False, True):
        for seed in range(4):
            plan = BagPlan(bags, batch_size=8, seed=seed, balance=balance, event_column=2)
            assert all(bags.values[batch, 2].any() for batch in epochs(plan, 30)), (balance, seed)


def test_fewer_events_than_steps_are_refused_with_both_numbers():
    bags = Bags(np.column_stack([[0, 1] * 10, np.arange(20.0), [1, 1] + [0] * 18]))
    with pytest.raises(EmptyTableError, match=r"2 events among 20 patients to train on, for 5 steps of 4"):
        BagPlan(bags, batch_size=4, seed=0, balance=False, event_column=2)


def test_patients_draw_different_tiles_even_where_their_names_begin_alike():
    units = np.array(["TCGA-AA-3842", "TCGA-AA-A00E", "TCGA-AA-3842-01Z-00-DX1"])
    bags = Bags(labelled(0, 1, 0), units=units)
    batch = BagBatch(bags, np.arange(3), np.zeros((3, 1), np.float32), max_tiles=100, seed=1, epoch=2)
    rows = [batch.rows_of(unit) for unit in range(3)]
    assert not any(np.array_equal(rows[a], rows[b]) for a, b in ((0, 1), (0, 2), (1, 2)))


def test_tiles_are_drawn_by_seed_epoch_and_patient_and_by_nothing_else():
    def rows(units: list[str], of: str, **settings: int) -> list[int]:
        bags = Bags(labelled(*range(len(units))), units=np.array(units))
        batch = BagBatch(bags, np.arange(len(units)), np.zeros((len(units), 1), np.float32), max_tiles=50, **settings)
        found = batch.rows_of(units.index(of))
        assert found is not None
        return found.tolist()

    first = rows(["A", "B"], "B", seed=1, epoch=2)
    assert rows(["B", "A", "C"], "B", seed=1, epoch=2) == first
    assert rows(["A", "B"], "B", seed=2, epoch=2) != first
    assert rows(["A", "B"], "B", seed=1, epoch=3) != first
    assert len(set(first)) == 50
    assert first == sorted(first)
