"""Reader studies in the report: agreement among readers and with themselves, and with the slides' labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pipeline.evaluation.statistics.agreement import MISSING, Agreement, concordance, fleiss_kappa, mean_kappa
from pipeline.evaluation.statistics.mrmc import ArmScores, MrmcEstimate, mrmc_auc, mrmc_difference
from pipeline.study.reading.questions import Question, ReadingConfig
from pipeline.study.report.facts import Facts, text_of
from pipeline.study.report.table import Row, Table, interval
from pipeline.study.report.validation import validation_table
from training.foundation.errors import EmptyTableError


def reader_tables(facts: Facts) -> list[Table]:
    """Tables about the readings; none if the protocol has no readers. The criteria of a validation are listed even
    without any reading."""
    config = facts.protocol.reading
    if config is None:
        return []
    if not len(facts.readings):
        return validation_table(facts)
    signed = facts.readings[facts.readings["state"] == "signed"]
    given = signed.merge(facts.answers, on=["reader", "session", "position"])
    given = given.assign(patient=given["slide_id"].map(facts.slides["patient"]))
    tables = [
        _progress(facts.readings, config),
        _agreement(config, given, facts),
        _with_themselves(config, given, facts),
    ]
    tables += [_against_labels(config, given, facts), _mrmc(config, given, facts), *validation_table(facts)]
    return [table for table in tables if table.rows]


def _progress(readings: pd.DataFrame, config: ReadingConfig) -> Table:
    rows: list[Row] = []
    for (reader, arm), own in readings.groupby(["reader", "arm"]):
        signed = own[own["state"] == "signed"]
        seconds = signed["seconds"].astype(float)
        median = float(seconds.median()) if len(signed) else None
        seen = signed["seen"].dropna().astype(float)
        median_seen = float(seen.median()) if len(seen) else None
        rows.append((str(reader), str(arm), len(own), len(signed), median, median_seen, len(seen)))
    columns = ("reader", "arm", "readings", "signed", "median seconds", "median tissue seen", "of readings")
    return Table("readings", "Readings", columns, rows, note=config.seen.text)


def _coded(question: Question, given: pd.DataFrame) -> NDArray[np.int64]:
    """Answers to a choice, or to a yes/no question, as numbers."""
    values: list[object] = list(question.choices) or [False, True]
    return np.array([values.index(value) for value in given["value"]], dtype=np.int64)


def _compared(config: ReadingConfig) -> list[Question]:
    """Questions whose answers can be the same; scores and free texts hardly are."""
    return [question for question in config.questions if question.kind in ("choice", "yes_no")]


@dataclass(frozen=True)
class _Compared:
    """Codes of answers to one question, side by side.

    Attributes:
        codes: (slides, readers or readings). patients: the patient of each slide.
    """

    question: Question
    codes: NDArray[np.int64]
    patients: NDArray[np.str_]
    resamples: int
    seed: int

    def measures(self) -> list[tuple[str, Agreement]]:
        """Kappa, weighted first if the choices are ordered, and for two columns their concordance."""
        drawn: Any = {"patients": self.patients, "resamples": self.resamples, "seed": self.seed}
        is_pair = self.codes.shape[1] == 2
        kappas: list[tuple[str, Callable[[], Agreement]]] = []
        if self.question.ordered:
            weights = self.question.weights
            name = f"{'Cohen’s kappa' if is_pair else 'Mean of Cohen’s kappas'}, {weights} weights"
            kappas.append((name, lambda: mean_kappa(self.codes, weights=weights, **drawn)))
        if is_pair:
            kappas.append(("Cohen’s kappa", lambda: mean_kappa(self.codes, **drawn)))
            kappas.append(("concordance", lambda: concordance(self.codes[:, 0], self.codes[:, 1], **drawn)))
        else:
            kappas.append(("Fleiss’ kappa", lambda: fleiss_kappa(self.codes, **drawn)))
        return [(name, _tried(measure)) for name, measure in kappas]


def _side_by_side(question: Question, own: pd.DataFrame, columns: str, facts: Facts) -> tuple[list[str], _Compared]:
    """Answers by slide and reader, or session, and the names of the columns.

    Args:
        own: one answer for each slide and column.
    """
    wide = own.assign(code=_coded(question, own)).pivot(index="slide_id", columns=columns, values="code")
    codes = wide.fillna(MISSING).to_numpy(np.int64)
    patients = facts.slides["patient"].reindex(wide.index).to_numpy(dtype=str)
    protocol = facts.protocol
    compared = _Compared(question, codes, patients, protocol.analysis.bootstrap, protocol.study.seed)
    return list(map(str, wide.columns)), compared


BY_PATIENT = "Intervals are by patient: exact for shares if each patient has one slide, otherwise by bootstrap."
AGREEMENT_COLUMNS = ("measure", "value", "95 % interval", "slides", "patients")


def _agreement(config: ReadingConfig, given: pd.DataFrame, facts: Facts) -> Table:
    rows: list[Row] = []
    for question in _compared(config):
        for arm in config.arms:
            own = given[(given["question"] == question.name) & (given["arm"] == arm)]
            first = own.sort_values("session").drop_duplicates(["reader", "slide_id"])
            if first["reader"].nunique() < 2:
                continue
            readers, compared = _side_by_side(question, first, "reader", facts)
            for pair in combinations(range(len(readers)), 2):
                of_pair = replace(compared, codes=compared.codes[:, pair])
                named = ", ".join(readers[at] for at in pair)
                rows += [(question.name, arm, named, *_cells(*measured)) for measured in of_pair.measures()]
            if len(readers) > 2:
                rows += [(question.name, arm, "all readers", *_cells(*measured)) for measured in compared.measures()]
    note = f"Each reader’s first reading of a slide. {BY_PATIENT} {_about_weights(config)}"
    columns = ("question", "arm", "readers", *AGREEMENT_COLUMNS)
    return Table("agreement", "Agreement between readers", columns, rows, note=note.strip())


def _about_weights(config: ReadingConfig) -> str:
    """Sentence on the questions whose kappa is weighted, and their weights; "" without any."""
    ordered = [f"{question.name} ({question.weights})" for question in _compared(config) if question.ordered]
    return f"Ordered grades, whose kappa has weights: {', '.join(ordered)}." if ordered else ""


def _tried(measure: Callable[[], Agreement]) -> Agreement:
    try:
        return measure()
    except EmptyTableError:  # no slide that both have read, or that has (or lacks) the class
        return Agreement(None, None, None, 0)


def _cells(measure: str, agreement: Agreement) -> Row:
    return (measure, agreement.value, interval(agreement.low, agreement.high), agreement.cases, agreement.patients)


def _with_themselves(config: ReadingConfig, given: pd.DataFrame, facts: Facts) -> Table:
    rows: list[Row] = []
    for question in _compared(config):
        own = given[given["question"] == question.name].sort_values("session")
        for (reader, arm), of_reader in own.groupby(["reader", "arm"]):
            first, last = (of_reader.drop_duplicates("slide_id", keep=which) for which in ("first", "last"))
            both = pd.concat([first.assign(which="first"), last.assign(which="last")])
            again = both[both.groupby("slide_id")["session"].transform("nunique") > 1]
            if len(again):
                _, compared = _side_by_side(question, again, "which", facts)
                rows += [(question.name, str(arm), str(reader), *_cells(*measured)) for measured in compared.measures()]
    columns = ("question", "arm", "reader", *AGREEMENT_COLUMNS)
    note = f"First and last reading of the same slide by the same reader, under the same condition. {BY_PATIENT}"
    return Table("intra_observer", "Agreement of readers with themselves", columns, rows, note=note)


def _against_labels(config: ReadingConfig, given: pd.DataFrame, facts: Facts) -> Table:
    """A reader's first reading of each slide, as elsewhere: a slide that was read again is not another case."""
    rows: list[Row] = []
    drawn: Any = {"resamples": facts.protocol.analysis.bootstrap, "seed": facts.protocol.study.seed}
    for question in config.questions:
        if question.kind != "yes_no" or question.class_name is None:
            continue
        own = _with_truth(given[given["question"] == question.name], question, facts)
        first = own.sort_values("session").drop_duplicates(["reader", "arm", "slide_id"])
        for (reader, arm), of_reader in first.groupby(["reader", "arm"]):
            called, truth = of_reader["value"].to_numpy(bool), of_reader["truth"].to_numpy(bool)
            patients = of_reader["patient"].to_numpy(dtype=str)
            for name, among, right in (("sensitivity", truth, called), ("specificity", ~truth, ~called)):
                hits = right[among].astype(np.int64)
                measure = partial(concordance, hits, np.ones_like(hits), patients=patients[among], **drawn)
                agreement = _tried(measure)
                rows.append((question.name, str(arm), str(reader), *_cells(name, agreement)))
    columns = ("question", "arm", "reader", *AGREEMENT_COLUMNS)
    note = f"Each reader’s first reading of a slide. {BY_PATIENT} {_about_classes(config, facts)}".strip()
    return Table("readers_and_labels", "Readers and the slides’ labels", columns, rows, note=note)


