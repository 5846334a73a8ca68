"""The rank that first saw non-finite numbers names the place."""

from unittest import mock

from training.engine.agreement import Agreement
from training.engine.strategies import build_schedule


def test_of_stages_whose_gradients_are_not_finite_the_one_is_named_where_backward_came_first():
    """Non-finite gradients spread to all earlier stages."""
    step = mock.Mock(schedule=build_schedule("1f1b", num_stages=2, num_microbatches=3))
    flags = [0, 0, 1, 1, 1, 0]  # by micro-batch and stage

    fault = Agreement(step, [1.0] * 3, flags, [1.0]).gradient_fault()

    assert fault is not None
    assert str(fault) == "gradients of micro-batch 1 in stage 1 on rank 1 are not finite"
    assert fault.microbatch == 1
