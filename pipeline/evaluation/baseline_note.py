"""Note on the meaning of a good result from a baseline that learnt nothing."""

from __future__ import annotations

from collections.abc import Mapping

from pipeline.evaluation.statistics.bootstrap import FEW_PATIENTS, Estimate
from pipeline.evaluation.statistics.one_class import AUROC
from training.foundation.words.counts import counted

REMARKABLE = 0.9


def baseline_note(methods: Mapping[str, Mapping[str, Estimate]], baselines: Mapping[str, str], patients: int) -> str:
    """A paragraph if a baseline reaches `REMARKABLE` or is not below the model's lower limit; else empty.

    Args:
        methods: overall measures, the model's first.
        baselines: names of methods that learnt nothing about tissue, and what each relies on instead.
    """
    model = next(iter(methods.values()))[AUROC]
    findings = []
    for name, follows in baselines.items():
        auc = methods[name][AUROC].value if name in methods else None
        if auc is None or model.value is None:
            continue
        limit = model.value if model.low is None else model.low
        reasons = [f"is {REMARKABLE} or more"] * (auc >= REMARKABLE)
        reasons += ["is not below the model's lower limit" if model.low is not None else "is not below the model's"] * (
            auc >= limit
        )
        if reasons:
            findings.append(f"The AUROC of the {name}, {auc:.3f}, {' and '.join(reasons)}. {follows}")
    if not findings:
        return ""
    meaning = (
        "So these labels can be told apart by colour alone, and a high AUROC of the model is no evidence that it has "
        "learnt tissue morphology. A lead over such a baseline, with an interval that excludes zero, would be."
    )
    few = (
        f" With {counted(patients, 'patient')}, an AUROC near 1 says little in any case: "
        "staining and scanner vary with the patients, too."
        if patients < FEW_PATIENTS
        else ""
    )
    return f"{' '.join(findings)} {meaning}{few}"
