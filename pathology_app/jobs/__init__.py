"""Runs that the web app starts: processes of their own, which outlive it, and what they leave to be looked at."""

from training.foundation.lazy import public_names

__all__, __getattr__ = public_names(
    __name__,
    {
        "commands": "Command infer_command ingest_command study_command train_command",
        "curves": "Curves epochs read_curves thinned",
        "history": "list_runs read_run run_ids RunSummary",
        "job_log": "JobLog log_of",
        "offers": "BadRunError model_ids recipes SlideFolders SLIDES_VARIABLE study_ids",
        "progress": "Progress progress_of",
        "record": "Ending Job read_job Stop",
        "start": "running_ids start_job stop_job",
        "state": "JobState JobStatus status_of",
    },
)
