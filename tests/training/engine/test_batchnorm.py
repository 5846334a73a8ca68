import pytest
import torch
from torch import nn

from training.engine.batchnorm import record_statistics, replay_statistics, statistics_like, tracking_layers

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


def recorded_out_of_order(module, images):
    recorded = {}
    for k in [*range(len(images) // 2, len(images)), *range(len(images) // 2)]:
        with record_statistics(tracking_layers(module)) as recorded[k]:
            module(images[k])
    return recorded


@pytest.mark.parametrize("momentum", [0.1, 0.3, None])
def test_replay_equals_sequential_batchnorm(momentum):
    sequential, replayed = layer(momentum), layer(momentum)
    for images_nchw in microbatches():
        sequential(images_nchw)

    replay_statistics([replayed], recorded_out_of_order(replayed, microbatches()))

    torch.testing.assert_close(replayed.running_mean, sequential.running_mean, **CLOSE)
    torch.testing.assert_close(replayed.running_var, sequential.running_var, **CLOSE)
    assert replayed.num_batches_tracked == 6


def test_the_order_of_replay_matters():
    """Otherwise the test above could not tell a replay in the order of recording."""
    forwards, backwards = layer(), layer()
    recorded = recorded_out_of_order(forwards, microbatches())
    replay_statistics([forwards], recorded)
    replay_statistics([backwards], {-k: statistics for k, statistics in recorded.items()})

    assert not torch.allclose(forwards.running_mean, backwards.running_mean, **CLOSE)


def test_recording_leaves_layer_and_output_alone():
    module, plain = layer(), layer()
    images_nchw = microbatches()[0]
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}

    with record_statistics([module]):
        output_nchw = module(images_nchw)

    assert torch.equal(output_nchw, plain(images_nchw))
    assert module.momentum == 0.1
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())


def test_a_failed_forward_leaves_the_layer_alone():
    module = layer()
    mean_before = module.running_mean.clone()

    with pytest.raises(RuntimeError), record_statistics([module]):
        module(torch.randn(2, 4, 6, 7))

    assert torch.equal(module.running_mean, mean_before)
    assert module.momentum == 0.1


def test_recorded_statistics_are_mean_and_unbiased_variance():
    module = layer()
    images_nchw = microbatches()[0]

    with record_statistics([module]) as recorded:
        module(images_nchw)

    torch.testing.assert_close(recorded[0], images_nchw.mean((0, 2, 3)))
    torch.testing.assert_close(recorded[1], images_nchw.var((0, 2, 3), unbiased=True))
    assert [tensor.shape for tensor in recorded] == [tensor.shape for tensor in statistics_like([module])]


def test_old_statistics_that_overflowed_do_not_leak_in():
    module = layer()
    module.running_mean.fill_(float("inf"))

    with record_statistics([module]) as recorded:
        module(microbatches()[0])

    assert recorded[0].isfinite().all()


def test_frozen_and_untracked_layers_are_left_out():
    frozen = nn.BatchNorm2d(5).eval()
    untracked = nn.BatchNorm2d(5, track_running_stats=False)
    tracked = nn.BatchNorm2d(5)

    assert tracking_layers(nn.Sequential(frozen, untracked, nn.GroupNorm(1, 5), tracked)) == [tracked]
