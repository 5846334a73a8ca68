"""Trained models on slides."""

from training.foundation.lazy import public_names

__all__, __getattr__ = public_names(
    __name__,
    {
        "hotspots": "find_hotspots Hotspot read_hotspots",
        "infer": "infer_slide",
        "predictor": "Predictor",
        "results": "heatmap_name unwritten_formats write_results",
        "results_check": "check_results",
        "stage": "InferStage load_once",
    },
)
