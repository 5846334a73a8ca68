"""A protocol to begin with: `gemslide study init` writes it, for people to complete."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tomli_w

from pipeline.cohort.duplicates import refuse_changes
from pipeline.cohort.manifest import load_cohort
from pipeline.errors import BadManifestError
from pipeline.files import write_new_text
from pipeline.naming.models import find_package
from pipeline.project import Project
from pipeline.settings.config import load_settings
from pipeline.slide_level.package_level import slide_level_part
from pipeline.study.protocol import PROTOCOL_FILE, AboutStudy, Protocol, model_of, study_dir
from pipeline.study.references import class_orders
from pipeline.study.slide_models import chosen_tiles, encoder_stated
from pipeline.study.stages.encoders import encoders_named
from pipeline.study.stages.registry import KINDS, settings_of
from training.foundation.settings import parse_section

TEMPLATES: dict[str, dict[str, Any]] = {
    "cap-validation": {
        "reading": {
            "readers": ["reader-1"],
            "arms": ["glass", "digital"],
            "order": "crossover",
            "washout_days": 14.0,
            "questions": [
                {
                    "name": "diagnosis",
                    "ask": "What is the diagnosis?",
                    "kind": "choice",
                    "choices": ["benign", "atypical", "malignant"],
                    "ordered": True,
                },
                {"name": "remarks", "ask": "Remarks on the slide", "kind": "text", "required": False},
            ],
        },
        "validation": {"question": "diagnosis", "min_cases": 60, "min_concordance": 0.95, "min_washout_days": 14.0},
    },
}
"""Sections that `study init --template` writes, to be completed."""

_HEADING = """\
# Protocol of a study. It is frozen when the study begins; later changes are amendments, each with its reason.
# All sections and keys: docs/reference/studies.md.

"""
_EXAMPLES = """
# Endpoints, and the results expected before any data are seen: uncomment and edit, or add others.
# [[endpoints]]
# name = "area under the ROC curve, by patient"
# measure = "auc"                # or accuracy, balanced_accuracy, sensitivity, specificity, kappa
# level = "patient"              # or slide; or tile, with the `tile_set` whose labels are the reference
# model = {model}
# class_name = {class_name}
# at_least = 0.8                 # met if the lower end of the 95 % interval reaches it
# kind = "primary"               # or secondary

# [[endpoints]]
# name = "sensitivity, by slide"
# measure = "sensitivity"
# model = {model}
# class_name = {class_name}
# at_least = 0.7
"""


def new_protocol(
    project: Project,
    study_id: str,
    about: AboutStudy,
    models: Sequence[str],
    template: str | None = None,
    encoders: Sequence[str] = (),
) -> Path:
    """Write a protocol to be completed; its settings are the project's.

    Args:
        about: `cohort` is relative to the current folder.
        template: "cap-validation" adds the design of a validation of digital pathology.
        encoders: names of the project's encoders that embed every slide; those of slide-level models are added.

    Raises:
        BadManifestError: one already exists, or the cohort cannot be read. UnreadableError: no such model or encoder.
        BadRecipeError: an encoder that cannot be opened.
    """
    path = study_dir(project, study_id) / PROTOCOL_FILE
    there_is_one = BadManifestError(f"{path}: already exists. Choose another name for the study, or edit this one.")
    if path.exists():
        raise there_is_one
    refuse_changes(load_cohort(Path(about.cohort)), project)
    packages = [find_package(model, project) for model in models]
    needed = [encoder_stated(part, package) for package in packages if (part := slide_level_part(package))]
    encoders = list(dict.fromkeys([*encoders, *(str(encoder["encoder_id"])[:-9] for encoder in needed)]))
    settings = load_settings(project.settings_path)
    content: dict[str, Any] = {
        "study": {
            **about.model_dump(),
            "cohort": os.path.relpath(os.path.abspath(about.cohort), path.parent.absolute()),
        },
        "models": [model_of(package).model_dump() for package in packages],
        "encoders": [encoder.model_dump() for encoder in encoders_named(encoders, project)],
        **{
            kind.section: settings_of(settings, kind).model_dump(mode="json", exclude_unset=True)
            for kind in KINDS
            if encoders or not kind.of_encoders
        },
    }
    for encoder in needed:
        content["embed"] |= chosen_tiles(encoder)
    content |= TEMPLATES[template] if template else {}
    parse_section(Protocol, content, where="the study")
    written = tomli_w.dumps({name: table for name, table in content.items() if table})
    try:
        write_new_text(path, _HEADING + written + _examples(packages))
    except FileExistsError as error:  # somebody else has made one meanwhile
        raise there_is_one from error
    return path


def _examples(packages: Sequence[Path]) -> str:
    """Example endpoints of the first model, as comments: nothing is measured unless requested."""
    orders = class_orders(packages[0])
    class_name = orders[0][-1] if orders else "tumour"
    # JSON's strings are TOML's as well.
    return _EXAMPLES.format(model=json.dumps(packages[0].name), class_name=json.dumps(class_name))
