"""Slide files into stores."""

from training.foundation.lazy import public_names

__all__, __getattr__ = public_names(
    __name__,
    {
        "add_checksums": "add_checksums",
        "cohort_check": "check_entries",
        "ingest": "ingest_slide IngestRequest",
        "source_comparison": "verify_store",
        "stage": "IngestIfMissing IngestStage",
    },
)
