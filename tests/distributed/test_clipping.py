"""Gradients are clipped by their global norm, to the same bits under every strategy."""

import math

import pytest
import torch
from torch import nn

from tests.distributed.launch import run_ranks
from tests.distributed.networks import small_resnet
from tests.distributed.problem import Case, StepBatch, differences, evenly, loss_sum, train, train_all
from training.engine.recompute import Recompute

pytestmark = pytest.mark.usefixtures("one_thread")

TIGHT = 0.05
SINGLE = Case("single", 1, evenly(4), clip_norm=TIGHT)


@pytest.mark.parametrize(
    ("num_stages", "data_parallel", "strategies"),
    [(2, 1, ["mp-basic", "master", "chimera"]), (3, 1, ["master", "1f1b"]), (2, 2, ["master", "gpipe", "chimera"])],
)
def test_norm_and_clipped_gradients_are_equal_under_every_strategy(num_stages, data_parallel, strategies):
    cases = [
        Case(strategy, num_stages, evenly(4), data_parallel, recompute, clip_norm=clip_norm)
        for strategy in strategies
        for recompute, clip_norm in ((Recompute(), TIGHT), (Recompute(1), 1e9))
    ]
    by_rank = run_ranks(num_stages * data_parallel, train_all, cases)

    for index, case in enumerate(cases):
        assert differences([outcomes[index] for outcomes in by_rank], train(None, case.as_single)) == [], case


def test_norm_and_clipping_are_those_of_torch():
    model = nn.Sequential(*small_resnet())
    batch = StepBatch(SINGLE, 0)
    for microbatch, shape in enumerate(batch.shapes):
        loss = loss_sum(model(batch.inputs(microbatch)), batch.targets(microbatch))
        (loss / (len(batch.shapes) * shape[0])).backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), TIGHT).item()

    clipped = train(None, SINGLE, torch.clone)

    assert norm > TIGHT
    assert clipped.norms[0] == pytest.approx(norm, rel=1e-6)
    for name, weight in model.named_parameters():
        assert (clipped.gradients[0][name] - weight.grad).norm() <= 2e-6 * weight.grad.norm(), name


def test_after_clipping_the_norm_is_the_limit():
    clipped = train(None, SINGLE, torch.clone)

    for gradients in clipped.gradients:
        norm = math.sqrt(sum(float(gradient.double().square().sum()) for gradient in gradients.values()))
        assert norm == pytest.approx(TIGHT, rel=1e-6)


def test_a_norm_below_the_limit_changes_nothing():
    loose, unclipped = (train(None, Case("single", 1, evenly(4), clip_norm=limit)) for limit in (1e9, None))

    assert loose.state == unclipped.state
    assert loose.gradients == unclipped.gradients
    assert all(norm > 0 for norm in loose.norms)
    assert loose.norms == unclipped.norms
