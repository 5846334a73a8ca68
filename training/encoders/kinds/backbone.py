"""A network that is not pooled yet, and loading of weights into one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor, nn

from training.foundation.errors import UnreadableError


@dataclass(frozen=True)
class Backbone:
    """A network from normalised float32 images (N, 3, side, side) to tokens, a feature map, or one row per image."""

    network: nn.Module
    prefix_tokens: int = 0
    """Tokens before those of patches: the class token, then registers. 0: none, or no tokens at all."""
    is_ours: bool = True
    """Whether its modules can be inspected, cast and folded; an ONNX file runs as it is."""


def put_state(network: nn.Module, state: Mapping[str, Tensor], where: str, *, assign: bool = False) -> None:
    """Load weights into a network, all of them.

    Args:
        assign: make the tensors themselves its parameters, for a network without memory (torch's device "meta").

    Raises:
        UnreadableError: they are those of another network.
    """
    try:
        network.load_state_dict(dict(state), assign=assign)
    except (RuntimeError, ValueError, KeyError) as error:
        reason = " ".join(str(error).split())
        raise UnreadableError(
            f"{where}: {reason:.400}. They are not this network's weights: compare `source` and `weights` in the row."
        ) from error
