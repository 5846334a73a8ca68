"""Single layers of tensors in rows: windows of every kind, what they move, and what is refused."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.training.parallel.whole_networks import distance
from training.parallel.halo import Transfer, Window
from training.parallel.link import VirtualLink, rows_of
from training.parallel.parted import NotSplittableError
from training.parallel.wrap import Form, Parts, aliases

HEIGHTS = (7, 12, 13)


class Compared(nn.Module):
    """Operators of Python between images, and with numbers."""

    def forward(self, x_nchw: Tensor) -> Tensor:
        return torch.where((x_nchw == x_nchw.relu()) & (x_nchw != 0.5), x_nchw, 3 * x_nchw) - 1


LAYERS = {
    "3 by 3": lambda: nn.Conv2d(4, 6, 3, padding=1),
    "5 by 1, stride 3": lambda: nn.Conv2d(4, 6, (5, 1), stride=(3, 1), padding=(2, 0)),
    "1 by 1, stride 2": lambda: nn.Conv2d(4, 6, 1, stride=2, bias=False),
    "more padding than the window needs": lambda: nn.Conv2d(4, 4, 3, padding=3, dilation=2, groups=2),
    "maximum, partial windows": lambda: nn.MaxPool2d(3, 2, 1, ceil_mode=True),
    "maximum, dilated": lambda: nn.MaxPool2d(2, 1, 0, dilation=3),
    "average with its padding": lambda: nn.AvgPool2d(3, 2, 1),
    "average without its padding": lambda: nn.AvgPool2d((3, 2), 2, (1, 0), ceil_mode=True, count_include_pad=False),
    "average by another divisor": lambda: nn.AvgPool2d(2, divisor_override=3),
    "twice as large": lambda: nn.Upsample(scale_factor=2, mode="bilinear"),
    "by corners": lambda: nn.Upsample(size=(19, 5), mode="bilinear", align_corners=True),
    "smaller, nearest": lambda: nn.Upsample(scale_factor=0.6, mode="nearest"),
    "smaller, exactly nearest": lambda: nn.Upsample(size=(4, 9), mode="nearest-exact"),
    "to six rows": lambda: nn.AdaptiveAvgPool2d((6, 2)),
    "to two rows": lambda: nn.AdaptiveMaxPool2d((2, 2)),
    "compared": Compared,
    "to one value": lambda: nn.AdaptiveAvgPool2d(1),
}


def in_rows(layer: nn.Module, x_nchw: Tensor, num_parts: int) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Output, and gradients of the input and of the weights."""
    copies = aliases(layer, num_parts)
    parts = Parts(VirtualLink(num_parts), "rows", copies)
    rows = [
        x_nchw[:, :, own.start : own.stop].clone().requires_grad_()
        for own in (rows_of(x_nchw.shape[2], part, num_parts) for part in range(num_parts))
    ]
    outputs, form = parts.call(layer, rows, Form((x_nchw.shape[2],), False))
    output = parts.whole_tensors(outputs, form)[0]
    (output * weights_like(output)).sum().backward()
    of_weights = {
        name: torch.stack([copy.grad for copy in copies[id(weight)] if copy.grad is not None]).sum(0)
        for name, weight in layer.named_parameters()
    }
    return output.detach(), torch.cat([row.grad for row in rows if row.grad is not None], 2), of_weights


def weights_like(output: Tensor) -> Tensor:
    """So that every number of the output has another gradient."""
    return torch.linspace(0.5, 2, output.numel(), dtype=output.dtype).view(output.shape)


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("num_parts", [2, 3])
def test_a_layer_of_rows_is_that_of_the_whole(name, num_parts):
    torch.manual_seed(3)
    layer = LAYERS[name]().double()
    for height in HEIGHTS:
        x_nchw = torch.randn(2, 4, height, 9, dtype=torch.float64)
        output, gradient, of_weights = in_rows(layer, x_nchw, num_parts)
        layer.zero_grad()
        expected_input = x_nchw.clone().requires_grad_()
        expected = layer(expected_input)
        (expected * weights_like(expected)).sum().backward()
        assert output.shape == expected.shape
        assert distance(output, expected) < 1e-12
        assert distance(gradient, expected_input.grad) < 1e-12
        assert of_weights.keys() == {name for name, _ in layer.named_parameters()}
        for name, weight in layer.named_parameters():
            assert distance(of_weights[name], weight.grad) < 1e-12, (name, height)


@pytest.mark.parametrize(
    ("what", "block"),
    [
        ("linear", lambda x: functional.linear(x, torch.ones(2, 9))),
        ("roll", lambda x: torch.roll(x, 1, 2)),
        ("getitem", lambda x: x[..., ::2, :]),
        ("interpolate with mode 'bicubic'", lambda x: functional.interpolate(x, scale_factor=2, mode="bicubic")),
        ("softmax along axis 2", lambda x: functional.softmax(x, dim=2)),
        ("fft_fft2", lambda x: torch.fft.fft2(x)),
        ("all, of which gemslide does not know", lambda x: x if (x > 0).all() else -x),
        ("an image in rows and a tensor (7, 9)", lambda x: x + torch.ones(7, 9)),
    ],
)
def test_what_cannot_be_split_is_refused_by_its_name(what, block):
    parts = Parts(VirtualLink(2), "rows", {})
    rows = [torch.randn(1, 2, count, 9) for count in (3, 4)]
    with pytest.raises(NotSplittableError) as caught:
        parts.call(block, rows, Form((7,), False))
    assert what in str(caught.value)


def test_a_weight_that_a_block_computes_is_refused_in_virtual_parts():
    """Its gradient would be summed in another order than on several ranks."""
    weight = nn.Parameter(torch.randn(2, 2, 1, 1))
    parts = Parts(VirtualLink(2), "rows", {id(weight): [weight, weight]})
    rows = [torch.randn(1, 2, 3, 9) for _ in range(2)]
    with pytest.raises(NotSplittableError, match="computes from its weights"):
        parts.call(lambda x: functional.conv2d(x, weight * 2), rows, Form((6,), False))


@pytest.mark.parametrize(
    ("size", "stride", "padding", "rows_down", "rows_up"), [(3, 1, 1, 1, 1), (5, 1, 2, 2, 2), (3, 2, 1, 0, 1)]
)
def test_only_the_rows_that_are_needed_are_moved(size, stride, padding, rows_down, rows_up):
    window = Window(size, stride, padding)
    transfer = Transfer(VirtualLink(2), 16, window.wanted(window.outputs(16), 2))
    assert (len(transfer.rows(1, 0)), len(transfer.rows(0, 1))) == (rows_down, rows_up)


def test_running_statistics_are_counted_by_rows_and_updated_once():
    torch.manual_seed(0)
    norm, expected = (nn.BatchNorm2d(3).double() for _ in range(2))
    x_nchw = torch.randn(2, 3, 7, 5, dtype=torch.float64) * torch.arange(1.0, 8.0).view(1, 1, 7, 1)
    in_rows(norm, x_nchw, 3)
    expected(x_nchw)
    for name, buffer in norm.named_buffers():
        assert distance(buffer, expected.get_buffer(name)) < 1e-12, name
