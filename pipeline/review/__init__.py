"""What people said of slides and looked at: hotspots judged, slides reviewed, coverage; each one logged."""

from training.foundation.lazy import public_names

__all__, __getattr__ = public_names(
    __name__,
    {
        "coverage": "Coverage CoverageGrid grid_for Look tissue_cells",
        "coverage_store": "coverage_of save_looks",
        "hotspot_reviews": "hotspot_states HotspotKey judge_hotspots STATES",
        "looking": "Looking",
        "slide_reviews": "add_review reviews_of SlideReview VERDICTS",
        "verify": "verify_reviews",
    },
)
