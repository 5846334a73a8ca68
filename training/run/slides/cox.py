"""Cox's loss in a step whose bags go through the network one by one.

The partial likelihood compares the patients of a batch, but a micro-batch is one patient. So a step first asks for the
risks of the whole batch, forward only. The likelihood's derivative by each risk is then known in closed form, and the
loss of a bag in the step itself is its risk times that number: the gradients are those of the likelihood.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.models.heads.cox import cox_efron
from training.models.heads.targets import Target


@dataclass(frozen=True)
class CoxTerm:
    """A target with Cox's loss: where its columns are."""

    target: Target
    output: int
    """Its column of the network's outputs."""
    column: int
    """The first of its two columns of targets: time; then event."""

    def loss(self, risks_n: NDArray[np.float64], values_nc: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        """The loss over the units that have the target, and its derivative by each unit's risk; 0 for the others.

        A batch without an event has no loss.
        """
        gradient_n = np.zeros(len(values_nc))
        times, events = values_nc[:, self.column], values_nc[:, self.column + 1]
        known = np.isfinite(times) & np.isfinite(events)
        if not (events[known] == 1).any():
            return 0.0, gradient_n
        row = (torch.from_numpy(column[known]) for column in (risks_n, times, events))
        loss, gradient = cox_efron(*row)
        gradient_n[known] = gradient.numpy()
        return loss, gradient_n


def cox_terms(targets: Sequence[Target]) -> list[CoxTerm]:
    """The targets with Cox's loss."""
    terms, output, column = [], 0, 0
    for target in targets:
        if target.kind == "cox":
            terms.append(CoxTerm(target, output, column))
        output += target.num_outputs
        column += target.num_columns
    return terms


def with_gradients(
    terms: Sequence[CoxTerm], outputs: Sequence[Tensor], values_nc: NDArray[np.float64]
) -> tuple[NDArray[np.float32], float]:
    """Targets of a step in which (gradient, 0) stands for the time and event of each term.

    Args:
        outputs: of the network for each unit, (1, columns).

    Returns:
        float32 (units, columns); and what must be added to the step's loss, a mean over units, for the likelihood to
        stand in the place of the sums of gradient times risk.
    """
    given_nc, difference, units = values_nc.astype(np.float32), 0.0, len(values_nc)
    for term in terms:
        risks_n = np.array([float(output[0, term.output]) for output in outputs])
        loss, gradient_n = term.loss(risks_n, values_nc)
        # The engine divides the sum over bags by their number, but the likelihood is a mean over events already.
        scaled_n = (units * gradient_n).astype(np.float32)
        given_nc[:, term.column], given_nc[:, term.column + 1] = scaled_n, 0.0
        difference += term.target.weight * (loss - float(scaled_n.astype(np.float64) @ risks_n) / units)
    return given_nc, difference
