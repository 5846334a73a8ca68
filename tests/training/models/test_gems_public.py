import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.flop_counter import FlopCounterMode

from training.models.build import build_blocks
from training.models.gems_public import gems_public_blocks
from training.models.resnet_v2 import resnet_v2_blocks


def num_weights(blocks: list[nn.Module]) -> int:
    return sum(weight.numel() for block in blocks for weight in block.parameters())


def run(blocks: list[nn.Module], x_nchw: Tensor) -> Tensor:
    for block in blocks:
        x_nchw = block(x_nchw)
    return x_nchw


@pytest.mark.parametrize(("depth", "num_blocks", "weights"), [(110, 38, 9_803_888), (1001, 335, 70_271_504)])
def test_the_counts_are_those_of_the_published_code(depth, num_blocks, weights):
    with torch.device("meta"):
        blocks = gems_public_blocks(depth=depth, num_classes=10, side_px=1024)

    assert len(blocks) == num_blocks
    assert num_weights(blocks) == weights


def test_a_tile_of_1024_px_takes_what_the_published_code_takes():
    outputs_bytes = []
    boundaries_bytes = []
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        blocks = gems_public_blocks(depth=110, num_classes=10, side_px=1024)
        for layer in nn.ModuleList(blocks).modules():
            if isinstance(layer, nn.Conv2d | nn.BatchNorm2d):
                layer.register_forward_hook(lambda _layer, _inputs, output: outputs_bytes.append(output.nbytes))
        x_nchw = torch.empty(1, 3, 1024, 1024)
        for block in blocks:
            x_nchw = block(x_nchw)
            boundaries_bytes.append(x_nchw.nbytes)

    assert counter.get_total_flops() / 1e9 == pytest.approx(1769, abs=0.5)
    assert sum(outputs_bytes) / 1e9 == pytest.approx(19.9, abs=0.05)
    assert max(boundaries_bytes) == 256 * 2**20


@pytest.mark.parametrize(("side_px", "features"), [(32, 256), (96, 2_304), (1024, 262_144)])
def test_the_linear_layer_reads_256_features_for_each_32_px_square(side_px, features):
    with torch.device("meta"):
        linears = [
            layer
            for layer in gems_public_blocks(depth=11, num_classes=7, side_px=side_px)[-1].modules()
            if isinstance(layer, nn.Linear)
        ]

    assert [linear.in_features for linear in linears] == [features]


def test_each_stage_after_the_first_halves_the_sides():
    torch.manual_seed(0)
    x_nchw = torch.randn(2, 3, 64, 64)
    shapes = []
    for block in gems_public_blocks(depth=20, num_classes=5, side_px=64):
        x_nchw = block(x_nchw)
        shapes.append(tuple(x_nchw.shape))

    assert shapes == [
        (2, 16, 64, 64),
        *[(2, 64, 64, 64)] * 2,
        *[(2, 128, 32, 32)] * 2,
        *[(2, 256, 16, 16)] * 2,
        (2, 5),
    ]


def test_the_output_is_probabilities():
    torch.manual_seed(0)

    found_nk = run(gems_public_blocks(depth=11, num_classes=5, side_px=64), torch.randn(3, 3, 64, 64))

    assert (found_nk > 0).all()
    torch.testing.assert_close(found_nk.sum(dim=1), torch.ones(3))


def test_the_double_softmax_keeps_the_loss_of_a_perfect_answer_high():
    certain_nk = torch.eye(10)

    loss = cross_entropy(certain_nk, torch.arange(10))

    assert float(loss) == pytest.approx(math.log(1 + 9 / math.e))
    assert float(loss) > 1.46


def test_a_step_trains_every_live_weight_and_leaves_the_unused_ones():
    torch.manual_seed(0)
    model = nn.Sequential(*gems_public_blocks(depth=20, num_classes=3, side_px=32))
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}

    cross_entropy(model(torch.randn(4, 3, 32, 32)), torch.tensor([0, 2, 1, 2])).backward()
    torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.01).step()

    for name, weight in model.named_parameters():
        if "unused" in name:
            assert weight.grad is None
            assert torch.equal(weight, before[name])
        else:
            assert weight.grad is not None
            assert torch.isfinite(weight.grad).all()
            assert weight.grad.any(), name


