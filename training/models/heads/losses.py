"""Loss of several targets together, as the engine wants it: (output, targets) -> sum over the bags of a micro-batch.

    class      cross-entropy, weighted by class
    ordinal    sum of the binary cross-entropies of "the grade is above j", weighted by grade
    number     Huber loss of the standardised value
    cox        gradient · risk, with the gradient from `cox.cox_efron`
    discrete   negative log-likelihood of the hazards

A Cox loss couples all patients, but a micro-batch has one bag. So a step first computes all risks without a graph, then
the gradient of the loss by each risk in closed form; trained on gradient · risk, every weight gets exactly the gradient
of the coupled loss. The engine divides the sum by the samples of the step: multiply the gradients by as many.

A missing target contributes exactly 0, with gradients of 0. No branch depends on a value, so that `predict_memory` can
run the loss on tensors without memory.

Sources: Frank and Hall, "A Simple Approach to Ordinal Classification" (ECML 2001); Huber (1964); Gensheimer and
Narasimhan, "A scalable discrete-time survival model for neural networks" (PeerJ 7, 2019); Lu et al. (2021; mil/clam.py)
for the instance loss.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from training.models.heads.targets import Target, column_slices, output_slices, total_columns, total_outputs

INSTANCE_WEIGHT = 0.3
"""Factor of CLAM's instance loss beside the loss of the slide."""


def loss_of_targets(
    targets: Sequence[Target], *, num_instance_classes: int | None = None
) -> Callable[[Tensor, Tensor], Tensor]:
    """Make the loss of all targets: each times its weight, summed over targets and bags.

    Args:
        num_instance_classes: for CLAM, whose output has instance logits after the targets' columns; the first target of
            kind "class" tells the true class, and its weight is that of the instance loss too.

    Returns:
        (output (n, outputs), targets (n, columns)) -> scalar; n is 1 in a micro-batch of one bag. Targets may lie on
        the CPU.

    Raises:
        ValueError: there are no targets, two have the same name, or the instance classes are not those of the first
            class target. The loss raises it too, for an output or targets with other columns.
    """
    if not targets:
        raise ValueError("a network needs one target or more")
    own = list(zip(targets, output_slices(targets), column_slices(targets), strict=True))
    classes = next((row for row in own if row[0].kind == "class"), None)
    if num_instance_classes is not None and (classes is None or classes[0].num_classes != num_instance_classes):
        actual = f'target "{classes[0].name}" has {classes[0].num_classes}' if classes else "there is no class target"
        raise ValueError(f"CLAM has {num_instance_classes} instance classes, but {actual}; make them equal")

    def loss(output_no: Tensor, targets_nc: Tensor) -> Tensor:
        _check_shapes(targets, output_no, targets_nc, has_instances=num_instance_classes is not None)
        values_nc = targets_nc.to(output_no.device)
        terms = [
            target.weight * _TERMS[target.kind](output_no[:, outputs], values_nc[:, columns], target).sum()
            for target, outputs, columns in own
        ]
        if num_instance_classes is not None and classes is not None:
            target, _, columns = classes
            logits_nc2k = output_no[:, total_outputs(targets) :].reshape(len(output_no), num_instance_classes, 2, -1)
            instances = _instance_terms(logits_nc2k, values_nc[:, columns])
            terms.append(INSTANCE_WEIGHT * target.weight * instances.sum())
        return torch.stack(terms).sum()

    return loss


def _check_shapes(targets: Sequence[Target], output_no: Tensor, targets_nc: Tensor, *, has_instances: bool) -> None:
    wanted, columns = total_outputs(targets), total_columns(targets)
    fits = output_no.shape[1] >= wanted if has_instances else output_no.shape[1] == wanted
    if not fits or targets_nc.shape != (len(output_no), columns):
        raise ValueError(
            f"the loss needs outputs (n, {wanted}) and targets (n, {columns}), got {tuple(output_no.shape)} and "
            f"{tuple(targets_nc.shape)}; build the network and the batch for the same targets"
        )


def _present(loss_n: Tensor, is_missing_n: Tensor) -> Tensor:
    """The loss where it is known; elsewhere 0, and 0 is also its gradient."""
    return torch.where(is_missing_n, 0.0, loss_n)


