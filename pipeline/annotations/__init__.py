"""Annotation files of QuPath, ASAP and ImageScope: one reader and one writer per format."""

from training.foundation.lazy import public_names

__all__, __getattr__ = public_names(
    __name__,
    {
        "files": "read_annotations write_annotations",
        "geojson": "classification COLOURS feature qupath_origin_xy0 write_features",
        "objects": "AnnotationFile",
        "region": "check_regions moved Region",
        "repair": "describe_repairs labelled_regions RepairReport",
        "rings": "polygons_of",
    },
)
