"""Cox's partial likelihood in closed form equals autograd of a plain one."""

import math
import time

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from training.models.heads.cox import cox_efron


def efron_by_pairs(risks_n, times_n, events_n):
    """The definition, event by event, in O(n²)."""
    loss = torch.zeros((), dtype=torch.float64)
    for time_of_event in times_n[events_n > 0].unique():
        at_risk = risks_n[times_n >= time_of_event]
        tied = risks_n[(times_n == time_of_event) & (events_n > 0)]
        largest = at_risk.detach().max()
        for place in range(len(tied)):
            rest = (at_risk - largest).exp().sum() - place / len(tied) * (tied - largest).exp().sum()
            loss = loss + largest + rest.log()
        loss = loss - tied.sum()
    return loss / (events_n > 0).sum()


def both(risks, times, events):
    risks_n = torch.tensor(risks, dtype=torch.float64, requires_grad=True)
    times_n, events_n = torch.tensor(times, dtype=torch.float64), torch.tensor(events, dtype=torch.float64)
    expected = efron_by_pairs(risks_n, times_n, events_n)
    (expected_gradient_n,) = torch.autograd.grad(expected, risks_n)
    return cox_efron(risks_n, times_n, events_n), (expected.item(), expected_gradient_n)


patients = st.lists(st.tuples(st.floats(-5, 5), st.integers(1, 4), st.integers(0, 1)), min_size=1, max_size=15)


@settings(max_examples=50)
@given(patients.filter(lambda rows: any(event for _, _, event in rows)))
def test_loss_and_gradient_equal_autograd_with_many_ties(rows):
    (loss, gradient_n), (expected, expected_gradient_n) = both(*zip(*rows, strict=True))

    assert loss == pytest.approx(expected, abs=1e-10)
    torch.testing.assert_close(gradient_n, expected_gradient_n, rtol=0, atol=1e-10)


def test_without_ties_too():
    generator = torch.Generator().manual_seed(0)
    risks, times = torch.randn(2, 60, generator=generator, dtype=torch.float64).tolist()
    (loss, gradient_n), (expected, expected_gradient_n) = both(risks, times, [i % 3 > 0 for i in range(60)])

    assert loss == pytest.approx(expected, abs=1e-10)
    torch.testing.assert_close(gradient_n, expected_gradient_n, rtol=0, atol=1e-10)
    assert float(gradient_n.sum()) == pytest.approx(0, abs=1e-12)


def test_two_patients_by_hand():
    """The patient with the event has risk log 3 against 0: probability 3/4."""
    loss, gradient_n = cox_efron(torch.tensor([math.log(3), 0.0]), torch.tensor([1, 2]), torch.tensor([True, False]))

    assert loss == pytest.approx(math.log(4 / 3))
    assert gradient_n.tolist() == pytest.approx([-0.25, 0.25])
    assert gradient_n.dtype == torch.float64


def test_someone_censored_at_the_time_of_an_event_was_at_risk():
    loss, _ = cox_efron(torch.zeros(2), torch.tensor([2.0, 2.0]), torch.tensor([1, 0]))

    assert loss == pytest.approx(math.log(2))


@pytest.mark.parametrize("scale", [50.0, 5000.0, 1e300])
def test_risks_of_any_size_neither_overflow_nor_vanish(scale):
    """Also where everyone at risk early has a higher risk than all of those later by hundreds of orders."""
    for signs in ([1, -1, 1, -1, 0.5], [1, 0.5, 0, -0.5, -1], [-1, -0.5, 0, 0.5, 1]):
        risks_n = scale * torch.tensor(signs, dtype=torch.float64)
        loss, gradient_n = cox_efron(risks_n, torch.tensor([1, 1, 2, 3, 3]), torch.tensor([1, 1, 0, 1, 1]))

        assert math.isfinite(loss)
        assert gradient_n.isfinite().all()
        assert (gradient_n.abs() <= 1).all()


def test_a_shift_of_all_risks_changes_nothing():
    generator = torch.Generator().manual_seed(1)
    risks_n = torch.randn(30, generator=generator, dtype=torch.float64)
    times_n, events_n = torch.randint(1, 8, (30,), generator=generator), torch.arange(30) % 2

    (loss, gradient_n), (shifted, shifted_n) = (cox_efron(risks_n + x, times_n, events_n) for x in (0, 700))

    assert shifted == pytest.approx(loss, abs=1e-10)
    torch.testing.assert_close(shifted_n, gradient_n, rtol=0, atol=1e-10)


def test_a_cohort_of_200_000_takes_no_pairs():
    generator = torch.Generator().manual_seed(2)
    risks_n = torch.randn(200_000, generator=generator)
    times_n = torch.randint(1, 3000, (200_000,), generator=generator)
    start_s = time.process_time()

    loss, gradient_n = cox_efron(risks_n, times_n, torch.arange(200_000) % 4 == 0)

    assert time.process_time() - start_s < 2
    assert math.isfinite(loss)
    assert float(gradient_n.sum()) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize(
    ("risks", "times", "events", "message"),
    [
        ([0.0, 1.0], [1.0, 2.0], [0, 0], "needs an event among its 2 patients"),
        ([], [], [], "needs an event among its 0 patients"),
        ([0.0, float("nan")], [1.0, 2.0], [1, 0], "risks must be finite, got nan in row 1"),
        ([0.0, 1.0], [float("nan"), 2.0], [1, 0], "times must be finite, got nan in row 0"),
        ([0.0, 1.0], [1.0, 2.0], [1, float("inf")], "events must be finite, got inf in row 1"),
        ([0.0, 1.0], [1.0], [1, 0], "of one length"),
        ([[0.0], [1.0]], [[1.0], [2.0]], [[1], [0]], "of one length"),
    ],
)
def test_what_has_no_likelihood_is_refused(risks, times, events, message):
    with pytest.raises(ValueError, match=message):
        cox_efron(*(torch.tensor(values, dtype=torch.float64) for values in (risks, times, events)))
