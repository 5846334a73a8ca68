"""Trial run of a network from elsewhere: does it take tiles, and return one number for each class?"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from training.foundation.errors import ImplausibleOutputError, UnreadableError
from training.foundation.words.counts import counted
from training.models.build import Outputs

_SUM_TOLERANCE = 1e-3


def probe(network: nn.Module, where: str, *, tile_px: int, num_classes: int, outputs: Outputs) -> None:
    """Run a network on three different images, together and one of them alone.

    Raises:
        UnreadableError: it does not take them, returns another shape, or no probabilities although declared.
        ImplausibleOutputError: numbers that are not finite, or that differ when the image is not alone.
    """
    images = probe_images(tile_px)
    together, alone = run(network, images, where), run(network, images[1:2], where)
    for given, count in ((together, len(images)), (alone, 1)):
        if tuple(given.shape) != (count, num_classes):
            raise UnreadableError(
                f"{where}: returns numbers of the shape {tuple(given.shape)} for {counted(count, 'tile')}; "
                f"{counted(num_classes, 'class needs', 'classes need')} ({count}, {num_classes}). Correct num_classes "
                "and class_names, or export the network again."
            )
    if not torch.isfinite(together).all():
        raise ImplausibleOutputError(f"{where}: returns non-finite numbers for ordinary images. It is damaged.")
    if not torch.allclose(together[1:2], alone, rtol=1e-3, atol=1e-3):
        raise ImplausibleOutputError(
            f"{where}: returns different numbers for a tile among others than for it alone (by up to "
            f"{float((together[1:2] - alone).abs().max()):.3g}). It was exported in training mode: export it again."
        )
    if outputs == "probabilities" and not are_probabilities(together):
        raise UnreadableError(
            f"{where}: its outputs are declared as probabilities, but rows do not sum to 1 (one sums to "
            f'{float(together[0].sum()):.3g}). Declare them as "logits".'
        )


def probe_images(tile_px: int) -> Tensor:
    """Three normalised images that differ: grey, a ramp, noise; float32 (3, 3, tile_px, tile_px)."""
    grey = torch.zeros(3, tile_px, tile_px)
    ramp = torch.linspace(-2, 2, tile_px).expand(3, tile_px, tile_px)
    noise = torch.randn(3, tile_px, tile_px, generator=torch.Generator().manual_seed(0))
    return torch.stack([grey, ramp, noise])


def run(network: nn.Module, images_nchw: Tensor, where: str) -> Tensor:
    """The network's numbers, float32 (N, …).

    Raises:
        UnreadableError: it does not take such images, needs too much memory, or returns no tensor.
    """
    try:
        with torch.inference_mode():
            given = network.eval()(images_nchw)
    except MemoryError as error:
        raise UnreadableError(
            f"{where}: needs more memory than is available for {counted(len(images_nchw), 'image')} of "
            f"{images_nchw.shape[2]} px ({error!s:.300}). Export the network again."
        ) from error
    except (RuntimeError, ValueError, TypeError, NotImplementedError) as error:  # torch's own, and TorchScript's
        last = (str(error).strip().splitlines() or [""])[-1]
        raise UnreadableError(
            f"{where}: cannot be run on {counted(len(images_nchw), 'image')} of {images_nchw.shape[2]} px "
            f"({last:.200}). Check that patch_size_pixels is the size it was made for."
        ) from error
    if not isinstance(given, Tensor):
        raise UnreadableError(f"{where}: returns a {type(given).__name__}, not one tensor of numbers for each class.")
    return given.float()


def are_probabilities(outputs_nk: Tensor) -> bool:
    """Whether rows are non-negative and sum to 1."""
    in_bounds = bool(((outputs_nk >= 0) & (outputs_nk <= 1 + _SUM_TOLERANCE)).all())
    return in_bounds and bool(((outputs_nk.sum(dim=1) - 1).abs() <= _SUM_TOLERANCE).all())
