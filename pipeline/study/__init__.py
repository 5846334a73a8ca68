"""Clinical studies: a frozen protocol, a ledger of every slide and stage, workers that pull, a log as proof."""

from training.foundation.lazy import public_names

__all__, __getattr__ = public_names(
    __name__,
    {
        "amendments": "amend",
        "anchors": "ANCHORS_DIR countersign make_anchor trusted_hashes Verified verify_log",
        "blinding": "Blinded blinded_slides may_show_predictions",
        "ending": "ended_by_signals",
        "erasure": "Erased erase",
        "failures": "Failures failures_of",
        "leases": "Ended Lease Owner",
        "ledger": "append canonical Counts digest Ledger StudyRow utc_now",
        "opening": "actor_here Database find_ledger open_ledger",
        "priorities": "prioritize",
        "privacy.export": "export_study",
        "privacy.keyed": "open_pseudonym_key",
        "progress": "Progress progress_of",
        "project_log": "append_to_project Change LogFilter log_in_project project_history utc_now",
        "protocol": "AboutStudy load_protocol new_protocol PROTOCOL_FILE study_dir",
        "questions": "Answer MAX_TEXT Question ReadingConfig",
        "reading_progress": "ADJUDICATION lay_out progress_of_readers ReaderProgress Readings readings_of "
        "readings_of_reader readers_of_slides readings_of_slide studies_of_reader",
        "report.publish": "write_report",
        "reproduction": "Reproduced reproduce sample",
        "remedies": "remedies_of remedy_of",
        "retries": "MAY_BE_RETRIED retry",
        "rows": "hash_row PROJECT_LOG reading_subject STUDY_SUBJECT slide_subject task_subject",
        "search": "NO_CODE FoundSlides SlideSearch find_slides slide_states slides_seen study_slide_ids",
        "sessions": "Attempts key_of SEEN_AGAIN_S Session Sessions WINDOW_S",
        "sign_off": "Meaning SIGNATURES_SUFFIX find_false_signatures sign_report",
        "signing": "SigningKey new_key open_key read_public_key",
        "slurm": "array_script",
        "starters": "check_place order_for start_workers",
        "study": "Study begin_study begun_study check_leakage open_study patiently this_process work_on",
        "tables": "audit metadata SLIDE_STATES",
    },
)
