"""One row of numbers per tile from a network's outputs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from training.encoders.row import Pool
from training.foundation.errors import UnreadableError


@dataclass(frozen=True)
class Pooling:
    """Function from outputs to features, float32 (N, dims).

    Raises:
        UnreadableError: outputs of a shape that this pooling is not for, or other dims.
    """

    pool: Pool
    prefix_tokens: int
    """Tokens before those of patches: the class token, then registers."""
    dims: int
    where: str
    """Name of the encoder in messages."""

    def __call__(self, outputs: Tensor) -> Tensor:
        features_nd = self._pooled(outputs).float()
        if features_nd.shape[1] != self.dims:
            raise UnreadableError(
                f"{self.where}: gives {features_nd.shape[1]} numbers per tile, but the row says dims = {self.dims}. "
                "Correct `dims` or `pool`."
            )
        return features_nd

    def _pooled(self, outputs: Tensor) -> Tensor:
        if not isinstance(outputs, Tensor):
            raise UnreadableError(f"{self.where}: returns a {type(outputs).__name__}, not one tensor.")
        if self.pool == "none" and outputs.ndim == 2:
            return outputs
        # In float32: a mean of hundreds of tokens would lose digits that bf16 has.
        if self.pool == "mean" and outputs.ndim == 4:
            return outputs.float().mean((2, 3))
        if outputs.ndim == 3 and outputs.shape[1] > self.prefix_tokens:
            if self.pool == "mean":
                return self._mean_of_patches(outputs)
            if self.pool != "none" and self.prefix_tokens:
                token = outputs[:, 0].float()
                return token if self.pool == "cls" else torch.cat([token, self._mean_of_patches(outputs)], dim=1)
        shape = f"({', '.join(map(str, outputs.shape))})"
        raise UnreadableError(
            f"{self.where}: returns numbers of the shape {shape}, with {self.prefix_tokens} tokens before those of "
            f'patches; pool = "{self.pool}" {_NEEDS[self.pool]}. Correct `pool` in the row.'
        )

    def _mean_of_patches(self, tokens_ntc: Tensor) -> Tensor:
        return tokens_ntc[:, self.prefix_tokens :].float().mean(1)


_NEEDS: dict[Pool, str] = {
    "none": "needs one row per tile",
    "mean": "needs tokens or a feature map",
    "cls": "needs tokens, the first of which is a class token",
    "cls+mean": "needs tokens, the first of which is a class token",
}
