"""Remedies for slides that ended without a result: one for each code, in plain language.

A slide's reason says what is wrong with it; the remedy says what a coordinator can do, and how the slide continues.
"""

from __future__ import annotations

from collections.abc import Iterable

_RETRY = "then retry."
_EXCLUDE = "exclude it with a reason in the manifest's column `exclude`, and record that with `gemslide study amend`."
_AMEND = f"change that in study.toml, record it with `gemslide study amend`, {_RETRY}"

REMEDIES = {
    # The slide's file.
    "unreadable": "A file is missing, damaged, or in a format that no reader here supports. Check that every worker's "
    f"machine can reach it; copy it again from the scanner or the archive, {_RETRY}",
    "corrupt_tile": f"Part of the image cannot be decoded. Copy the file again, or rescan the glass slide, {_RETRY} "
    f"Otherwise {_EXCLUDE}",
    "claims_too_much": "The file claims more pixels than it can hold: it is damaged or malicious. Get it again from "
    f"the scanner, {_RETRY}",
    "missing_mpp": "The file does not state its pixel size. Look it up in the scanner's settings, enter it in the "
    f"manifest's column `mpp`, record that with `gemslide study amend`, {_RETRY}",
    "not_brightfield_rgb": f"Only 8-bit colour brightfield images can be used. If this slide is not one, {_EXCLUDE}",
    "which_series": "A file or folder holds several slides. Name the right one in the manifest: its own file or "
    f"folder, or its entry in the column `series`. Then record that with `gemslide study amend`, {_RETRY}",
    "changed_source": "The slide, its store or a model has changed. Wait until files are fully copied; restore the "
    f"earlier one, or delete a store that was made from a wrong file, {_RETRY}",
    "source_gone": "The store points at a slide file that is not there any more. Mount its disk, or name its new place "
    f"with `gemslide verify SLIDE --source FILE`, {_RETRY}",
    # The outputs.
    "unverified_link": "The store points at a slide file with which it has not been compared. Run `gemslide verify`, "
    f"{_RETRY}",
    "read_only_store": "The slide's store is in a bucket, from which slides are only read. Copy it into the project's "
    f"folder `slides`, {_RETRY}",
    "damaged_store": "The slide's store was damaged after it was made. Check the disk; restore the store from a "
    f"backup, or delete it and ingest the slide again, {_RETRY}",
    "wrong_slide": "A store or a prediction belongs to another slide: folders were copied or renamed. Put the right "
    f"one back, {_RETRY}",
    "incomplete_patient": "Another slide of the same patient ended without a result, and the model predicts patients "
    "from all of their slides. Find it by the manifest's column `patient_id`, and do what its own code asks for; "
    f"{_RETRY}",
    "no_tissue": "Look at the slide. If it is empty, this is its result. If it is not, a limit does not suit it: "
    f"{_AMEND}",
    "not_registered": "Two slides could not be aligned by their tissue. Look at both; align them by landmarks in the "
    f"side-by-side view, {_RETRY}",
    "qc_failed": f"Look at the slide. If quality control is right, {_EXCLUDE} If its limits are wrong, {_AMEND}",
    "insane_output": "The model's output is impossible: not finite, or the same everywhere. Look at the slide; check "
    f"the model with `gemslide model check`, {_RETRY}",
    # The request.
    "bad_recipe": f"The settings or the model do not fit this slide. If a setting is wrong, {_AMEND} "
    f"Otherwise {_EXCLUDE}",
    "outside_folders": "The slide, or a part of it, is outside the folders that the installation allows, or a link "
    f"leads out of them. Move it into one of them, or ask the operator to allow its folder, {_RETRY}",
    "relied_on": "Another study of this project relies on an output of this slide that this study would replace, since "
    "its settings differ. Run this study in a separate project, or use the other study's settings: "
    f"{_AMEND}",
    "bad_manifest": "The manifest does not match the study. Correct it, record that with `gemslide study "
    f"amend`, {_RETRY}",
    "bad_annotation": f"An annotation cannot be used as it is. Correct it, {_RETRY}",
    "leakage": f"The model was trained on this patient. Its slides cannot test the model: {_EXCLUDE}",
    "no_slides": f"A project has no slides. Check that every worker was started on the right project, {_RETRY}",
    "empty_table": f"No tile of the slide can be used. Look at it; if a limit does not suit it, {_AMEND}",
    "wrong_world_size": f"The worker was started with a different number of processes than requested. Start it again, "
    f"{_RETRY}",
    # The machine.
    "locked": f"Another process was writing the same output. Wait until it has finished, or stop it, {_RETRY}",
    "disk_full": f"Free space on the project's disk, or give the workers write access to it, {_RETRY}",
    "failed_process": "A process crashed or was stopped, usually because memory ran out. Start fewer workers, or use a "
    f"machine with more memory, {_RETRY}",
    "out_of_memory": "A training step did not fit in memory. The message names the settings that would have fitted: "
    f"put one in the recipe, or use a machine with more memory, {_RETRY}",
    "busy_machine": "Other programs used the processor while the machine was measured. End them, and measure again "
    "with `gemslide plan --calibrate`.",
    "not_calibrated": "The machine has not been measured for this recipe: do so with `gemslide plan --calibrate`, "
    f"{_RETRY}",
    "non_finite": "A loss or a gradient of a training run became infinite or not a number. Check the tiles that the "
    f"message points to, and the learning rate, {_RETRY}",
    "mixed_ranks": "Processes of one run have different settings, or kinds of machine. Start them alike.",
    "lost_peer": f"One of several processes that worked together was lost. Check the machine that it ran on, {_RETRY}",
    "lost_worker": "The worker that held the slide died or was cut off; another one retries it automatically. If that "
    "happens often, check the worker's machine: memory, network, disk.",
    "set_aside": "It was tried as often as the protocol's [patience] allows. The reason names what went wrong the last "
    f"time: correct that, {_RETRY}",
    "internal_error": "gemslide itself failed; the slide may be fine. Report it with the worker's terminal output; "
    "retry with a version that fixes it.",
}
"""By code: of every error that can end a slide (pipeline/errors.py), and those that workers add."""

OTHER = f"Read the reason, correct what it names, {_RETRY}"
"""For a code that gemslide does not know: a site's own readers can have their own codes."""


def remedy_of(code: str | None) -> str:
    """Remedy for slides that ended with a code."""
    return REMEDIES.get(code or "", OTHER)


def remedies_of(codes: Iterable[str | None]) -> dict[str, str]:
    """The remedy of each code, in order of first appearance; "" stands for no code."""
    return {code or "": remedy_of(code) for code in codes}
