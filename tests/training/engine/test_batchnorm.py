from itertools import pairwise

import pytest
import torch
from torch import nn

from training.engine.sums.running_statistics import RunningStatistics

CLOSE = {"rtol": 3e-7, "atol": 3e-7}


def layer(momentum=0.1):
    torch.manual_seed(3)
    made = nn.BatchNorm2d(5, momentum=momentum)
    nn.init.normal_(made.running_mean)
    nn.init.uniform_(made.running_var, 0.5, 2.0)
    return made


def microbatches(count=6):
    torch.manual_seed(4)
    return [3 * torch.randn(2, 5, 6, 7) + k for k in range(count)]


def recorded_in_order(module, images, *, reverse=False):
    running = RunningStatistics(module.modules())
    recorded = {}
    with running.recording():
        for k in [*range(len(images) // 2, len(images)), *range(len(images) // 2)]:
            running.start()
            module(images[k])
            recorded[k] = running.recorded()
    running.replay([recorded[k] for k in sorted(recorded, reverse=reverse)], slice(0, len(running)))
    running.count(len(images))


@pytest.mark.parametrize("momentum", [0.1, 0.3, None])
def test_replay_equals_sequential_batchnorm(momentum):
    sequential, replayed = layer(momentum), layer(momentum)
    for images_nchw in microbatches():
        sequential(images_nchw)

    recorded_in_order(replayed, microbatches())

    torch.testing.assert_close(replayed.running_mean, sequential.running_mean, **CLOSE)
    torch.testing.assert_close(replayed.running_var, sequential.running_var, **CLOSE)
    assert replayed.num_batches_tracked == 6


def test_a_second_step_without_momentum_goes_on_averaging():
    sequential, replayed = layer(None), layer(None)
    for images_nchw in [*microbatches(), *microbatches(4)]:
        sequential(images_nchw)

    recorded_in_order(replayed, microbatches())
    recorded_in_order(replayed, microbatches(4))

    torch.testing.assert_close(replayed.running_mean, sequential.running_mean, **CLOSE)
    assert replayed.num_batches_tracked == 10


def test_the_order_of_replay_matters():
    """Otherwise the test above could not detect a replay in the order of recording."""
    forwards, backwards = layer(), layer()
    recorded_in_order(forwards, microbatches())
    recorded_in_order(backwards, microbatches(), reverse=True)

    assert not torch.allclose(forwards.running_mean, backwards.running_mean, **CLOSE)


@pytest.mark.parametrize("pieces", [2, 3, 7])
def test_replay_in_parts_has_the_bits_of_replay_in_one(pieces):
    """Ranks blend their own columns: a fused product would have other bits at the end of a row."""
    rows = []
    for count in (1, pieces):
        torch.manual_seed(1)
        parts = RunningStatistics(nn.Sequential(nn.BatchNorm2d(5), nn.BatchNorm2d(6)).modules())
        recorded = [torch.rand(len(parts)) for _ in range(5)]
        bounds = [len(parts) * i // count for i in range(count + 1)]
        for start, stop in pairwise(bounds):
            parts.replay([row[start:stop] for row in recorded], slice(start, stop))
        rows.append(parts.row.clone())

    assert len(rows[0]) == 22
    assert torch.equal(*rows)


def test_recording_leaves_layer_and_output_alone():
    module, plain = layer(), layer()
    running = RunningStatistics(module.modules())
    images_nchw = microbatches()[0]
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}

    with running.recording():
        output_nchw = module(images_nchw)

    assert torch.equal(output_nchw, plain(images_nchw))
    assert module.momentum == 0.1
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())


def test_a_failed_forward_leaves_the_layer_alone():
    module = layer()
    running = RunningStatistics(module.modules())
    mean_before = module.running_mean.clone()

    with pytest.raises(RuntimeError), running.recording():
        module(torch.randn(2, 4, 6, 7))

    assert torch.equal(module.running_mean, mean_before)
    assert module.momentum == 0.1


def test_recorded_statistics_are_mean_and_unbiased_variance():
    module = layer()
    images_nchw = microbatches()[0]

    running = RunningStatistics(module.modules())
    with running.recording():
        module(images_nchw)
    recorded = running.recorded()

    torch.testing.assert_close(recorded[:5], images_nchw.mean((0, 2, 3)))
    torch.testing.assert_close(recorded[5:], images_nchw.var((0, 2, 3), unbiased=True))


def test_old_statistics_that_overflowed_do_not_leak_in():
    module = layer()
    module.running_mean.fill_(float("inf"))

    running = RunningStatistics(module.modules())
    with running.recording():
        module(microbatches()[0] * float("inf"))
        running.start()
        module(microbatches()[0])

    assert running.recorded().isfinite().all()


def test_frozen_and_untracked_layers_are_left_out():
    frozen = nn.BatchNorm2d(5).eval()
    untracked = nn.BatchNorm2d(5, track_running_stats=False)
    tracked = nn.BatchNorm2d(5)

    assert len(RunningStatistics([frozen, untracked, nn.GroupNorm(1, 5), tracked])) == 10


def test_the_layers_look_into_the_row():
    """Loading a state or replaying a step changes the layers and the row at once."""
    module = layer()
    running = RunningStatistics(module.modules())
    module.load_state_dict({**module.state_dict(), "running_mean": torch.arange(5.0)})

    assert running.row[:5].tolist() == [0, 1, 2, 3, 4]


def test_statistics_of_several_types_are_refused():
    with pytest.raises(ValueError, match="keep statistics of several types or devices"):
        RunningStatistics(nn.Sequential(nn.BatchNorm2d(2), nn.BatchNorm2d(2).double()).modules())
