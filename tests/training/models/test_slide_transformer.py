"""The transformer over a slide: rotary positions, and attention without an (n, n) matrix."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tests.training.models.small_bags import make_bag, make_blocks, run
from training import engine
from training.engine.predict import predict_memory
from training.models.slide_models import slide_model_blocks
from training.models.slide_transformer import LONGEST_UM, SHORTEST_UM, RotaryPositions, rotate

pytestmark = pytest.mark.usefixtures("one_thread")


def test_shifting_a_slide_changes_nothing_and_scaling_it_does():
    blocks, bag = make_blocks("transformer", layers=4), make_bag(50)
    shifted, scaled = bag.clone(), bag.clone()
    shifted[:, -2:] += torch.tensor([20_000.0, -7_000.0])
    scaled[:, -2:] *= 2

    torch.testing.assert_close(run(blocks, shifted), run(blocks, bag), rtol=0, atol=1e-4)
    assert (run(blocks, scaled) - run(blocks, bag)).abs().max() > 1e-3


def test_exchanging_x_and_y_changes_the_result():
    blocks, bag = make_blocks("transformer"), make_bag(50)
    turned = bag.clone()
    turned[:, -2:] = bag[:, [-1, -2]]

    assert (run(blocks, turned) - run(blocks, bag)).abs().max() > 1e-4


def test_wavelengths_rise_geometrically_from_two_tiles_to_a_slide():
    wavelengths_um = 2 * math.pi / RotaryPositions(32).wavenumbers_p

    assert len(wavelengths_um) == 8
    assert wavelengths_um[0].item() == pytest.approx(SHORTEST_UM)
    assert wavelengths_um[-1].item() == pytest.approx(LONGEST_UM)
    torch.testing.assert_close(wavelengths_um[1:] / wavelengths_um[:-1], torch.full((7,), 200 ** (1 / 7)))


def test_half_of_the_channels_turn_with_x_and_half_with_y():
    rotary = RotaryPositions(8)
    x_ned = torch.randn(3, 2, 8, generator=torch.Generator().manual_seed(0))
    positions_um = torch.tensor([[130.0, 0.0], [0.0, 90.0], [0.0, 0.0]])

    turned_ned = rotate(x_ned, rotary(positions_um))

    is_turned_nd = ((turned_ned - x_ned).abs() > 1e-6).any(dim=1)
    assert is_turned_nd.tolist() == [[True] * 4 + [False] * 4, [False] * 4 + [True] * 4, [False] * 8]


@given(st.lists(st.floats(-50_000, 50_000, width=32), min_size=4, max_size=4), st.integers(0, 100))
def test_scores_depend_on_the_difference_of_positions_only(corners_um, seed):
    """The turned query times the turned key, computed apart in float64 from their distance."""
    generator = torch.Generator().manual_seed(seed)
    query_ned, key_ned = torch.randn(2, 1, 1, 16, generator=generator, dtype=torch.float64)
    rotary = RotaryPositions(16).double()
    (ax_um, ay_um, bx_um, by_um) = corners_um
    at = torch.tensor([[ax_um, ay_um]], dtype=torch.float64), torch.tensor([[bx_um, by_um]], dtype=torch.float64)

    apart = (rotate(query_ned, rotary(at[0])) * rotate(key_ned, rotary(at[1]))).sum()

    together = (rotate(query_ned, rotary(at[0] - at[1])) * key_ned).sum()
    torch.testing.assert_close(apart, together, rtol=0, atol=1e-9)
    torch.testing.assert_close(rotate(query_ned, rotary(at[0])).norm(), query_ned.norm())


def test_rotation_constants_are_no_weights():
    names = nn.Sequential(*make_blocks("transformer")).state_dict().keys()

    assert not [name for name in names if "wavenumbers" in name]


class _OneHugeBag:
    """A slide of 100,000 tiles whose features are never read."""

    def __init__(self, dims: int):
        self.shapes = [(1, 100_000, dims + 2)]

    def inputs(self, microbatch: int) -> torch.Tensor:
        raise AssertionError("the prediction needs no features")

    def targets(self, microbatch: int) -> None:
        return None


@pytest.mark.parametrize("dims", [1024, 1536, 2560])
def test_a_slide_of_100_000_tiles_trains_in_4_gib_if_every_block_is_recomputed(dims):
    with torch.device("meta"):
        blocks = slide_model_blocks("transformer", dims=dims, num_outputs=2)
    plan = engine.make_plan("single", costs=[1.0] * len(blocks), recompute=engine.Recompute(1))

    (rank,) = predict_memory(blocks, lambda output, _: output.sum(), _OneHugeBag(dims), plan)

    assert 1 < rank.peak_bytes / 2**30 <= 4
