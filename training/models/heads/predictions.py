"""Outputs of a slide-level network as values that people read."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from training.models.heads.targets import Target, output_slices, total_outputs


def predictions_of_targets(targets: Sequence[Target], outputs_no: Tensor) -> dict[str, Tensor]:
    """Predictions by target.

    Args:
        outputs_no: (n, outputs); columns after those of the targets (CLAM's) are ignored.

    Returns:
        float64, by the target's name:
        class and ordinal: probabilities (n, k), rows summing to 1;
        number: (n,), in its own unit;
        cox: log risks (n,), comparable among each other only;
        discrete: probabilities (n, B) of surviving to the end of each bin.

    Raises:
        ValueError: the output has too few columns, or two targets have the same name.
    """
    if outputs_no.ndim != 2 or outputs_no.shape[1] < total_outputs(targets):
        raise ValueError(
            f"the targets need outputs (n, {total_outputs(targets)}) or wider, got {tuple(outputs_no.shape)}"
        )
    return {
        target.name: _predict(target, outputs_no[:, columns].detach().double())
        for target, columns in zip(targets, output_slices(targets), strict=True)
    }


def _predict(target: Target, outputs_no: Tensor) -> Tensor:
    match target.kind:
        case "class":
            return torch.softmax(outputs_no, dim=1)
        case "ordinal":
            return grade_probabilities(outputs_no)
        case "number":
            return outputs_no[:, 0] * target.std + target.mean
        case "cox":
            return outputs_no[:, 0]
        case "discrete":
            # 1 - hazard, from the logit: no digits are lost where the hazard is near 1.
            return torch.sigmoid(-outputs_no).cumprod(dim=1)


def grade_probabilities(logits_nj: Tensor) -> Tensor:
    """Probabilities (n, k) of grades from k - 1 logits of "the grade is above j".

    Logits that were learned apart need not fall with j. The probability of being above j is taken as the least of those
    up to j, so that no grade has a negative one.
    """
    is_above_nj = torch.sigmoid(logits_nj).cummin(dim=1).values
    from_0_nj = torch.cat([torch.ones_like(is_above_nj[:, :1]), is_above_nj], dim=1)
    return from_0_nj - torch.cat([is_above_nj, torch.zeros_like(is_above_nj[:, :1])], dim=1)
