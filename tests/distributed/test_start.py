"""Agreement between ranks before their first step: one set of weights, and one timeout."""

from dataclasses import replace
from datetime import timedelta
from functools import partial

import pytest
import torch
import torch.distributed as dist
from torch import nn

from tests.distributed.launch import run_ranks
from tests.distributed.networks import NUM_CLASSES
from tests.distributed.problem import Case, StepBatch, loss_sum
from tests.small_trained_project import Way, share_tiles
from training.engine.engine import Engine
from training.engine.plan import make_plan
from training.engine.ranks import MixedRanksError, Ranks, alone, connect_ranks
from training.models.resnet_v2 import resnet_v2_blocks
from training.run.joining import agree_on
from training.run.preflight import check_run

pytestmark = pytest.mark.usefixtures("one_thread")

CASE = Case("master", 2, ((2, 2, 1),))
TIMEOUT_S = 77.0


def train_from_own_seed(ranks: Ranks, num_stages: int) -> dict[str, torch.Tensor]:
    """Train one step from weights initialised by this rank."""
    torch.manual_seed(100 + ranks.rank)
    blocks: list[nn.Module] = resnet_v2_blocks(depth=11, num_classes=NUM_CLASSES)
    plan = make_plan("master", costs=[1.0] * len(blocks), num_stages=num_stages, num_microbatches=3)
    engine = Engine(blocks, plan, ranks=ranks)
    engine.train_step(StepBatch(CASE, 0), loss_sum)
    return engine.full_state_dict()


def test_ranks_that_were_seeded_differently_go_on_from_the_weights_of_the_first():
    by_rank = run_ranks(2, train_from_own_seed, 2)

    expected = train_from_own_seed(alone(), 1)
    for state in by_rank:
        assert [name for name, tensor in state.items() if not torch.equal(tensor, expected[name])] == []


def timeouts(ranks: Ranks) -> list[timedelta]:
    groups = [group for group in (ranks.data, ranks.control, dist.group.WORLD) if group is not None]
    return [group._get_backend(torch.device("cpu")).options._timeout for group in groups]


def test_all_channels_wait_as_long_as_they_were_told():
    assert run_ranks(2, timeouts, timeout_s=TIMEOUT_S) == [[timedelta(seconds=TIMEOUT_S)] * 3] * 2


def refusal(task, *args):
    try:
        task(*args)
    except (MixedRanksError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return None


def connect_mixed(ranks, meeting):
    number, num_ranks = ranks.rank, ranks.num_ranks
    ranks.close()
    connect = partial(
        connect_ranks, timeout_s=60, init_method=f"file://{meeting}", rank=number, num_ranks=num_ranks,
        backend="nccl" if number == 1 else "gloo",
    )  # fmt: skip
    said = refusal(connect)
    dist.destroy_process_group()
    return said


def test_ranks_that_would_send_in_another_way_are_refused_by_name_instead_of_hanging(tmp_path):
    both = run_ranks(3, connect_mixed, tmp_path / "meeting")

    assert both[0] == both[1] == both[2]
    assert both[0].startswith(
        "MixedRanksError: the ranks of one run must share backend, but it is 'gloo' on rank 0 and 'nccl' on 1 other, "
        "such as rank 1."
    )


def agree_mixed(ranks, recipe, project):
    checked = check_run(recipe, project, 2)
    optim = checked.recipe.optim.model_copy(update={"lr": 0.1 * (1 + ranks.rank)})
    mixed = replace(checked, recipe=checked.recipe.model_copy(update={"optim": optim}))
    return refusal(agree_on, mixed, ranks), refusal(agree_on, checked, ranks)


def test_ranks_that_read_another_recipe_are_refused_with_the_setting(small_project, tmp_path):
    share_tiles(small_project.project, tmp_path)
    recipe = Way("1f1b", num_stages=2).write(tmp_path / "r.toml", steps=1)

    for mixed, alike in run_ranks(2, agree_mixed, recipe, tmp_path):
        assert mixed.startswith(
            "MixedRanksError: the ranks of one run must share [optim] lr, but it is 0.1 on rank 0 and 0.2 on 1 other, "
            "such as rank 1."
        )
        assert alike is None


def first_is_slower(weights):
    """A rule that looks at the place of a weight in the list."""
    return torch.optim.SGD([{"params": [each], "lr": 0.1 if index else 0.01} for index, each in enumerate(weights)])


def skips_the_first(weights):
    return torch.optim.SGD(weights[1:], lr=0.1)


def of_its_rank(weights, rank):
    return torch.optim.SGD(weights, lr=0.1, momentum=0.5 * rank)


def made_with(ranks, rules):
    blocks: list[nn.Module] = resnet_v2_blocks(depth=11, num_classes=NUM_CLASSES)
    said = []
    for rule in rules:
        make = partial(rule, rank=ranks.rank) if rule is of_its_rank else rule
        plan = make_plan("1f1b", costs=[1.0] * len(blocks), num_stages=2, num_microbatches=2, make_optimizer=make)
        said.append(refusal(partial(Engine, blocks, plan, ranks=ranks)))
    return said


def test_an_optimizer_that_depends_on_how_the_network_is_cut_is_refused():
    rules = (first_is_slower, skips_the_first, of_its_rank)
    first, second = run_ranks(2, made_with, rules)

    assert first == second  # the others would wait for the one that is refused
    assert second[0].startswith("ValueError: make_optimizer gives the weight ")
    assert " lr = 0.01 when it is asked about some weights, but 0.1 when" in second[0]
    assert "optimizer = nothing when it is asked about some weights, but SGD when" in second[1]
    for said in (first[2], second[2]):
        assert said.startswith(
            "MixedRanksError: the ranks of one run must share the optimizer's momentum of the weight 0."
        )