def _with_truth(own: pd.DataFrame, question: Question, facts: Facts) -> pd.DataFrame:
    """Answers about slides whose label tells whether they have the question's class, with `truth`."""
    assert question.class_name is not None
    labels = map(text_of, own["slide_id"].map(facts.slides["label"]))
    truth = pd.Series([facts.references.has(label, question.class_name) for label in labels], own.index, dtype=object)
    return own[truth.notna()].assign(truth=truth[truth.notna()].astype(bool))


def _about_classes(config: ReadingConfig, facts: Facts) -> str:
    """Sentence on the questions' classes that no model has; "" without any."""
    names = dict.fromkeys(question.class_name for question in config.questions if question.class_name is not None)
    strange = [name for name in names if not facts.references.is_known(name)]
    return f"No model has predicted {', '.join(strange)}: a slide has it if its label is that." if strange else ""


def _mrmc(config: ReadingConfig, given: pd.DataFrame, facts: Facts) -> Table:
    rows: list[Row] = []
    for question in config.questions:
        if question.class_name is None:
            continue
        own = _with_truth(given[given["question"] == question.name], question, facts)
        arms = {arm: _scores(own, arm) for arm in config.arms}
        for arm, scores in arms.items():
            rows += _estimated(question.name, arm, lambda s=scores: mrmc_auc(s))  # type: ignore[misc]
        if len(arms) == 2:
            first, second = config.arms
            one, other = arms[second], arms[first]
            rows += _estimated(question.name, f"{second} − {first}", lambda a=one, b=other: mrmc_difference(a, b))  # type: ignore[misc]
    columns = ("question", "arm", "AUC or difference", "95 % interval", "p", "degrees of freedom", "by reader")
    note = (
        "Readers and cases are both samples: variances are those of U-statistics (Gallas 2006), as in iMRMC. "
        "Limits beyond 0 and 1 show how little was read; there are none if all areas agree completely. A case is a "
        f"patient, with the highest score of the slides read. {_about_classes(config, facts)}"
    ).strip()
    return Table("mrmc", "Readers’ areas under the ROC curve (MRMC)", columns, rows, note=note)


