"""Reader studies in the report: agreement among readers and with themselves, and with the slides' labels."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pipeline.errors import EmptyTableError
from pipeline.evaluation.agreement import MISSING, Agreement, cohens_kappa, concordance, fleiss_kappa
from pipeline.evaluation.mrmc import ArmScores, MrmcEstimate, mrmc_auc, mrmc_difference
from pipeline.study.questions import Question, ReadingConfig
from pipeline.study.report.facts import Facts
from pipeline.study.report.table import Cell, Table, interval
from pipeline.study.report.validation import validation_table

Row = tuple[Cell, ...]


def reader_tables(facts: Facts) -> list[Table]:
    """Tables about the readings; none where the protocol has no readers."""
    config = facts.protocol.reading
    if config is None or not len(facts.readings):
        return []
    signed = facts.readings[facts.readings["state"] == "signed"]
    given = signed.merge(facts.answers, on=["reader", "session", "position"])
    tables = [_progress(facts.readings), _agreement(config, given, facts), _with_themselves(config, given)]
    tables += [_against_labels(config, given, facts), _mrmc(config, given, facts), *validation_table(facts, given)]
    return [table for table in tables if table.rows]


def _progress(readings: pd.DataFrame) -> Table:
    rows: list[Row] = []
    for (reader, arm), own in readings.groupby(["reader", "arm"]):
        signed = own[own["state"] == "signed"]
        seconds = signed["seconds"].astype(float)
        median = float(seconds.median()) if len(signed) else None
        rows.append((str(reader), str(arm), len(own), len(signed), median))
    columns = ("reader", "arm", "readings", "signed", "median seconds")
    return Table("readings", "Readings", columns, rows)


def _coded(question: Question, given: pd.DataFrame) -> NDArray[np.int64]:
    """Answers to a choice, or yes and no, as numbers."""
    values: list[object] = list(question.choices) or [False, True]
    return np.array([values.index(value) for value in given["value"]], dtype=np.int64)


def _compared(config: ReadingConfig) -> list[Question]:
    """Questions whose answers can be the same: scores and free texts hardly are."""
    return [each for each in config.questions if each.kind in ("choice", "yes_no")]


def _agreement(config: ReadingConfig, given: pd.DataFrame, facts: Facts) -> Table:
    rows: list[Row] = []
    seed = facts.protocol.study.seed
    for question in _compared(config):
        for arm in config.arms:
            own = given[(given["question"] == question.name) & (given["arm"] == arm)]
            first = own.sort_values("session").drop_duplicates(["reader", "slide_id"])
            if first["reader"].nunique() < 2:
                continue
            wide = first.assign(code=_coded(question, first)).pivot(index="slide_id", columns="reader", values="code")
            answers = wide.fillna(MISSING).to_numpy(np.int64)
            rows += _of_pairs(question.name, arm, list(map(str, wide.columns)), answers, seed)
            if answers.shape[1] > 2:
                found = _tried(lambda a=answers: fleiss_kappa(a, seed=seed))  # type: ignore[misc]
                rows.append((question.name, arm, "all readers", "Fleiss’ kappa", *_cells(found)))
    columns = ("question", "arm", "readers", "measure", "value", "95 % interval", "slides")
    return Table(
        "agreement", "Agreement between readers", columns, rows, note="Each reader’s first reading of a slide."
    )


def _of_pairs(question: str, arm: str, readers: list[str], answers: NDArray[np.int64], seed: int) -> list[Row]:
    rows: list[Row] = []
    for one, other in combinations(range(len(readers)), 2):
        pair = f"{readers[one]}, {readers[other]}"
        kappa = _tried(lambda a=one, b=other: cohens_kappa(answers[:, a], answers[:, b], seed=seed))  # type: ignore[misc]
        same = _tried(lambda a=one, b=other: concordance(answers[:, a], answers[:, b]))  # type: ignore[misc]
        rows.append((question, arm, pair, "Cohen’s kappa", *_cells(kappa)))
        rows.append((question, arm, pair, "concordance", *_cells(same)))
    return rows


def _tried(measure: Callable[[], Agreement]) -> Agreement:
    try:
        return measure()
    except EmptyTableError:  # no slide that both have read
        return Agreement(None, None, None, 0)


def _cells(found: Agreement) -> Row:
    return (found.value, interval(found.low, found.high), found.cases)


def _with_themselves(config: ReadingConfig, given: pd.DataFrame) -> Table:
    rows: list[Row] = []
    for question in _compared(config):
        own = given[given["question"] == question.name]
        for (reader, arm), of_reader in own.groupby(["reader", "arm"]):
            coded = of_reader.assign(code=_coded(question, of_reader)).sort_values("session")
            first, last = (coded.drop_duplicates("slide_id", keep=which) for which in ("first", "last"))
            both = first.merge(last, on="slide_id")
            both = both[both["session_x"] != both["session_y"]]
            if len(both):
                found = concordance(both["code_x"].to_numpy(np.int64), both["code_y"].to_numpy(np.int64))
                rows.append((question.name, str(arm), str(reader), *_cells(found)))
    columns = ("question", "arm", "reader", "concordance", "95 % interval", "slides")
    note = "First and last reading of the same slide by the same reader, under the same condition."
    return Table("intra_observer", "Agreement of readers with themselves", columns, rows, note=note)


def _against_labels(config: ReadingConfig, given: pd.DataFrame, facts: Facts) -> Table:
    rows: list[Row] = []
    for question in config.questions:
        if question.kind != "yes_no" or question.class_name is None:
            continue
        own = _with_truth(given[given["question"] == question.name], question, facts)
        for (reader, arm), of_reader in own.groupby(["reader", "arm"]):
            said, truth = of_reader["value"].to_numpy(bool), of_reader["truth"].to_numpy(bool)
            for name, among, right in (("sensitivity", truth, said), ("specificity", ~truth, ~said)):
                if among.any():
                    found = concordance(right[among].astype(np.int64), np.ones(int(among.sum()), np.int64))
                    rows.append((question.name, str(arm), str(reader), name, *_cells(found)))
    columns = ("question", "arm", "reader", "measure", "value", "95 % interval", "slides")
    return Table("readers_and_labels", "Readers and the slides’ labels", columns, rows)


def _with_truth(own: pd.DataFrame, question: Question, facts: Facts) -> pd.DataFrame:
    found = own.assign(label=own["slide_id"].map(facts.slides["label"]))
    found = found[found["label"].notna()]
    return found.assign(truth=found["label"] == question.class_name)


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
        "Readers and cases are both samples: variances are those of U-statistics (Gallas 2006), as iMRMC has them. "
        "Limits beyond 0 and 1 show how little was read."
    )
    return Table("mrmc", "Readers’ areas under the ROC curve (MRMC)", columns, rows, note=note)


def _scores(own: pd.DataFrame, arm: str) -> ArmScores:
    """Readers and cases are those of both arms, so that a difference is of the same."""
    readers = sorted(own["reader"].unique())
    first = own[own["arm"] == arm].sort_values("session").drop_duplicates(["reader", "slide_id"])
    wide = first.assign(score=first["value"].astype(float)).pivot(index="reader", columns="slide_id", values="score")
    truth = own.drop_duplicates("slide_id").set_index("slide_id")["truth"]
    whole = wide.reindex(index=readers, columns=sorted(truth.index))
    is_positive = truth.reindex(whole.columns).to_numpy(bool)
    values = whole.to_numpy(np.float64)
    return ArmScores(values[:, ~is_positive], values[:, is_positive])


def _estimated(question: str, arm: str, measure: Callable[[], MrmcEstimate]) -> list[Row]:
    try:
        found = measure()
    except EmptyTableError:  # too few readers or cases
        return []
    by_reader = ", ".join("–" if np.isnan(value) else f"{value:.3f}" for value in found.by_reader)
    limits = interval(found.low, found.high)
    return [(question, arm, found.value, limits, found.p_value, found.degrees_of_freedom, by_reader)]
