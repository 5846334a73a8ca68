"""Packages of slide-level models with weights as drawn: for tests and measurements of everything but training."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from pipeline.project import Project
from pipeline.slide_level.stored_bags import SlideFeatures, encoder_of
from training.models.slide_models import slide_model_blocks
from training.packages.slide_card import SlideCard
from training.packages.slide_package import SlidePackageContent, write_slide_packages


def write_drawn_model(project: Project, slide: SlideFeatures, name: str = "abmil", *, level: str = "slide") -> Path:
    """Write a package for the features of a slide, with two classes; return its folder."""
    torch.manual_seed(0)
    blocks = slide_model_blocks(name, dims=slide.stored.dims, num_outputs=2, hidden=256, num_classes=2)
    config = {
        "runtime": "torch",
        "level": level,
        "model": {"name": name, "hidden": 256, "layers": 4, "heads": 8},
        "dims": slide.stored.dims,
        "targets": [
            {"name": "tumour", "columns": ["label"], "kind": "class", "num_outputs": 2, "classes": ["no", "yes"]}
        ],
        "encoder": dict(encoder_of([slide])),
        "run_id": "none",
        "recipe": f"drawn-{name}",
        "bags_sha256": "0" * 64,
        "parallel": {},
        "which": "last",
        "epoch": 0,
        "threads": 1,
        "isa": None,
        "units": {"train": 0, "val": 0, "test": 0},
        "test_units": [],
        "trained_units": [],
    }
    card = SlideCard("", name, level, [("tumour", "a class")], "drawn", "CC0-1.0", "none", "tiles", {}, {}, ["Drawn."])
    content = SlidePackageContent(config, f"drawn-{name}", {}, card, {})
    (model_id,) = write_slide_packages(project.models_dir, [(nn.Sequential(*blocks).state_dict(), content)])
    return project.model_path(model_id)
