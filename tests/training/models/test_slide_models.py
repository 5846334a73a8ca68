"""Networks for bags of tiles: any size, any order, and which tiles their results rest on."""

import pytest
import torch
from torch import nn

from tests.training.models.small_bags import DIMS, NUM_CLASSES, attention_n, make_bag, make_blocks, run
from training.models.heads.losses import loss_of_targets
from training.models.heads.targets import Target
from training.models.mil.bag import BagInput, position_order
from training.models.mil.clam import num_judged
from training.models.mil.nystrom import NystromAttention, pseudo_inverse, segment_means
from training.models.slide_models import SLIDE_MODELS, slide_model_blocks
from training.models.slide_transformer import AttentionBlock

pytestmark = pytest.mark.usefixtures("one_thread")

every_model = pytest.mark.parametrize("name", SLIDE_MODELS)


@every_model
@pytest.mark.parametrize("num_tiles", [1, 2, 3, 7, 50, 1000])
def test_a_bag_of_any_size_gives_one_row_and_trains_every_weight(name, num_tiles):
    blocks = make_blocks(name)

    output_1o = run(blocks, make_bag(num_tiles))

    extras = NUM_CLASSES * 2 * num_judged(num_tiles) if name == "clam" else 0
    assert output_1o.dtype == torch.float32
    assert output_1o.shape == (1, 4 + extras)
    assert output_1o.isfinite().all()
    weights = [weight for block in blocks for weight in block.parameters()]
    for gradient in torch.autograd.grad(output_1o.square().sum(), weights):
        assert gradient.isfinite().all()


@every_model
def test_the_order_of_tiles_changes_nothing(name):
    blocks, bag = make_blocks(name), make_bag(53)
    bag[10, -2:] = bag[31, -2:] = bag[4, -2:]  # as on two slides of a patient
    order_n = torch.randperm(53, generator=torch.Generator().manual_seed(1))

    torch.testing.assert_close(run(blocks, bag[order_n]), run(blocks, bag), rtol=0, atol=1e-5)
    assert torch.equal(attention_n(blocks, bag[order_n]), attention_n(blocks, bag)[order_n])


def test_tiles_are_ordered_row_by_row_and_by_their_features_at_one_place():
    bag = torch.tensor([[5.0, 1.0, 30.0, 20.0], [0.0, 2.0, 30.0, 20.0], [7.0, 7.0, 10.0, 20.0], [9.0, 9.0, 90.0, 10.0]])

    assert position_order(bag).tolist() == [3, 2, 1, 0]


@every_model
def test_a_bag_of_one_sample_is_the_same_bag(name):
    blocks, bag = make_blocks(name), make_bag(9)

    assert torch.equal(run(blocks, bag[None]), run(blocks, bag))


@every_model
def test_a_tile_more_changes_the_result(name):
    blocks, bag = make_blocks(name), make_bag(40)

    assert (run(blocks, bag)[:, :4] - run(blocks, bag[:-1])[:, :4]).abs().max() > 1e-5


@every_model
def test_bf16_gives_nearly_the_same_in_float32(name):
    blocks, bag = make_blocks(name), make_bag(50)

    exact_1o = run(blocks, bag)[:, :4]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output_1o = run(blocks, bag)[:, :4]
        weights = [weight for block in blocks for weight in block.parameters()]
        gradients = torch.autograd.grad(output_1o.square().sum(), weights, allow_unused=True)

    assert output_1o.dtype == torch.float32
    torch.testing.assert_close(output_1o, exact_1o, rtol=0, atol=0.05)
    assert all(gradient.isfinite().all() for gradient in gradients if gradient is not None)


def test_positions_keep_their_bits_under_bf16():
    bag = make_bag(50)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        tokens_nh, positions_um = BagInput(DIMS, 16, has_relu=True)(bag)

    assert (tokens_nh.dtype, positions_um.dtype) == (torch.float32, torch.float32)
    assert torch.equal(positions_um, bag[:, -2:])


