"""The engine for a user's own list of blocks, in one process and under torchrun."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.training.engine import api_program
from tests.training.engine.small_networks import loss, make_batch, make_blocks, plan_of
from training import engine
from training.engine.strategies import STRATEGIES

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "docs" / "examples" / "engine_api.py"


@pytest.fixture(autouse=True)
def _alone(monkeypatch, one_thread):
    monkeypatch.delenv("WORLD_SIZE", raising=False)


def run(*command: object, num_ranks: int = 1) -> str:
    """Run a program as a user would, under torchrun for several ranks; return its output."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={num_ranks}"]
    launcher = torchrun if num_ranks > 1 else []
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *launcher, *map(str, command)],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=ROOT,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "arguments", [pytest.param((), id="master"), pytest.param(("chimera",), id="chimera", marks=pytest.mark.prove)]
)
def test_the_example_prints_the_same_losses_however_it_is_started(arguments):
    alone = run(EXAMPLE)
    losses = [float(line) for line in alone.splitlines()[:-1]]

    assert len(losses) == 10
    assert losses[-1] < losses[0]
    assert alone.splitlines()[-1].endswith("% of the pixels are right")
    assert run(EXAMPLE, *arguments, num_ranks=2) == alone


def test_two_ranks_learn_what_one_learns_under_every_strategy(tmp_path):
    """Several networks and plans in one program; every rank has everything in the end."""
    run(api_program.__file__, tmp_path, *STRATEGIES, num_ranks=2)
    ranks = [torch.load(tmp_path / f"rank{rank}.pt") for rank in range(2)]

    for network in api_program.NETWORKS_TO_SPLIT:
        expected = api_program.learn(network, "single", engine.alone())
        for result in (rank[strategy][network] for rank in ranks for strategy in STRATEGIES):
            assert [result[what] for what in ("loss", "losses", "norms")] == [
                expected[what] for what in ("loss", "losses", "norms")
            ]
            assert all(torch.equal(*pair) for pair in zip(result["outputs"], expected["outputs"], strict=True))
            state = expected["state"]
            assert result["state"].keys() == state.keys()
            assert all(torch.equal(result["state"][name], state[name]) for name in state)


def test_a_step_of_a_multilayer_perceptron_is_a_step_of_plain_pytorch():
    def perceptron():
        torch.manual_seed(3)
        return [nn.Linear(5, 9), nn.Tanh(), nn.Linear(9, 2)]

    blocks, model = perceptron(), nn.Sequential(*perceptron())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    plan = plan_of(blocks, make_optimizer=lambda weights: torch.optim.AdamW(weights, lr=0.01))
    inputs_nk, targets_nk = torch.randn(6, 5), torch.randn(6, 2)
    batch = engine.split(inputs_nk, targets_nk, microbatch_size=6)

    one = engine.Engine(blocks, plan)
    for _ in range(3):
        result = one.train_step(batch, squared_error)
        value = squared_error(model(inputs_nk), targets_nk) / 6
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        assert (result.loss, result.losses) == (value.item(), (value.item(),))

    assert all(torch.equal(*pair) for pair in zip(plain_weights(blocks), model.parameters(), strict=True))
    assert torch.equal(one.forward_only(batch)[0], model(inputs_nk).detach())


def squared_error(outputs_nk, targets_nk):
    return (outputs_nk - targets_nk).square().sum()


def plain_weights(blocks):
    return list(nn.Sequential(*blocks).parameters())


def test_a_batch_is_split_with_what_is_left_over_at_the_end():
    inputs, targets = torch.arange(14.0).view(7, 2), torch.arange(7)

    batch = engine.split(inputs, targets, microbatch_size=3)

    assert batch.shapes == [(3, 2), (3, 2), (1, 2)]
    assert torch.equal(torch.cat([batch.inputs(k) for k in range(3)]), inputs)
    assert torch.equal(torch.cat([batch.targets(k) for k in range(3)]), targets)


def test_every_sample_counts_alike_however_the_batch_is_split():
    """The loss is divided by all samples of the step: the learning rate means the same for any micro-batch size."""
    inputs_nk, targets_nk = torch.randn(7, 5), torch.randn(7, 2)
    weights = []
    for size in (7, 3, 1):
        torch.manual_seed(3)
        blocks = [nn.Linear(5, 2)]
        batch = engine.split(inputs_nk, targets_nk, microbatch_size=size)
        engine.Engine(blocks, plan_of(blocks)).train_step(batch, squared_error)
        weights.append(blocks[0].weight.detach())

    torch.testing.assert_close(weights[1], weights[0])
    torch.testing.assert_close(weights[2], weights[0])


def test_any_class_with_the_methods_of_a_batch_will_do():
    class Tiles:
        """Inputs that are read on request."""

        shapes = ((2, 3, 8, 12), (1, 3, 16, 6))

        def inputs(self, microbatch):
            return torch.ones(self.shapes[microbatch])

        def targets(self, microbatch):
            return torch.zeros(self.shapes[microbatch][0], dtype=torch.int64)

    blocks = make_blocks("relu-chain")
    one = engine.Engine(blocks, plan_of(blocks))

    assert len(one.train_step(Tiles(), loss).losses) == 2
    assert [len(output) for output in one.forward_only(Tiles())] == [2, 1]


def test_the_blocks_are_trained_in_place():
    blocks = make_blocks("unet")
    before = [weight.clone() for weight in plain_weights(blocks)]

    engine.Engine(blocks, plan_of(blocks)).train_step(make_batch(2), loss)

    assert not any(torch.equal(*pair) for pair in zip(before, plain_weights(blocks), strict=True))


def test_a_plan_for_more_ranks_than_there_are_is_refused():
    blocks = make_blocks("relu-chain")

    with pytest.raises(ValueError, match="master with 2 stages and 1 group needs 2 ranks, got 1; start 2 processes"):
        engine.Engine(blocks, plan_of(blocks, "master", num_stages=2, num_microbatches=2))


def test_two_engines_in_one_program_do_not_disturb_each_other():
    expected_of = make_blocks("unet")
    alone = engine.Engine(expected_of, plan_of(expected_of))
    expected = [alone.train_step(make_batch(2), loss).loss for _ in range(3)]

    blocks = [make_blocks("unet"), make_blocks("dropout")]
    first, second = (engine.Engine(network, plan_of(network)) for network in blocks)
    losses = []
    for _ in range(3):
        losses.append(first.train_step(make_batch(2), loss).loss)
        second.train_step(make_batch(3), loss)

    assert losses == expected


def test_who_watches_is_told_each_action_before_it_is_done_and_where_it_has_got_to():
    blocks = make_blocks("resnet")
    seen = []

    def watch(step: int, what: object) -> None:
        seen.append((step, str(what), one[0].at if one else None))

    one: list[engine.Engine] = []
    one.append(engine.Engine(blocks, plan_of(blocks), watch=watch))
    for _ in range(2):
        one[0].train_step(make_batch(1), loss)

    assert [what for step, what, _ in seen if step == 1] == [
        "F of stage 0, replica 0, micro-batch 0", "B of stage 0, replica 0, micro-batch 0",
        "REDUCE of stage 0, replica 0",
        "sharing the losses", "STEP of stage 0, replica 0",
    ]  # fmt: skip
    last = len(blocks) - 1
    assert [at for step, _, at in seen if step == 0] == [
        None, f"block {last} of the network", f"the backward of blocks 0 to {last} of the network",
        "the sum of gradients", "the sum of gradients",
    ]  # fmt: skip
    assert one[0].at == "the optimizer's step"
