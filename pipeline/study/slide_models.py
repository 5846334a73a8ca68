"""What a study's slide-level models need: their encoders, tiles chosen as in training, patients, and targets."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.cohort.manifest import Cohort
from pipeline.errors import LeakageError
from pipeline.slide_level.clinical import refuse_without_patient
from pipeline.slide_level.package_level import slide_level_part
from pipeline.study.protocol import Endpoint, Protocol, StudyModel
from pipeline.study.stages.embed import EMBED
from pipeline.study.stages.registry import settings_of
from training.foundation.errors import BadRecipeError, UnreadableError
from training.foundation.words.unit_digest import unit_digest

CHOICE = ("min_tissue", "overlap")
"""Settings of `[embed]` that decide which tiles a model sees."""
MAX_SHOWN = 10


def check_slide_models(protocol: Protocol, cohort: Cohort, packages: Mapping[str, Path]) -> list[str]:
    """Compare a protocol and its cohort with what the slide-level models say of themselves.

    Returns:
        a sentence for each model that names the slides that it was trained on and not their patients.

    Raises:
        BadRecipeError: an encoder is not among the study's, `[embed]` chooses other tiles than the model was trained
            on, or an endpoint's target is not the model's.
        BadManifestError: a model predicts patients, and a slide has none.
        LeakageError: a patient or slide of the cohort trained or chose the model.
        UnreadableError: a package does not say what it takes.
    """
    models = [model for model in protocol.models if model.level != "tile"]
    for model in models:
        stated = slide_level_part(packages[model.id])
        _check_encoder(model, encoder_stated(stated, packages[model.id]), protocol)
        if model.level == "patient":
            refuse_without_patient(cohort)
        _refuse_leak(model, stated, cohort)
        for endpoint in protocol.endpoints:
            if endpoint.model == model.id:
                target_of(endpoint, stated.get("targets"))
    return [
        f"model {model.id}: names the slides that it was trained on, and not their patients, so it is not known "
        "whether other slides of theirs are in the study. Compare the lists yourself."
        for model in models
        if model.level == "slide"
    ]


def encoder_stated(stated: Mapping[str, Any], package: Path) -> dict[str, Any]:
    """The encoder that a slide-level model takes the features of. Raises UnreadableError: the package names none."""
    encoder = stated.get("encoder")
    if not isinstance(encoder, dict) or not isinstance(encoder.get("encoder_id"), str):
        raise UnreadableError(f"{package / 'config.json'}: names no encoder. Restore the package from a backup.")
    return encoder


def chosen_tiles(encoder: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of `[embed]` with which a model's training features were made, as far as its package knows them."""
    return {key: encoder[key] for key in CHOICE if encoder.get(key) is not None}


def target_of(endpoint: Endpoint, targets: object) -> str:
    """The target with classes that an endpoint is about.

    Args:
        targets: as a package lists them, or the answers to them by name.

    Raises:
        BadRecipeError: the model has no such target with classes, or several and the endpoint names none.
    """
    tables = [{"name": name, **table} for name, table in targets.items()] if isinstance(targets, dict) else targets
    with_classes = [
        str(table["name"])
        for table in (tables if isinstance(tables, list) else [])
        if isinstance(table, dict) and table.get("kind") in ("class", "ordinal") and "name" in table
    ]
    if endpoint.target is None and len(with_classes) == 1:
        return with_classes[0]
    if endpoint.target in with_classes:
        return endpoint.target
    raise BadRecipeError(
        f"endpoint {endpoint.name}: target = {endpoint.target!r}: model {endpoint.model} has the targets with classes "
        f"{', '.join(with_classes) or '(none)'}. Name one of them."
    )


def _check_encoder(model: StudyModel, encoder: Mapping[str, Any], protocol: Protocol) -> None:
    encoder_id = encoder["encoder_id"]
    named = [each.id for each in protocol.encoders]
    if encoder_id not in named:
        raise BadRecipeError(
            f"model {model.id}: takes features of encoder {encoder_id}, which is not among the study's [[encoders]] "
            f"({', '.join(named) or 'none'}). `gemslide study init --model {model.id}` writes the right one."
        )
    embed = settings_of(protocol, EMBED).model_dump()
    differ = [
        f"{key} = {embed[key]:g}, not {value:g}" for key, value in chosen_tiles(encoder).items() if embed[key] != value
    ]
    if differ:
        raise BadRecipeError(
            f"model {model.id}: was trained on features of other tiles: [embed] says {'; '.join(differ)}. Set them in "
            "study.toml as they were for the model."
        )


def _refuse_leak(model: StudyModel, stated: Mapping[str, Any], cohort: Cohort) -> None:
    trained = stated.get("trained_units")
    digests = set(trained) if isinstance(trained, list) else set()
    known = [
        entry.slide_id
        for entry in cohort.included
        if unit_digest(entry.slide_id if model.level == "slide" else str(entry.patient_id)) in digests
    ]
    if known:
        more = f" and {len(known) - MAX_SHOWN} more" if len(known) > MAX_SHOWN else ""
        raise LeakageError(
            f"model {model.id} was trained on, or chosen by, {model.level}s of this cohort: "
            f"{', '.join(known[:MAX_SHOWN])}{more}. Exclude them with a reason in the manifest, or study another model."
        )
