"""Work on many slides: what a stage is, the runner over a cohort, the pool of processes."""

from training.foundation.lazy import public_names

__all__, __getattr__ = public_names(
    __name__,
    {
        "key": "differences is_finished Key",
        "pool": "Pool",
        "runner": "run_overlapping run_stages",
        "stage": "Stage StageReport",
        "worker_process": "begin_worker",
    },
)