def _class_terms(logits_nk: Tensor, values_n1: Tensor, target: Target) -> Tensor:
    is_missing_n = values_n1[:, 0].isnan()
    labels_n = torch.where(is_missing_n, 0.0, values_n1[:, 0]).long()
    weights_k = None if target.class_weights is None else logits_nk.new_tensor(target.class_weights)
    loss_n = functional.cross_entropy(logits_nk, labels_n, weights_k, reduction="none")
    return _present(loss_n, is_missing_n)


def _ordinal_terms(logits_nj: Tensor, values_n1: Tensor, target: Target) -> Tensor:
    is_missing_n = values_n1[:, 0].isnan()
    is_above_nj = values_n1 > torch.arange(target.num_outputs, device=values_n1.device)
    loss_nj = functional.binary_cross_entropy_with_logits(logits_nj, is_above_nj.to(logits_nj.dtype), reduction="none")
    loss_n = loss_nj.sum(dim=1)
    if target.class_weights is not None:
        grades_n = torch.where(is_missing_n, 0.0, values_n1[:, 0]).long()
        loss_n = loss_n * logits_nj.new_tensor(target.class_weights)[grades_n]
    return _present(loss_n, is_missing_n)


def _number_terms(outputs_n1: Tensor, values_n1: Tensor, target: Target) -> Tensor:
    is_missing_n = values_n1[:, 0].isnan()
    # Standardised in the type of the values, which may have more digits than the network.
    standardised_n1 = ((values_n1 - target.mean) / target.std).to(outputs_n1.dtype)
    filled_n1 = torch.where(is_missing_n[:, None], 0.0, standardised_n1)
    return _present(functional.huber_loss(outputs_n1, filled_n1, reduction="none")[:, 0], is_missing_n)


def _cox_terms(risks_n1: Tensor, values_n2: Tensor, target: Target) -> Tensor:
    gradients_n = values_n2[:, 0].to(risks_n1.dtype)
    is_missing_n = gradients_n.isnan()
    return torch.where(is_missing_n, 0.0, gradients_n) * risks_n1[:, 0]


def _discrete_terms(logits_nb: Tensor, values_n2: Tensor, target: Target) -> Tensor:
    """-log of: surviving all bins before that of the event, then not this one; or surviving until censored.

    Someone who is censored has survived the bins whose middle they reached, as in the paper. An event after the last
    bound is beyond all bins: they survived each of them.
    """
    is_missing_n = values_n2.isnan().any(dim=1)
    times_n1, has_event_n1 = values_n2[:, :1], values_n2[:, 1:] > 0.5
    upper_b = values_n2.new_tensor(target.bounds)
    lower_b = values_n2.new_tensor((0.0, *target.bounds[:-1]))
    has_survived_nb = torch.where(has_event_n1, times_n1 > upper_b, times_n1 >= (lower_b + upper_b) / 2)
    has_died_nb = has_event_n1 & (times_n1 > lower_b) & (times_n1 <= upper_b)
    loss_nb = has_survived_nb * functional.softplus(logits_nb) + has_died_nb * functional.softplus(-logits_nb)
    return _present(loss_nb.sum(dim=1), is_missing_n)


def _instance_terms(logits_nc2k: Tensor, classes_n1: Tensor) -> Tensor:
    """Mean over classes of the mean logistic loss of the tiles that they judge.

    The true class judges the most attended tiles as evidence and the least attended ones as none; every other class
    judges the most attended ones as none. Without tiles it is 0.
    """
    num_classes, k = logits_nc2k.shape[1], max(1, logits_nc2k.shape[3])
    most_nck, least_nck = logits_nc2k.unbind(2)
    none_nc = functional.softplus(most_nck).sum(dim=2) / k
    evidence_nc = (functional.softplus(-most_nck) + functional.softplus(least_nck)).sum(dim=2) / (2 * k)
    is_true_nc = classes_n1 == torch.arange(num_classes, device=classes_n1.device)
    return _present(torch.where(is_true_nc, evidence_nc, none_nc).mean(dim=1), classes_n1[:, 0].isnan())


_TERMS: dict[str, Callable[[Tensor, Tensor, Target], Tensor]] = {
    "class": _class_terms,
    "ordinal": _ordinal_terms,
    "number": _number_terms,
    "cox": _cox_terms,
    "discrete": _discrete_terms,
}
