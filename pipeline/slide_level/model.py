"""The pipeline's adapter to slide-level models."""

from __future__ import annotations

from training.slide_inference import SlideModel as SlideModel
from training.slide_inference import SlidePrediction as SlidePrediction
