"""How good predictions are, and the report that says so."""

from training.foundation.lazy import public_names

__all__, __getattr__ = public_names(
    __name__,
    {
        "agreement": "Agreement MISSING cohens_kappa concordance fleiss_kappa",
        "bootstrap": "CONFIDENCE Draws Estimate FEW_PATIENTS FEWEST_PATIENTS Resamples Values estimate",
        "calibration": "calibration_of",
        "delong": "DeLongAuc delong_auc",
        "evaluate": "evaluate_model",
        "figures": "COLOURS STYLE as_svg reliability_figure roc_figure",
        "metrics": "decide",
        "mrmc": "ArmScores MrmcEstimate mrmc_auc mrmc_difference",
        "one_class": "NamedCurve auroc auroc_resampled roc_with_band",
        "report": "write_report",
        "result": "Evaluation",
        "slide_truth": "truth_of_label",
        "stored": "RULES SlideScore slide_scores tile_probabilities",
    },
)
