"""Clinical studies: a frozen protocol, a ledger of every slide and stage, workers that pull, a log as proof."""

from training.foundation.lazy import public_names

__all__, __getattr__ = public_names(
    __name__,
    {
        "amendments": "amend",
        "anchors": "ANCHORS_DIR countersign make_anchor trusted_hashes",
        "ending": "ended_by_signals",
        "erasure": "Erased erase",
        "failures": "Failures failures_of",
        "leakage": "check_leakage",
        "leases": "Ended Lease",
        "ledger": "Counts Ledger StudyRow",
        "local_pool": "LocalPool worker_command workers_that_fit",
        "patience": "patiently",
        "priorities": "prioritize",
        "privacy.export": "export_study",
        "privacy.keyed": "open_pseudonym_key",
        "progress": "Progress progress_of",
        "protocol": "AboutStudy new_protocol study_dir",
        "readings": "Readings",
        "report.publish": "write_report",
        "reproduction": "Reproduced reproduce sample",
        "remedies": "remedies_of remedy_of",
        "retries": "MAY_BE_RETRIED retry",
        "rows": "STUDY_SUBJECT slide_subject task_subject",
        "search": "NO_CODE FoundSlides SlideSearch find_slides",
        "sign_off": "Meaning SIGNATURES_SUFFIX find_false_signatures sign_report",
        "signing": "SigningKey new_key open_key read_public_key",
        "slurm": "array_script",
        "starters": "check_place order_for start_workers",
        "study": "Study actor_here begin_study begun_study find_ledger open_ledger open_study work_on",
        "tables": "SLIDE_STATES",
        "verify": "verify_log",
    },
)
