"""How good predictions are, and the report that says so."""

from training.foundation.lazy import public_names

__all__, __getattr__ = public_names(
    __name__,
    {
        "bootstrap": "Estimate",
        "evaluate": "evaluate_model",
        "report": "write_report",
        "result": "Evaluation",
    },
)
