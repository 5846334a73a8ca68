"""Results of an evaluation of slide-level models: everything in its report and files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from pipeline.evaluation.slide_level.collect import AttendedTile
from pipeline.evaluation.statistics.bootstrap import Estimate
from pipeline.evaluation.statistics.delong import DeLongAuc, DeLongTest
from pipeline.evaluation.statistics.survival.horizon_calibration import SurvivalBin
from pipeline.evaluation.statistics.survival.log_rank import LogRank
from pipeline.units import RESEARCH_USE


@dataclass(frozen=True)
class MethodResult:
    """Measures of the model, or of what it is compared with."""

    name: str
    measures: Mapping[str, Estimate]
    """Empty if the method is not available."""
    delong: DeLongAuc | None = None
    """AUROC of two classes by DeLong's method, if each unit is one patient."""
    why_not: str | None = None
    """Why the method is not available."""


@dataclass(frozen=True)
class Lead:
    """The model's main measure minus that of another method, both in the same resamples."""

    against: str
    measure: str
    difference: Estimate
    delong: DeLongTest | None = None


@dataclass(frozen=True)
class RiskGroup:
    """Kaplan and Meier's estimate in one group; empty without patients."""

    name: str
    patients: int
    events: int
    median: float | None = None
    """First time by which at most half are without an event."""
    last_time: float | None = None
    times: tuple[float, ...] = ()
    survival: tuple[float, ...] = ()
    low: tuple[float | None, ...] = ()
    high: tuple[float | None, ...] = ()


@dataclass(frozen=True)
class SurvivalPart:
    """Results of survival beside its measures."""

    events: int
    median_follow_up: float
    """Median time of the tested units, with or without an event."""
    tau: float | None
    """Events from here on count neither for Uno's C nor for the Brier score."""
    horizons: tuple[float, float] | None
    """Times between which the Brier score is averaged."""
    calibration: tuple[SurvivalBin, ...] = ()
    """Of survival up to the median follow-up."""
    groups: tuple[RiskGroup, ...] = ()
    median_risk: float | None = None
    """Of the training units, which splits the groups."""
    log_rank: LogRank | None = None
    notes: tuple[str, ...] = ()

    def with_notes(self, *notes: str) -> SurvivalPart:
        return replace(self, notes=(*self.notes, *notes))

    def with_calibration(self, calibration: tuple[SurvivalBin, ...]) -> SurvivalPart:
        return replace(self, calibration=calibration)

    def with_groups(self, groups: tuple[RiskGroup, ...], tested: LogRank, median_risk: float) -> SurvivalPart:
        return replace(self, groups=groups, log_rank=tested, median_risk=median_risk)


@dataclass(frozen=True)
class WrongUnit:
    """A unit whose prediction is far from the truth, and the tiles that the model attended to most."""

    unit: str
    model_id: str
    truth: str
    predicted: str
    error: float
    tiles: tuple[AttendedTile, ...]


@dataclass(frozen=True)
class Drawing:
    """A figure of the report."""

    svg: str
    caption: str


@dataclass(frozen=True)
class TargetResult:
    """One target."""

    name: str
    kind: str
    """class, ordinal, number or survival."""
    classes: tuple[str, ...]
    units: int
    """Tested units with a value."""
    patients: int
    without_value: int
    """Tested units without one."""
    by_class: Mapping[str, int]
    """Tested units of each class; empty for other kinds."""
    methods: tuple[MethodResult, ...]
    """The model first."""
    leads: tuple[Lead, ...]
    per_model: Mapping[str, Mapping[str, Estimate]]
    """Measures of each model on its own test units, if there are several; without intervals."""
    confusion: tuple[tuple[int, ...], ...] | None
    """Counts, rows = truth, columns = prediction, of classes and grades."""
    survival: SurvivalPart | None
    wrong: tuple[WrongUnit, ...]
    error: str
    """What `wrong` is sorted by."""
    drawings: tuple[Drawing, ...] = ()


@dataclass(frozen=True)
class SlideEvaluation:
    """Everything in a report."""

    models: tuple[str, ...]
    level: str
    """patient or slide."""
    split: str
    encoder_id: str
    resamples: int
    seed: int
    threshold: float
    tested: int
    """Units with features."""
    tested_patients: int
    without_features: tuple[str, ...]
    slides_left_out: tuple[str, ...]
    """Slides without features of tested units that are predicted from other slides."""
    others: int
    """Units of the manifest that are neither tested nor trained on."""
    is_new_cohort: bool
    targets: tuple[TargetResult, ...]
    notes: tuple[str, ...]
    header: tuple[str, ...] = field(default=())
    rows: tuple[tuple[object, ...], ...] = field(default=())
    """`units.csv`: one row for each tested unit."""

    def as_json(self) -> dict[str, Any]:
        """Everything but the drawings and the rows of `units.csv`, as JSON values."""
        content = asdict(replace(self, targets=tuple(replace(target, drawings=()) for target in self.targets)))
        for key in ("header", "rows"):
            del content[key]
        for target in content["targets"]:
            del target["drawings"]
        return {"research_use": RESEARCH_USE, **content}
