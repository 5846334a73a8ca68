"""Trained models on slides."""

from training.foundation.lazy import public_names

__all__, __getattr__ = public_names(
    __name__,
    {
        "devices": "named_devices",
        "hotspots": "find_hotspots Hotspot read_hotspots",
        "infer": "infer_slide",
        "invariance": "check_invariance",
        "predictor": "Predictor",
        "results": "heatmap_name write_results",
        "results_check": "check_results",
        "sharing": "gathered serve_first_rank share_of_this_process",
        "slide_facts": "tissue_mm2",
        "stage": "InferStage close_devices load_once",
    },
)
