"""Which slides belong together: manifest, split by patient, pseudonyms."""

from training.foundation.lazy import public_names

__all__, __getattr__ = public_names(
    __name__,
    {
        "manifest": "ANNOTATION_SUFFIXES Cohort COLUMNS init_cohort load_cohort MAX_MANIFEST_BYTES SLIDE_SUFFIXES "
        "SlideEntry",
        "duplicates": "find_changes",
        "pseudonyms": "project_around pseudonymize_cohort",
        "split": "assign_splits",
    },
)
