"""Clinical studies: a frozen protocol, a ledger of every slide and stage, workers that pull, a log as proof."""

from training.foundation.lazy import public_names

__all__, __getattr__ = public_names(
    __name__,
    {
        "amendments": "amend",
        "anchors": "ANCHORS_DIR countersign make_anchor trusted_hashes",
        "failures": "Failures failures_of",
        "ledger": "Counts Ledger StudyRow",
        "local_pool": "LocalPool worker_command workers_that_fit",
        "progress": "Progress progress_of",
        "protocol": "AboutStudy new_protocol study_dir",
        "readings": "Readings",
        "reproduction": "Reproduced reproduce sample",
        "remedies": "remedies_of remedy_of",
        "retries": "MAY_BE_RETRIED retry",
        "rows": "STUDY_SUBJECT slide_subject task_subject",
        "search": "NO_CODE FoundSlides SlideSearch find_slides",
        "sign_off": "Meaning SIGNATURES_SUFFIX find_false_signatures sign_report",
        "signing": "SigningKey new_key open_key read_public_key",
        "study": "Study actor_here begin_study begun_study find_ledger open_ledger open_study work_on",
        "tables": "SLIDE_STATES",
        "verify": "verify_log",
    },
)