def _scores(own: pd.DataFrame, arm: str) -> ArmScores:
    """Scores of the readers and cases of both arms, so that a difference is between the same ones.

    A case is a patient, as slides of one are not independent: it has the class if any slide has it, and a reader's
    highest score of the slides read.
    """
    readers = sorted(own["reader"].unique())
    first = own[own["arm"] == arm].sort_values("session").drop_duplicates(["reader", "slide_id"])
    scored = first.assign(score=first["value"].astype(float))
    wide = scored.pivot_table(index="reader", columns="patient", values="score", aggfunc="max")
    truth = own.groupby("patient")["truth"].any()
    whole = wide.reindex(index=readers, columns=sorted(truth.index))
    is_positive = truth.reindex(whole.columns).to_numpy(bool)
    values = whole.to_numpy(np.float64)
    return ArmScores(values[:, ~is_positive], values[:, is_positive])


def _estimated(question: str, arm: str, measure: Callable[[], MrmcEstimate]) -> list[Row]:
    try:
        estimate = measure()
    except EmptyTableError:
        return [
            (question, arm, None, interval(None, None), None, None, "fewer than two readers or cases of both kinds")
        ]
    by_reader = ", ".join("–" if np.isnan(value) else f"{value:.3f}" for value in estimate.by_reader)
    limits = interval(estimate.low, estimate.high)
    return [(question, arm, estimate.value, limits, estimate.p_value, estimate.degrees_of_freedom, by_reader)]
