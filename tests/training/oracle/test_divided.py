"""Blocks in parts cost what a part computes at its own shapes, and send no more than they must."""

from __future__ import annotations

import torch
from torch import nn

from tests.training.engine.small_networks import unet
from training.engine.partition import block_costs, fake_tensors, on_device, without_memory
from training.models.resnet_v2 import resnet_v2_blocks
from training.oracle.simulation.divided import count_swaps, divided_costs
from training.parallel.division import NO_SWAPS, WHOLE, Division, Swaps

SIDE_PX = 1024
ROWS, FILTER = Division(2, "rows"), Division(2, "filter")


def total(swaps):
    return sum(swaps, NO_SWAPS)


def least_bytes(blocks, shape):
    """(halos, sums of normalisations and of the mean) that one part must give another in forward.

    A window of k rows with stride 1 needs (k - 1) / 2 rows of the neighbour: W x C numbers of 4 bytes each. Of each
    channel, a normalisation needs two sums, and the mean over the image one, of 8 and 4 bytes.
    """
    halos, sums = [], []
    shells = without_memory(blocks)
    with fake_tensors():
        fakes = on_device(shells, torch.device("cpu")).train()
        for module in fakes.modules():
            if isinstance(module, nn.Conv2d):
                assert module.kernel_size == (1, 1) or module.stride == (1, 1)
                rows = (module.kernel_size[0] - 1) // 2
                module.register_forward_hook(
                    lambda module, given, _, rows=rows: halos.append(4 * rows * given[0].shape[1] * given[0].shape[3])
                )
            if isinstance(module, nn.BatchNorm2d):
                sums.append(2 * 8 * module.num_features)
        nn.Sequential(*fakes)(torch.empty(shape))
    return sum(halos), sum(sums) + 4 * 256


def test_halos_of_resnet_110_are_the_least_there_can_be():
    blocks, shape = resnet_v2_blocks(depth=110, num_classes=2), (1, 3, SIDE_PX, SIDE_PX)
    halo_bytes, sum_bytes = least_bytes(blocks, shape)
    swaps = count_swaps(blocks, shape, ROWS)

    forward = total(swap for swap, _ in swaps)
    assert forward.num_bytes == {(0, 1): halo_bytes + sum_bytes, (1, 0): halo_bytes + sum_bytes}
    assert round(halo_bytes / 1e6, 2) == 3.94


def test_a_part_by_rows_computes_and_keeps_its_share():
    blocks, shape = resnet_v2_blocks(depth=20, num_classes=2), (1, 3, 128, 64)
    costs = divided_costs(blocks, shape, [WHOLE, ROWS])
    whole, part = (costs[division] for division in (WHOLE, ROWS))

    assert whole == block_costs(blocks, shape)
    assert 0.5 <= sum(cost.flops for cost in part) / sum(cost.flops for cost in whole) < 0.51
    assert 0.5 <= sum(cost.saved_bytes for cost in part) / sum(cost.saved_bytes for cost in whole) < 0.53
    assert [cost.weight_bytes for cost in part] == [cost.weight_bytes for cost in whole]
    assert all(cost.forward_swaps.count == cost.backward_swaps.count == 0 for cost in whole)
    assert all(cost.forward_swaps.count for cost in part[:-1])


def test_filters_send_every_part_what_the_others_have_made():
    """Of 8 channels each part makes 4; it is given its summands of their gradient, which the other part has."""
    blocks, shape = [nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 1)], (1, 3, 12, 10)
    four_channels = Swaps(1, {(0, 1): 4 * 4 * 120, (1, 0): 4 * 4 * 120})

    assert count_swaps(blocks, shape, FILTER) == [(four_channels, four_channels)] * 2


def test_networks_that_pass_on_tuples_are_counted():
    swaps = count_swaps(unet(), (2, 3, 12, 20), Division(3, "rows"))

    assert len(swaps) == 5
    assert {pair for forward, _ in swaps for pair in forward.num_bytes} >= {(0, 1), (1, 0), (1, 2), (2, 1)}
