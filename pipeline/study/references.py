"""The labels of a study's slides as reference: one rule for endpoints, readers and the flow of the cohort.

A class that one of the study's models has means what it means to that model. Readers may be asked about a class that no
model has: then the node labels of CAMELYON17, or the labels of the study's slides, are the classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.cohort.manifest import Cohort
from pipeline.evaluation.camelyon17 import NODE_LABELS
from pipeline.evaluation.slide_truth import truth_of_label
from pipeline.slide_level.package_level import slide_level_part
from pipeline.study.protocol import Protocol
from training.foundation.model_files import MAX_CONFIG_BYTES
from training.foundation.reading import read_json_file

MAX_SHOWN = 10
"""Labels in a message."""
Asked = tuple[str, str]
"""Who asks about a class, as in "question tumour", and the class."""


@dataclass(frozen=True)
class References:
    """What the labels of slides say about classes."""

    orders: tuple[tuple[str, ...], ...]
    """The classes of each model in their order; each order once."""
    labels: tuple[str, ...]
    """The labels of the study's slides, sorted; each once."""
    asked: tuple[Asked, ...]
    """The classes that the protocol compares with labels of whole slides."""

    @classmethod
    def of(cls, protocol: Protocol, orders: Iterable[Sequence[str]], labels: Iterable[str | None]) -> References:
        distinct = tuple(dict.fromkeys(tuple(order) for order in orders))
        return cls(distinct, tuple(sorted({label for label in labels if label})), tuple(_asked(protocol)))

    def is_known(self, class_name: str) -> bool:
        """Whether a model has the class."""
        return any(class_name in order for order in self.orders)

    def has(self, label: str | None, class_name: str) -> bool | None:
        """Whether a slide with this label has the class; None if the label does not tell."""
        if not label:
            return None
        if not self.is_known(class_name):
            return label == class_name if label in self._others(class_name) else None
        for order in self.orders:
            truth = truth_of_label(label, order) if class_name in order else None
            if truth is not None:
                return bool(truth[order.index(class_name)])
        return None

    def is_usable(self, label: str | None) -> bool:
        """Whether a label tells anything about a class of a model, or of a question."""
        classes = {*(order[0] for order in self.orders if order), *(class_name for _, class_name in self.asked)}
        return any(self.has(label, class_name) is not None for class_name in classes)

    @property
    def warnings(self) -> list[str]:
        """A sentence on each class that no slide has by its label: a misspelt name would make an empty report."""
        return [
            f"{who}: class_name {class_name!r}: no slide of the study has it by its label ({self._shown}). Compare the "
            "spelling with the column `label` of the manifest; without such a slide, there is nothing to find."
            for who, class_name in self.asked
            if not any(self.has(label, class_name) for label in self.labels)
        ]

    @property
    def _shown(self) -> str:
        more = f" and {len(self.labels) - MAX_SHOWN} more" if self.labels[MAX_SHOWN:] else ""
        return f"labels: {', '.join(self.labels[:MAX_SHOWN])}{more}" if self.labels else "no slide has a label"

    def _others(self, class_name: str) -> Sequence[str]:
        """The classes that a class of no model belongs to; none if it is not even a label."""
        if class_name in NODE_LABELS:
            return NODE_LABELS
        # Whether a micrometastasis has a class that is only another slide's label is not known.
        own = [label for label in self.labels if label not in NODE_LABELS[1:]]
        return own if class_name in own else []


def _asked(protocol: Protocol) -> Iterable[Asked]:
    for endpoint in protocol.endpoints:
        if endpoint.class_name is not None and endpoint.level != "tile":
            yield f"endpoint {endpoint.name}", endpoint.class_name
    for question in protocol.reading.questions if protocol.reading else ():
        if question.class_name is not None:
            yield f"question {question.name}", question.class_name


def references_of_cohort(protocol: Protocol, cohort: Cohort, packages: Iterable[Path]) -> References:
    """The references of a study that is about to begin, by the classes in its models' packages."""
    labels = [entry.label for entry in cohort.included]
    return References.of(protocol, (order for package in packages for order in class_orders(package)), labels)


def class_orders(package: Path) -> list[tuple[str, ...]]:
    """A model's classes, of each target of a slide-level one; none if its config.json cannot be read, which is
    reported when the model is loaded."""
    try:
        if targets := slide_level_part(package).get("targets"):
            return [tuple(map(str, target["classes"])) for target in targets if target.get("classes")]
        names = read_json_file(package / "config.json", max_bytes=MAX_CONFIG_BYTES)["class_names"]
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return []
    return [tuple(map(str, names))] if names else []
