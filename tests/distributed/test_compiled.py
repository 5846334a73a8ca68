"""Compiled blocks: the cuts of the network change none of their bits either."""

import shutil
from dataclasses import replace

import pytest

from tests.distributed.launch import run_ranks
from tests.distributed.networks import small_resnet
from tests.distributed.problem import Case, StepBatch, differences, loss_sum, train, train_all
from training.engine.plan import make_plan
from training.engine.predict import predict_memory
from training.engine.recompute import Recompute

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.slow,
    # torch's own warnings: its compiler imports deprecated modules, and reads every tensor's gradient.
    pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning"),
    pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler (g++)"),
]


def test_strategies_agree_on_compiled_blocks():
    batches = ((1, 1, 1),)  # one step, one shape: every further shape is compiled again
    split = [
        Case("1f1b", 2, batches, compiled=True, costs=(1.0, 1.0, 1.0, 1.0, 3.0)),
        Case("master", 2, batches, compiled=True, recompute=Recompute(rest="offload")),
    ]
    by_rank = run_ranks(2, train_all, split)

    single = train(None, split[0].as_single)
    for index, case in enumerate(split):
        assert differences([outcomes[index] for outcomes in by_rank], single) == [], case


@pytest.mark.parametrize("recompute", [Recompute(2), Recompute(rest="norm")])
def test_compiled_blocks_are_not_recomputed(recompute):
    """The forward without a graph differs in bits from the one with a graph."""
    with pytest.raises(ValueError, match="compiled blocks cannot be recomputed"):
        train(None, Case("single", 1, ((1,),), compiled=True, recompute=recompute))


def test_memory_is_predicted_as_if_blocks_were_not_compiled():
    blocks = small_resnet()
    plan = make_plan("single", costs=[1.0] * len(blocks))
    batch = StepBatch(Case("single", 1, ((2,),)), 0)

    predicted = predict_memory(blocks, loss_sum, batch, replace(plan, compiled=True))

    assert predicted == predict_memory(blocks, loss_sum, batch, plan)


def test_compiled_blocks_are_what_runs():
    """Fused operations round differently from torch's own."""
    case = Case("single", 1, ((1, 1),), compiled=True)

    lines = differences([train(None, case)], train(None, Case("single", 1, case.batches)))

    assert lines
    assert "losses" in lines[0]
