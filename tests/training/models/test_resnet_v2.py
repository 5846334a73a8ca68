import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from training.models.resnet_v2 import resnet_v2, resnet_v2_blocks


def num_weights(blocks: list[nn.Module]) -> int:
    return sum(weight.numel() for block in blocks for weight in block.parameters())


def test_depth_110_is_the_published_network():
    blocks = resnet_v2_blocks(depth=110, num_classes=2)

    assert len(blocks) == 38
    assert num_weights(blocks) == 3_289_554


def test_depth_1001_is_the_1000_class_network_of_the_large_runs():
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        model = resnet_v2(depth=1001, num_classes=1000)
        model(torch.empty(1, 3, 512, 512))

    assert len(model) == 335
    assert num_weights(list(model)) == 30_505_720
    assert counter.get_total_flops() / 1e12 == pytest.approx(1.80, abs=0.005)


def test_a_tile_of_1024_px_takes_785_gflop():
    model = resnet_v2(depth=110, num_classes=2).to("meta")

    with FlopCounterMode(display=False) as counter:
        logits_nk = model(torch.empty(1, 3, 1024, 1024, device="meta"))

    assert logits_nk.shape == (1, 2)
    assert counter.get_total_flops() / 1e9 == pytest.approx(785, abs=0.5)


@pytest.mark.parametrize("norm", ["batch", "group"])
def test_each_level_halves_the_sides_of_the_one_before(norm):
    torch.manual_seed(0)
    x_nchw = torch.randn(2, 3, 24, 32)
    shapes = []
    for block in resnet_v2_blocks(depth=20, num_classes=5, norm=norm):
        x_nchw = block(x_nchw)
        shapes.append(tuple(x_nchw.shape))

    assert shapes == [
        (2, 16, 24, 32),
        *[(2, 64, 24, 32)] * 2,
        *[(2, 128, 12, 16)] * 2,
        *[(2, 256, 6, 8)] * 2,
        (2, 5),
    ]


def test_overwriting_activations_in_place_changes_no_gradient():
    torch.manual_seed(0)
    model = resnet_v2(depth=11, num_classes=3).double()
    x_nchw = torch.randn(2, 3, 12, 16, dtype=torch.float64)
    model(x_nchw).square().sum().backward()
    gradients = [weight.grad.clone() for weight in model.parameters()]

    model.zero_grad()
    for module in model.modules():
        if isinstance(module, nn.ReLU):
            module.inplace = False
    model(x_nchw).square().sum().backward()

    for weight, gradient in zip(model.parameters(), gradients, strict=True):
        assert torch.equal(weight.grad, gradient)


def test_state_names_are_block_indices():
    names = resnet_v2(depth=11, num_classes=2).state_dict().keys()

    assert {name.split(".")[0] for name in names} == {"0", "1", "2", "3", "4"}


def test_other_image_channels():
    assert resnet_v2(depth=11, num_classes=2, in_channels=1)(torch.randn(2, 1, 8, 8)).shape == (2, 2)


@pytest.mark.parametrize(
    ("depth", "nearest"), [(50, "47 or 56"), (112, "110 or 119"), (2, "11 or 20"), (-5, "11 or 20")]
)
def test_a_wrong_depth_names_the_nearest_right_ones(depth, nearest):
    with pytest.raises(ValueError, match=f"got {depth}; use {nearest}"):
        resnet_v2_blocks(depth=depth, num_classes=2)


def test_a_wrong_norm_names_the_right_ones():
    with pytest.raises(ValueError, match='"batch" or "group", got \'layer\''):
        resnet_v2_blocks(depth=11, num_classes=2, norm="layer")


def test_a_network_without_memory_is_laid_out_without_torchs_compiler():
    """Importing the compiler takes over a second in every process that opens a model."""
    program = (
        "import sys, torch; from training.models.resnet_v2 import resnet_v2\n"
        "with torch.device('meta'): resnet_v2(depth=11, num_classes=2)\n"
        "sys.exit('torch._dynamo' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