def test_unused_layers_hold_weights_only_for_the_count():
    with torch.device("meta"):
        blocks = gems_public_blocks(depth=110, num_classes=10, side_px=1024)
    names = [name for name, _ in nn.ModuleList(blocks).named_parameters() if "unused" in name]
    live = sum(weight.numel() for block in blocks for weight in block.parameters() if weight.requires_grad)

    assert live == 9_781_802
    assert names
    assert not [name for name, _ in nn.ModuleList(blocks).named_buffers() if "unused" in name]


def test_overwriting_activations_in_place_changes_no_gradient():
    torch.manual_seed(0)
    model = nn.Sequential(*gems_public_blocks(depth=20, num_classes=3, side_px=32)).double()
    live = [weight for weight in model.parameters() if weight.requires_grad]
    x_nchw = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    model(x_nchw).square().sum().backward()
    gradients = [weight.grad.clone() for weight in live]

    model.zero_grad()
    for module in model.modules():
        if isinstance(module, nn.ReLU):
            module.inplace = False
    model(x_nchw).square().sum().backward()

    for weight, gradient in zip(live, gradients, strict=True):
        assert torch.equal(weight.grad, gradient)


def test_other_image_channels():
    blocks = gems_public_blocks(depth=11, num_classes=2, side_px=32, in_channels=1)

    assert run(blocks, torch.randn(2, 1, 32, 32)).shape == (2, 2)


@pytest.mark.parametrize(
    ("depth", "nearest"), [(50, "47 or 56"), (112, "110 or 119"), (2, "11 or 20"), (-5, "11 or 20")]
)
def test_a_wrong_depth_names_the_nearest_right_ones(depth, nearest):
    with pytest.raises(ValueError, match=f"got {depth}; use {nearest}"):
        gems_public_blocks(depth=depth, num_classes=2, side_px=64)


@pytest.mark.parametrize(
    ("side_px", "nearest"), [(1000, "992 or 1024"), (16, "32 or 64"), (0, "32 or 64"), (-32, "32 or 64")]
)
def test_a_wrong_side_names_the_nearest_right_ones(side_px, nearest):
    with pytest.raises(ValueError, match=f"got {side_px}; use {nearest}"):
        gems_public_blocks(depth=11, num_classes=2, side_px=side_px)


@pytest.mark.parametrize(("height_px", "width_px"), [(32, 128), (96, 96), (68, 64)])
def test_a_tile_of_another_shape_is_refused_even_with_as_many_features(height_px, width_px):
    blocks = gems_public_blocks(depth=11, num_classes=2, side_px=64)

    with pytest.raises(ValueError, match=f"built for tiles of 64x64 px, got {width_px}x{height_px}"):
        run(blocks, torch.randn(2, 3, height_px, width_px))


def test_a_recipe_names_the_variant_it_wants():
    words = {"name": "resnet_v2", "depth": 20, "num_classes": 3, "side_px": 64}
    with torch.device("meta"):
        standard = build_blocks(**words, variant="standard", norm="group")
        public = build_blocks(**words, variant="gems-public", norm="batch")

        assert num_weights(standard) == num_weights(resnet_v2_blocks(depth=20, num_classes=3, norm="group"))
        assert num_weights(public) == num_weights(gems_public_blocks(depth=20, num_classes=3, side_px=64))
    assert any(isinstance(layer, nn.GroupNorm) for layer in nn.ModuleList(standard).modules())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"name": "amoebanet"}, "model must be \"resnet_v2\", got 'amoebanet'"),
        ({"variant": "gems"}, 'variant must be "standard" or "gems-public", got \'gems\''),
        ({"variant": "gems-public", "norm": "group"}, "has norm \"batch\" only, got 'group'"),
        ({"norm": "layer"}, '"batch" or "group", got \'layer\''),
        ({"variant": "gems-public", "side_px": 1000}, "use 992 or 1024"),
    ],
)
def test_a_wrong_word_of_the_recipe_names_the_right_ones(wrong, message):
    right = {"name": "resnet_v2", "variant": "standard", "norm": "batch", "side_px": 64}

    with pytest.raises(ValueError, match=message):
        build_blocks(depth=11, num_classes=2, **(right | wrong))
