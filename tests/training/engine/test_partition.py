from itertools import combinations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tests.training.engine.small_networks import HW, make_batch, make_blocks, plan_of
from training.engine.partition import block_costs, partition, stage_ranges
from training.engine.predict import predict_memory
from training.models.resnet_v2 import resnet_v2_blocks


def largest_stage(costs, cuts):
    return max(sum(costs[i] for i in blocks) for blocks in stage_ranges(cuts, len(costs)))


@given(st.lists(st.integers(0, 20), min_size=1, max_size=8), st.data())
def test_no_other_cuts_make_the_largest_stage_smaller(costs, data):
    num_stages = data.draw(st.integers(1, len(costs)))
    best = min(largest_stage(costs, cuts) for cuts in combinations(range(1, len(costs)), num_stages - 1))

    assert largest_stage(costs, partition(costs, num_stages)) == best


def test_equal_costs_give_equal_stages():
    assert partition([1.0] * 6, 3) == (2, 4)


def test_more_stages_than_blocks_say_so():
    with pytest.raises(ValueError, match=r"cannot cut 2 blocks into 3 stages .* from 1 to 2"):
        partition([1.0, 1.0], 3)


def test_cuts_outside_the_network_say_so():
    with pytest.raises(ValueError, match=r"between 0 and 4, the number of blocks; got \(2, 2\)"):
        stage_ranges((2, 2), 4)


def test_costs_of_a_convolution_are_those_of_paper_and_pencil():
    blocks = [nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.Sequential(nn.ReLU(), nn.Conv2d(8, 4, 1))]

    first, second = block_costs(blocks, (2, 3, 10, 20))

    assert first.flops == 2 * (2 * 8 * 10 * 20) * (3 * 9)
    assert first.saved_bytes == first.input_bytes == 4 * 2 * 3 * 10 * 20
    # ReLU saves its output, and the convolution saves the same tensor as its input: counted once.
    assert second.saved_bytes == second.input_bytes == 4 * 2 * 8 * 10 * 20
    # No gradient goes back to the image; the one between the blocks is as large as what it belongs to.
    assert [first.gradient_bytes, second.gradient_bytes] == [0, second.input_bytes]
    assert [first.weight_bytes, second.weight_bytes] == [4 * 8 * 27, 4 * (8 * 4 + 4)]


def test_weights_that_blocks_share_or_do_not_train_count_once_or_not_at_all():
    first, second = nn.Conv2d(3, 3, 1, bias=False), nn.Conv2d(3, 3, 1, bias=False)
    frozen = nn.Conv2d(3, 3, 1, bias=False).requires_grad_(False)
    second.weight = first.weight

    costs = block_costs([frozen, first, second], (1, 3, 8, 9))

    assert [cost.weight_bytes for cost in costs] == [0, 36, 0]
    assert [cost.gradient_bytes for cost in costs] == [0, 0, 4 * 3 * 8 * 9]


def test_bf16_keeps_half_of_what_is_computed_in_it():
    blocks = [nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 4, 1)]

    full, half = (block_costs(blocks, (2, 3, 10, 20), precision=precision) for precision in ("fp32", "bf16"))

    assert [cost.flops for cost in half] == [cost.flops for cost in full]
    # The first convolution saves its cast image. Each also saves its cast weight, a tensor that is no weight.
    assert [cost.saved_bytes for cost in half] == [
        cost.saved_bytes // 2 + 2 * block.weight.numel() for cost, block in zip(full, blocks, strict=True)
    ]
    assert half[1].input_bytes == full[1].input_bytes // 2


@pytest.mark.parametrize("network", ["relu-chain", "resnet", "unet", "shared"])
def test_the_bytes_of_any_stages_add_up_to_those_of_the_network(network):
    """Counted per stage, starting from the previous boundary as a leaf."""
    blocks = make_blocks(network)
    costs = block_costs(blocks, (2, 3, *HW))
    excluded = {t.untyped_storage().data_ptr() for b in blocks for t in (*b.parameters(), *b.buffers())}

    for cut in range(1, len(blocks)):
        kept = {}
        stages = (blocks[:cut], blocks[cut:])

        def keep(tensor, kept=kept):
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in excluded:
                kept[storage.data_ptr()] = storage
            return tensor

        outputs = [torch.randn(2, 3, *HW)]
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            for stage in stages:
                value = outputs[-1]
                leaves = [t.detach().requires_grad_(t.requires_grad) for t in _as_tuple(value)]
                outputs.append(nn.Sequential(*stage)(tuple(leaves) if isinstance(value, tuple) else leaves[0]))
        assert sum(storage.nbytes() for storage in kept.values()) == sum(cost.saved_bytes for cost in costs)


