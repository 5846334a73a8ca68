"""What people said of slides and looked at: annotations, judged hotspots, reviews, coverage; each change is logged."""

from training.foundation.lazy import public_names

__all__, __getattr__ = public_names(
    __name__,
    {
        "annotation": "Annotation Draft KINDS new_id",
        "combining": "joined split_by",
        "exchange": "exported features_of import_file Imported",
        "reading": "annotations_of Changes changes_since class_colours find_annotations some_annotations",
        "outlines": "OutlineRow outlines_since",
        "saving": "MAX_DRAFTS save Saved",
        "shapes": "shape_of",
        "coverage": "Coverage CoverageGrid grid_for Look tissue_cells",
        "coverage_store": "coverage_of save_looks",
        "hotspot_reviews": "hotspot_states HotspotKey judge_hotspots STATES",
        "looking": "Looking",
        "slide_reviews": "add_review reviews_of SlideReview VERDICTS",
        "verify": "verify_ledger verify_reviews",
    },
)