# --- attention -------------------------------------------------------------------------------------


@every_model
@pytest.mark.parametrize("num_tiles", [1, 3, 7, 50, 1000])
def test_attention_is_a_share_of_every_tile(name, num_tiles):
    shares_n = attention_n(make_blocks(name), make_bag(num_tiles))

    assert shares_n.dtype == torch.float32
    assert shares_n.shape == (num_tiles,)
    assert (shares_n >= 0).all()
    assert float(shares_n.sum()) == pytest.approx(1, abs=1e-5)
    assert not shares_n.requires_grad


def test_the_mean_attends_alike_and_the_maximum_to_the_tiles_that_are_it():
    bag = make_bag(5)
    mean, largest = make_blocks("mean"), make_blocks("max")
    nn.init.constant_(largest[0].linear.bias, 5.0)  # no ties at 0
    torch.testing.assert_close(attention_n(mean, bag), torch.full((5,), 0.2))

    tokens_nh, _ = largest[0](bag)
    only_n = torch.bincount(tokens_nh.argmax(0), minlength=5).float()
    torch.testing.assert_close(attention_n(largest, bag), only_n / only_n.sum())

    twins = torch.cat([bag, bag])
    torch.testing.assert_close(attention_n(largest, twins), torch.cat([only_n, only_n]) / (2 * only_n.sum()))


PLANTED = 11


def planted_bag(seed, *, is_positive):
    """Bag of noise; a positive one has a tile that stands out in one feature."""
    bag = make_bag(23, seed=seed)
    bag[PLANTED, 3] = 10.0 if is_positive else bag[PLANTED, 3]
    return bag


@pytest.mark.parametrize("name", ["max", "abmil", "clam", "transmil", "transformer"])
def test_after_training_attention_finds_the_planted_tile(name):
    blocks = make_blocks(name, num_outputs=2, layers=1)
    for block in blocks:
        if isinstance(block, AttentionBlock):
            # Otherwise this layer carries the evidence to other tiles, and the pooling may attend to those.
            block.requires_grad_(False)
            for head in block.heads.values():
                nn.init.zeros_(head.out.weight)
            nn.init.zeros_(block.bias)
    loss = loss_of_targets([Target("tumour", "class", 2)])
    optimizer = torch.optim.Adam([weight for block in blocks for weight in block.parameters()], lr=3e-3)
    for step in range(90):
        optimizer.zero_grad()
        for label in (0, 1):
            output_1o = run(blocks, planted_bag(2 * step + label, is_positive=bool(label)))[:, :2]
            loss(output_1o, torch.tensor([[float(label)]])).backward()
        optimizer.step()

    for seed in range(1000, 1005):
        shares_n = attention_n(blocks, planted_bag(seed, is_positive=True))
        assert int(shares_n.argmax()) == PLANTED
        assert shares_n[PLANTED] > 2 / 23


# --- CLAM ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("num_tiles", "k"), [(1, 0), (2, 1), (3, 1), (7, 3), (16, 8), (1000, 8)])
def test_clam_judges_its_most_and_least_attended_tiles(num_tiles, k):
    blocks, bag = make_blocks("clam"), make_bag(num_tiles)
    output_1o = run(blocks, bag)

    tokens_nh, _ = blocks[0](bag)
    by_share = attention_n(blocks, bag).argsort(descending=True)
    logits_nc = blocks[1].instances(tokens_nh)
    extras_c2k = output_1o[0, 4:].view(NUM_CLASSES, 2, k)
    torch.testing.assert_close(extras_c2k[:, 0], logits_nc[by_share[:k]].T)
    torch.testing.assert_close(extras_c2k[:, 1], logits_nc[by_share[num_tiles - k :]].T)


# --- TransMIL --------------------------------------------------------------------------------------