def _as_tuple(value):
    return value if isinstance(value, tuple) else (value,)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_they_are_what_a_stage_is_predicted_to_hold(precision):
    """Without BatchNorm, whose recorded statistics the executor adds, and with a loss that saves nothing itself."""
    blocks = make_blocks("relu-chain")
    costs = block_costs(blocks, (2, 3, *HW), precision=precision)
    plan = plan_of(blocks, precision=precision)

    (rank,) = predict_memory(blocks, lambda logits_nk, _: logits_nk.sum(), make_batch(1), plan)

    assert rank.after_bytes[0] == sum(cost.saved_bytes for cost in costs)


def test_saved_bytes_are_those_that_autograd_really_keeps():
    torch.manual_seed(0)
    blocks = resnet_v2_blocks(depth=20, num_classes=2)
    weights = {weight.data_ptr() for block in blocks for weight in (*block.parameters(), *block.buffers())}
    kept = {}

    def keep(tensor):
        if tensor.data_ptr() not in weights:
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()
        return tensor

    costs = block_costs(blocks, (2, 3, 16, 24))
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        output = nn.Sequential(*blocks)(torch.randn(2, 3, 16, 24))

    assert output.requires_grad
    assert sum(cost.saved_bytes for cost in costs) == sum(storage.nbytes() for storage in kept.values())


def shared_conv():
    conv = nn.Conv2d(3, 3, 3, padding=1)
    return [nn.Sequential(conv, nn.ReLU()), nn.Sequential(conv)]


def tied_weights():
    first, second = nn.Conv2d(3, 3, 3, padding=1), nn.Conv2d(3, 3, 3, padding=1)
    second.weight = first.weight
    return [first, second]


def tied_inside():
    block = nn.Sequential(*tied_weights())
    return [block, nn.ReLU()]


def one_block_twice():
    block = nn.Sequential(nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3))
    return [block, nn.ReLU(), block]


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("make", [shared_conv, tied_weights, tied_inside, one_block_twice])
def test_weights_that_are_shared_count_as_autograd_keeps_them(make, precision):
    """In bf16 the cast weight is saved once, however many layers use it."""
    blocks = make()
    weights = {t.untyped_storage()._cdata for b in blocks for t in (*b.parameters(), *b.buffers())}
    kept = {}

    def keep(tensor):
        if tensor.untyped_storage()._cdata not in weights:
            kept[tensor.untyped_storage()._cdata] = tensor.untyped_storage()
        return tensor

    costs = block_costs(blocks, (2, 3, 16, 20), precision=precision)
    autocast = torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16")
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor), autocast:
        nn.Sequential(*blocks)(torch.randn(2, 3, 16, 20))

    assert sum(cost.saved_bytes for cost in costs) == sum(storage.nbytes() for storage in kept.values())


def test_weights_that_are_shared_are_predicted_once():
    blocks = [*tied_weights(), nn.Flatten(), nn.Linear(3 * HW[0] * HW[1], 2)]
    own = {id(tensor): 4 * tensor.numel() for block in blocks for tensor in block.parameters()}

    (rank,) = predict_memory(blocks, lambda logits_nk, _: logits_nk.sum(), make_batch(1), plan_of(blocks))

    assert rank.weight_bytes == sum(own.values())


def test_the_blocks_are_left_as_they_were():
    blocks = resnet_v2_blocks(depth=11, num_classes=2)
    before = {name: tensor.clone() for name, tensor in nn.Sequential(*blocks).state_dict().items()}

    block_costs(blocks, (1, 3, 64, 64))

    after = nn.Sequential(*blocks).state_dict()
    assert all(torch.equal(after[name], before[name]) for name in before)


def test_a_tile_of_1024_px_needs_19_gb_of_activations():
    costs = block_costs(resnet_v2_blocks(depth=110, num_classes=2), (1, 3, 1024, 1024))

    assert sum(cost.flops for cost in costs) / 1e9 == pytest.approx(785, abs=0.5)
    assert sum(cost.saved_bytes for cost in costs) / 1e9 == pytest.approx(19.5, abs=0.1)
