"""Copies and results in formats of other programs."""

from training.foundation.lazy import public_names

__all__, __getattr__ = public_names(
    __name__,
    {
        "csv.predictions": "write_csv",
        "export": "export_slide ExportRequest kind_of",
        "qupath.predictions": "write_geojson",
    },
)
