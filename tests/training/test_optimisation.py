"""Optimisation of weights: groups, learning rates, smoothed labels, averaged weights."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from training.recipe.config import OptimConfig
from training.recipe.optimisation import cross_entropy, loss_of, make_optimizer, rate_at
from training.run.averaging import WeightAverage


@pytest.fixture
def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4, 2))


@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_norms_and_biases_do_not_decay_unless_the_recipe_says_so(network, name):
    named = list(network.named_parameters())

    usual = make_optimizer(named, OptimConfig(name=name, weight_decay=0.1))
    everything = make_optimizer(named, OptimConfig(name=name, weight_decay=0.1, decay_all=True))

    decay = {key: group["weight_decay"] for group in usual.param_groups for key in group["param_names"]}
    assert decay == {
        "0.weight": 0.1, "0.bias": 0.0, "1.weight": 0.0, "1.bias": 0.0, "3.weight": 0.1, "3.bias": 0.0,
    }  # fmt: skip
    assert [group["weight_decay"] for group in everything.param_groups] == [0.1]


def test_a_rank_that_owns_only_biases_has_an_optimizer_too(network):
    optimizer = make_optimizer([("3.bias", network[3].bias)], OptimConfig())

    assert [len(group["params"]) for group in optimizer.param_groups] == [1]


def test_the_rate_rises_in_even_parts_then_falls_in_a_half_wave_to_nothing():
    config = OptimConfig(warmup_steps=4)

    rates = [rate_at(step, 12, config) for step in range(13)]

    assert rates[:5] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert rates[8] == pytest.approx(0.5)
    assert rates[12] == pytest.approx(0.0)
    assert rates[4:] == sorted(rates[4:], reverse=True)


def test_the_rate_drops_in_steps_at_shares_of_the_run():
    config = OptimConfig(schedule="step", drop_at=(0.5, 0.75), drop_factor=0.1)

    rates = [rate_at(step, 8, config) for step in range(8)]

    assert rates == pytest.approx([1.0] * 4 + [0.1] * 2 + [0.01] * 2)


def test_drops_that_do_not_rise_are_refused():
    with pytest.raises(ValueError, match="drop_at must rise from drop to drop"):
        OptimConfig(drop_at=(0.7, 0.5))


def test_smoothed_labels_are_the_mean_over_all_classes_for_their_share():
    outputs_nk, labels_n = torch.tensor([[2.0, 0.0, -1.0], [0.0, 1.0, 0.0]]), torch.tensor([0, 2])
    logs = torch.log_softmax(outputs_nk, 1)
    smoothed = 0.9 * -logs[range(2), labels_n] + 0.1 * -logs.mean(1)

    assert loss_of(OptimConfig(label_smoothing=0.1))(outputs_nk, labels_n) == pytest.approx(smoothed.sum().item())
    assert loss_of(OptimConfig()) is cross_entropy


def test_the_average_follows_its_formula_and_forgets_the_first_weights_soon():
    weight, count = torch.tensor([8.0]), torch.tensor(0)
    average = WeightAverage({"w": weight, "n": count}, 0.9)
    expected = 8.0

    for step in range(1, 40):
        weight.fill_(math.sin(step))
        count.add_(1)
        average.update(step)
        decay = min(0.9, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * math.sin(step)

    assert average.own()["w"].item() == pytest.approx(expected, abs=1e-6)
    assert abs(average.own()["w"].item()) < 1
    assert average.own()["n"].item() == 39
    assert weight.item() == pytest.approx(math.sin(39))


def test_the_average_of_weights_that_stand_still_is_those_weights_to_the_last_bit():
    weight = torch.randn(100, generator=torch.Generator().manual_seed(1))
    average = WeightAverage({"w": weight}, 0.997)

    for step in range(1, 40):
        average.update(step)

    assert torch.equal(average.own()["w"], weight)


def test_an_average_of_another_network_is_refused_and_nothing_is_taken_over():
    average = WeightAverage({"a": torch.zeros(2), "b": torch.zeros(3)}, 0.9)

    with pytest.raises(ValueError, match="the average of b is missing, or of another shape"):
        average.load({"a": torch.ones(2), "b": torch.ones(2)})

    assert average.own()["a"].tolist() == [0, 0]
