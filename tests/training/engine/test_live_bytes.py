"""The counter tracks the bytes kept from forward to backward exactly."""

import pytest
import torch
from torch import nn

from tests.training.engine.small_networks import NETWORKS, loss, make_batch, make_blocks, plan_of
from training.engine.engine import Engine
from training.engine.memory import LiveBytes
from training.engine.partition import fake_tensors, without_memory
from training.engine.recompute import Recompute
from training.engine.saved import Saver

pytestmark = pytest.mark.usefixtures("one_thread")

IMAGE_BYTES = 3 * 10 * 20 * 4


def counting(*modules):
    counter = LiveBytes(enabled=True)
    counter.exclude(tensor for module in modules for tensor in (*module.parameters(), *module.buffers()))
    return counter


def image():
    return torch.randn(1, 3, 10, 20)


def test_a_chain_keeps_what_backward_needs():
    """Square saves its input, exp its output, a sum only shapes."""
    counter = counting()
    x_nchw = image().requires_grad_()

    with Saver("keep", counter).watch():
        result = x_nchw.square().exp().sum()

    assert counter.now == counter.peak == 2 * IMAGE_BYTES
    result.backward()
    assert (counter.now, counter.peak) == (0, 2 * IMAGE_BYTES)


def test_views_of_one_storage_count_once():
    counter = counting()
    x_nchw = image()

    counter.hold([x_nchw, x_nchw.view(-1), x_nchw[:, 1:], x_nchw.transpose(2, 3), x_nchw.detach()])

    assert counter.now == IMAGE_BYTES


def test_a_part_counts_as_the_whole_storage_that_it_keeps_alive():
    counter = counting()

    counter.hold([image()[:, :1, :2, :2]])

    assert counter.now == IMAGE_BYTES


def test_an_expanded_tensor_counts_as_what_it_takes():
    counter = counting()

    counter.hold([torch.ones(3, 1).expand(3, 1000)])

    assert counter.now == 12


def test_an_in_place_relu_and_its_input_count_once():
    convolution = nn.Conv2d(3, 5, 1)
    counter = counting(convolution)

    with Saver("keep", counter).watch():
        output_nchw = convolution(image()).relu_()
        output_nchw = output_nchw.square()

    # The convolution saves the image; ReLU saves its result, which is the input of square.
    assert counter.now == IMAGE_BYTES + IMAGE_BYTES // 3 * 5
    output_nchw.sum().backward()
    assert counter.now == 0


def test_weights_and_buffers_are_left_out():
    model = nn.Sequential(nn.Conv2d(3, 64, 3), nn.BatchNorm2d(64)).eval()
    counter = counting(model)

    with Saver("keep", counter).watch():
        output_nchw = model(torch.randn(1, 3, 3, 3))

    kept = [counter.now]
    output_nchw.sum().backward()
    assert kept[0] == 4 * (27 + 64)  # the image and the convolution's output, but not 7 kB of weights
    assert counter.now == 0


def test_what_is_held_twice_is_released_with_the_last_holder():
    counter = counting()
    x_nchw = image()

    counter.hold([x_nchw, x_nchw.view(-1)])
    counter.release([x_nchw])
    assert counter.now == IMAGE_BYTES
    counter.release([x_nchw])
    assert counter.now == 0


def test_autograd_and_the_executor_count_a_shared_tensor_once():
    counter = counting()
    x_nchw = image().requires_grad_()
    counter.hold([x_nchw])

    with Saver("keep", counter).watch():
        result = x_nchw.square().sum()
    assert counter.now == IMAGE_BYTES

    result.backward()
    assert counter.now == IMAGE_BYTES
    counter.release([x_nchw])
    assert counter.now == 0


def test_a_new_step_starts_a_new_peak():
    counter = counting()
    small, large = torch.ones(1), torch.ones(100)
    counter.hold([small, large])
    counter.release([large])

    counter.start()

    assert (counter.now, counter.peak) == (4, 4)


def test_switched_off_it_counts_nothing():
    counter = LiveBytes()
    x_nchw = image().requires_grad_()
    counter.hold([x_nchw])
    with Saver("keep", counter).watch():
        kept = x_nchw.exp()

    assert (counter.now, counter.peak, kept.grad_fn._saved_result.shape) == (0, 0, x_nchw.shape)


def kept_bytes(blocks, images_nchw):
    counter = counting(blocks)
    with Saver("keep", counter).watch():
        output = blocks(images_nchw)
    kept = counter.now
    output.sum().backward()
    assert counter.now == 0
    return kept


@pytest.mark.parametrize("network", NETWORKS)
def test_fake_tensors_count_like_real_ones(network):
    blocks = make_blocks(network)
    shells = nn.Sequential(*without_memory(blocks))
    kept = kept_bytes(nn.Sequential(*blocks), torch.randn(2, 3, 12, 20))
    with fake_tensors():
        predicted = kept_bytes(shells.to_empty(device="cpu"), torch.empty(2, 3, 12, 20))

    assert predicted == kept > 0


@pytest.mark.parametrize("recompute", [Recompute(), Recompute(1), Recompute(2, prefix=(2,))], ids=str)
@pytest.mark.parametrize("network", NETWORKS)
def test_nothing_is_alive_after_a_step(network, recompute):
    blocks = make_blocks(network)
    one = Engine(blocks, plan_of(blocks, recompute=recompute), count_bytes=True)

    for num_microbatches in (1, 3):
        one.train_step(make_batch(num_microbatches), loss)
        assert one.live_bytes.now == 0
        assert one.live_bytes.peak > 0
    one.forward_only(make_batch(2))
    assert one.live_bytes.now == 0


def test_switched_off_the_engine_counts_nothing():
    blocks = make_blocks("resnet")
    one = Engine(blocks, plan_of(blocks))

    one.train_step(make_batch(1), loss)

    assert (one.live_bytes.peak, one.peak_bytes()) == (0, {"live": [0]})
