"""Copies and results in formats of other programs."""

from training.foundation.lazy import public_names

__all__, __getattr__ = public_names(
    __name__,
    {
        "cells": "cell_blocks CellBlock fingerprint",
        "csv.parquet": "METADATA_KEY write_parquet",
        "csv.predictions": "CORNER_COLUMNS write_csv",
        "dicom.kinds": "DICOM DICOM_KINDS DicomKind MAX_FRACTION NOT_PREDICTED",
        "dicom.library": "read_parametric_map read_segmentation",
        "dicom.results": "write_dicom_results",
        "export": "export_slide ExportRequest kind_of",
        "qupath.collection": "read_collection",
        "qupath.contours": "cells_above write_contours",
        "qupath.predictions": "write_geojson",
        "target": "check_free",
        "tiff.heatmap": "read_ome_heatmap write_ome_heatmap",
    },
)
