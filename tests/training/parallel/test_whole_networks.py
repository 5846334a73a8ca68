"""Networks in parts give the outputs, gradients and buffers of one process."""

from __future__ import annotations

import pytest
import torch

from tests.training.parallel.whole_networks import NETWORKS, distance, images, in_parts, network, whole, worst

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("num_parts", [2, 3, 4])
@pytest.mark.parametrize("split", ["rows", "filter", "channel"])
@pytest.mark.parametrize("name", NETWORKS)
def test_every_gradient_and_buffer_is_that_of_one_process_in_double_precision(name, split, num_parts):
    for height, channels_last in ((37, False), (64, True)):
        made = network(name, channels_last=channels_last)
        x_nchw = images(height, channels_last=channels_last)
        assert worst(in_parts(made, x_nchw, num_parts, split), whole(made, x_nchw)) < 1e-12, (height, channels_last)


@pytest.mark.parametrize("height", [3, 5, 8, 11])
def test_images_with_hardly_more_rows_than_parts_are_no_exception(height):
    made, x_nchw = network("ResNet-v2", channels_last=False), images(height, channels_last=False)
    assert worst(in_parts(made, x_nchw, 4, "rows"), whole(made, x_nchw)) < 1e-12


@pytest.mark.parametrize("name", ["ResNet-v2", "U-Net-like"])
def test_in_single_precision_parts_are_about_as_near_to_the_exact_gradient_as_one_process(name):
    exact = whole(network(name, channels_last=True), images(64, channels_last=True))
    made = network(name, channels_last=True, dtype=torch.float32)
    x_nchw = images(64, channels_last=True, dtype=torch.float32)
    one, two = whole(made, x_nchw), in_parts(made, x_nchw, 2, "rows")

    def of_all(result):
        return torch.cat([gradient.double().flatten() for gradient in result.of_weights])

    own, apart = distance(of_all(one), of_all(exact)), distance(of_all(two), of_all(exact))
    assert apart <= 2 * own, (apart, own)


def test_under_autocast_parts_compute_in_the_type_of_one_process():
    made = network("ResNet-v2", channels_last=True, dtype=torch.float32)
    x_nchw = images(64, channels_last=True, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        one, two = whole(made, x_nchw), in_parts(made, x_nchw, 2, "rows")
    assert two.output.dtype == one.output.dtype
    assert distance(two.output, one.output) < 0.05
    for mine, theirs in zip(two.of_weights, one.of_weights, strict=True):
        assert mine.dtype == theirs.dtype
