"""Quality control of slides: focus, pen, folds, bubbles and edges by cell; the slide's stain."""

from training.foundation.lazy import public_names

__all__, __getattr__ = public_names(
    __name__,
    {
        "check": "check_quality",
        "stage": "QcStage",
        "stain": "fit_macenko fit_reinhard",
    },
)
