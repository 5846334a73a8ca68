"""Remedies for slides that ended without a result: one for each code, in plain words.

A slide's reason says what is wrong with it; the remedy says what a coordinator can do, and how the slide continues.
"""

from __future__ import annotations

from collections.abc import Iterable

_RETRY = "then retry."
_EXCLUDE = "exclude it with a reason in the manifest's column `exclude`, and record that with `gemslide study amend`."
_AMEND = f"change that in study.toml, record it with `gemslide study amend`, {_RETRY}"

REMEDIES = {
    # The slide's file.
    "unreadable": "A file is missing, damaged, or of a format that nobody here reads. See that every worker's machine "
    f"finds it; copy it again from the scanner or the archive, {_RETRY}",
    "corrupt_tile": f"Part of the image cannot be decoded. Copy the file again, or scan the glass again, {_RETRY} Else "
    f"{_EXCLUDE}",
    "claims_too_much": "The file claims more pixels than it can hold: it is damaged, or made to do harm. Get it again "
    f"from the scanner, {_RETRY}",
    "missing_mpp": "The file does not say how large a pixel is. Find that in the scanner's settings, write it into the "
    f"manifest's column `mpp`, record that with `gemslide study amend`, {_RETRY}",
    "not_brightfield_rgb": f"Only 8-bit brightfield images in colour can be used. If this slide is none, {_EXCLUDE}",
    "which_series": "A folder holds several slides. Name the file or folder of the one that is meant in the manifest, "
    f"record that with `gemslide study amend`, {_RETRY}",
    "changed_source": "The slide, its store or a model is not what it was before. Wait until files are fully copied; "
    f"put the earlier one back, or delete a store that was made of a wrong file, {_RETRY}",
    # What gemslide made of it.
    "damaged_store": "The slide's store was damaged after it was made. Check the disk; put the store back from a "
    f"backup, or delete it and ingest the slide again, {_RETRY}",
    "wrong_slide": "A store or a prediction is that of another slide: folders were copied or renamed. Put the right "
    f"one back, {_RETRY}",
    "no_tissue": "Look at the slide. If it is empty, this is its result. If it is not, a limit does not fit it: "
    f"{_AMEND}",
    "qc_failed": f"Look at the slide. If quality control is right, {_EXCLUDE} If its limits are wrong, {_AMEND}",
    "insane_output": "The model's output is impossible: not finite, or the same everywhere. Look at the slide; check "
    f"the model with `gemslide model check`, {_RETRY}",
    # What was asked for.
    "bad_recipe": f"The settings or the model do not fit this slide. If a setting is wrong, {_AMEND} Else {_EXCLUDE}",
    "outside_folders": "The slide, or a part of it, lies outside of the folders that the installation allows, or a "
    f"link leads out of them. Move it there, or ask the operator to allow its folder, {_RETRY}",
    "relied_on": "Another study of this project relies on an output of this slide that this study would replace, since "
    "its settings differ. Run this study in a project of its own; or use the other study's settings: "
    f"{_AMEND}",
    "bad_manifest": "The manifest does not hold together with the study. Correct it, record that with `gemslide study "
    f"amend`, {_RETRY}",
    "bad_annotation": f"An annotation cannot be used as it is. Correct it, {_RETRY}",
    "leakage": f"The model was trained on this patient. Its slides cannot test the model: {_EXCLUDE}",
    "no_slides": f"A project has no slides. See that every worker was started on the right project, {_RETRY}",
    "empty_table": f"No tile of the slide can be used. Look at it; if a limit does not fit, {_AMEND}",
    "wrong_world_size": f"The worker was started with another number of processes than asked for. Start it again, "
    f"{_RETRY}",
    # The machine.
    "locked": f"Another process was writing the same output. Wait until it has ended, or end it, {_RETRY}",
    "disk_full": f"Free space on the project's disk, or let the workers write there, {_RETRY}",
    "failed_process": "A process crashed or was stopped, mostly because memory ran out. Start fewer workers, or use a "
    f"machine with more memory, {_RETRY}",
    "out_of_memory": "A training step did not fit into memory. The message names the settings that would have fitted: "
    f"put one into the recipe, or use a machine with more memory, {_RETRY}",
    "non_finite": "A loss or a gradient of a training run became infinite or not a number. Look at the tiles that the "
    f"message leads to, and at the learning rate, {_RETRY}",
    "lost_peer": "One of several processes that worked together was lost. Look at the machine that it ran on, "
    f"{_RETRY}",
    "lost_worker": "The worker that held the slide died or was cut off; another one tries again by itself. Where that "
    "happens often, look at the worker's machine: memory, network, disk.",
    "set_aside": "It was tried as often as the protocol's [patience] allows. The reason names what went wrong the last "
    f"time: correct that, {_RETRY}",
    "internal_error": "gemslide itself failed, and the slide may be good. Report it with what the worker said on its "
    "terminal; retry with a version in which it is corrected.",
}
"""By code: of every error that can end a slide (pipeline/errors.py), and what workers give besides."""

OTHER = f"Read the reason, correct what it names, {_RETRY}"
"""Of a code that gemslide does not know: readers of a site's own can have codes of their own."""


def remedy_of(code: str | None) -> str:
    """Remedy for slides that ended with a code."""
    return REMEDIES.get(code or "", OTHER)


def remedies_of(codes: Iterable[str | None]) -> dict[str, str]:
    """The remedy of each code, in the order in which they come first; "" stands for none."""
    return {code or "": remedy_of(code) for code in codes}