def test_landmarks_are_means_of_equal_segments_and_a_shorter_last_one():
    x_eld = torch.arange(7.0).view(1, 7, 1).expand(2, 7, 3)

    assert segment_means(x_eld, 7)[0, :, 0].tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert segment_means(x_eld, 100)[0, :, 0].tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert segment_means(x_eld, 3)[1, :, 2].tolist() == [1, 4, 6]
    assert segment_means(x_eld, 1)[1, :, 2].tolist() == [3]


def test_the_iterations_invert_a_matrix_of_attention():
    torch.manual_seed(0)
    matrix_emm = torch.softmax(torch.randn(2, 5, 5) + 4 * torch.eye(5), dim=2)
    inverse_emm = pseudo_inverse(matrix_emm)

    identity_emm = torch.eye(5).expand(2, 5, 5)
    torch.testing.assert_close(matrix_emm @ inverse_emm, identity_emm, rtol=0, atol=1e-3)


def test_with_a_landmark_for_each_token_and_an_exact_inverse_nystrom_attention_is_attention(monkeypatch):
    monkeypatch.setattr("training.models.mil.nystrom._INVERSE_STEPS", 20)
    attention = NystromAttention(64, heads=4)
    x_lh = 3 * torch.randn(20, 64, generator=torch.Generator().manual_seed(3))
    query_eld, key_eld, value_eld = attention._heads(x_lh)

    exact_eld = torch.softmax(query_eld @ key_eld.mT, dim=2) @ value_eld + attention.skip(value_eld[None])[0]
    exact_lh = attention.out(exact_eld.transpose(0, 1).flatten(1))

    assert attention.num_landmarks > 20
    torch.testing.assert_close(attention(x_lh), exact_lh, rtol=0, atol=1e-3)


def test_transmil_sees_the_neighbours_of_a_tile():
    """The square is filled in the order of positions: exchanging two tiles' places changes the result."""
    blocks, bag = make_blocks("transmil"), make_bag(30)
    exchanged = bag.clone()
    exchanged[[2, 17], -2:] = bag[[17, 2], -2:]

    assert (run(blocks, exchanged) - run(blocks, bag)).abs().max() > 1e-5


# --- refusals --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"name": "attention"}, "one of mean, max, abmil, clam, transmil, transformer, got 'attention'"),
        ({"dims": 0}, "dims of a slide model must be 1 or more, got 0"),
        ({"num_outputs": 0}, "num_outputs .* got 0"),
        ({"layers": -1}, "layers .* got -1"),
        ({"name": "transformer", "hidden": 40}, r"multiple of 4 \* heads = 32, got 40; use 32 or 64"),
        ({"name": "transformer", "hidden": 8}, "got 8; use 32"),
        ({"name": "transmil", "hidden": 20}, "multiple of heads, got 20 and 8"),
        ({"name": "clam"}, "num_classes of 2 or more, got None"),
        ({"name": "clam", "num_classes": 1}, "num_classes of 2 or more, got 1"),
    ],
)
def test_a_network_that_does_not_exist_is_refused_with_what_does(wrong, message):
    sizes = {"name": "abmil", "dims": 6, "num_outputs": 2}

    with pytest.raises(ValueError, match=message):
        slide_model_blocks(**(sizes | wrong))


@pytest.mark.parametrize(
    "bag",
    [
        torch.zeros(5, DIMS),
        torch.zeros(0, DIMS + 2),
        torch.zeros(2, 5, DIMS + 2),
        torch.zeros(DIMS + 2),
        torch.zeros(5, DIMS + 2, dtype=torch.float16),
    ],
)
def test_what_is_no_bag_is_refused(bag):
    with pytest.raises(ValueError, match=r"a bag must be float32 \(n, 22\)"):
        run(make_blocks("mean"), bag)


def test_attention_needs_a_slide_model():
    with pytest.raises(ValueError, match="blocks of a slide model, in order, got Linear"):
        attention_n([nn.Linear(3, 4)], make_bag(3))
