"""Annotation files of QuPath, ASAP and ImageScope: one reader and one writer per format."""

from training.foundation.lazy import public_names

__all__, __getattr__ = public_names(
    __name__,
    {
        "files": "parse_annotations read_annotations write_annotations",
        "geojson": "classification COLOURS feature qupath_origin_xy0 write_features",
        "objects": "AnnotationFile AnnotationObject",
        "qupath": "qupath_features read_geometry",
        "region": "check_regions moved Region",
        "repair": "describe_repairs labelled_regions repaired_area RepairReport",
        "rings": "polygons_of",
    },
)
