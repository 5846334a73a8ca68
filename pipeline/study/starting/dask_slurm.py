"""A Dask cluster whose workers are SLURM jobs, by dask-jobqueue."""

from __future__ import annotations

import copy
import logging
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import dask.config
from distributed import Client
from distributed.security import Security

from pipeline.errors import ProcessFailedError
from pipeline.settings.starters import SlurmConfig
from pipeline.study.starting.crash_loop import MAX_EARLY_ENDS
from pipeline.study.starting.slurm import directives
from pipeline.study.starting.start_request import LOGS_DIR
from pipeline.study.work.shutdown import restored_signals
from training.foundation.errors import BadRecipeError
from training.foundation.words.counts import counted

with restored_signals():  # on import, it takes over Ctrl+C
    from dask_jobqueue import SLURMCluster

LOOK_S = 20.0
"""Interval between checks for jobs that have ended."""
_ANSWER_S = 20.0
"""Time that squeue may take."""


class StudyCluster(SLURMCluster):  # type: ignore[misc]  # it has no types
    """Jobs with one study worker each, over encrypted connections.

    dask-jobqueue writes paths into its scripts unquoted. So a job changes to the study's folder first, by a line that
    quotes it, and finds everything else from there.

    Args:
        config: what a job requests from SLURM; the user's own Dask settings may add to it.
        folder: of the study; all machines see it.
    """

    def __init__(self, config: SlurmConfig, study_id: str, folder: Path) -> None:
        self._folder = folder
        (folder / LOGS_DIR).mkdir(exist_ok=True)
        self._keys = tempfile.TemporaryDirectory(dir=folder, prefix=".tls-")
        own = dask.config.get("jobqueue.slurm", {})
        log = f'{LOGS_DIR}/slurm-"$SLURM_JOB_ID".log'
        try:
            super().__init__(
                python=shlex.quote(sys.executable),
                cores=1,  # Dask's threads, each of which holds one study worker
                processes=1,
                memory=f"{config.memory_gb} GiB",
                job_directives_skip=["#SBATCH"],  # those of dask-jobqueue; ours are the same as in the array's script
                job_extra_directives=[
                    *directives(config, study_id),
                    f"--output=gemslide-{study_id}-%j.out",
                    *(own.get("job-extra-directives") or ()),
                ],
                job_script_prologue=[
                    f"cd -- {shlex.quote(str(folder))} && exec >> {log} 2>&1 || exit 1",
                    *(own.get("job-script-prologue") or ()),
                ],
                security=Security.temporary(),
                scheduler_options={"dashboard_address": "127.0.0.1:0"},
                silence_logs=logging.ERROR,
            )
        except BaseException:
            self._keys.cleanup()
            raise

    def _get_worker_security(self, security: Security) -> Security:
        """Keys in files that only this user can read, named relative to the study's folder."""
        copied = copy.copy(security)
        for name, pem in security.get_tls_config_for_role("worker").items():
            if pem:
                path = Path(self._keys.name) / f"{name}.pem"
                path.write_text(pem, encoding="ascii")
                setattr(copied, f"tls_{name}" if name == "ca_file" else f"tls_worker_{name}", self._from_folder(path))
        return copied

    def _from_folder(self, path: Path) -> str:
        return str(path.relative_to(self._folder))

    def submit(self, jobs: int) -> None:
        """Submit the missing jobs. Raises RuntimeError with sbatch's message."""
        self.sync(self._submit, jobs)

    async def _submit(self, jobs: int) -> None:
        while len(self.worker_spec) < jobs:
            self.worker_spec.update(self.new_worker_spec())
        try:
            await self._correct_state()
        except (RuntimeError, ValueError) as error:  # ValueError: sbatch returned no job id
            # dask-jobqueue keeps them as if they had been accepted.
            for name in [name for name, job in self.workers.items() if not job.job_id]:
                self._created.discard(self.workers.pop(name))
            raise RuntimeError(str(error)) from error

    def forget_ended(self) -> list[str]:
        """Forget jobs that SLURM ended before their worker started; none if that is not known.

        Returns:
            their ids. They are missing from now on.
        """
        present = self.scheduler_info["workers"].values()
        here = {worker["name"] for worker in present}
        waiting = {job.job_id: name for name, job in self.workers.items() if name not in here and job.job_id}
        ended = [job_id for job_id in waiting if job_id not in _jobs_in_slurm(waiting)] if waiting else []
        for job_id in ended:
            self._created.discard(self.workers.pop(waiting[job_id]))
        return ended

    def remove_keys(self) -> None:
        self._keys.cleanup()


def _jobs_in_slurm(job_ids: Iterable[str]) -> set[str]:
    """Jobs that are pending or running; all of them if SLURM does not say."""
    command = ["squeue", "--noheader", "--format=%i", f"--jobs={','.join(job_ids)}"]
    try:
        listed = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_ANSWER_S)
    except (OSError, subprocess.TimeoutExpired):
        return set(job_ids)
    # For jobs that ended a while ago it says "Invalid job id specified", and fails.
    is_known = listed.returncode == 0 or "Invalid job id" in listed.stderr
    return set(listed.stdout.split()) if is_known else set(job_ids)


@contextmanager
def slurm_cluster(
    config: SlurmConfig, study_id: str, folder: Path, jobs: int, tell: Callable[[str], None]
) -> Iterator[tuple[Client, Callable[[], None]]]:
    """Jobs that are submitted now, and again when one has ended.

    Yields:
        a client, and a function to call now and then to resubmit.

    Raises:
        BadRecipeError: there is no SLURM here, or it does not accept such a job.
    """
    if not shutil.which("sbatch"):
        raise BadRecipeError(
            "--on slurm: there is no `sbatch` here. Start this on a machine that can submit jobs, or use --on "
            "local or dask."
        )
    cluster = StudyCluster(config, study_id, folder)
    try:
        with cluster, Client(cluster) as client:
            try:
                cluster.submit(jobs)
            except RuntimeError as error:
                raise BadRecipeError(
                    f"--on slurm: {_sbatch_message(error)}. See [study.slurm] in gemslide.toml."
                ) from error
            tell(f"{counted(jobs, 'job')} submitted; logs are in {folder / LOGS_DIR}.")
            yield client, _Resubmitter(cluster, jobs, folder, tell)
    finally:
        cluster.remove_keys()


class _Resubmitter:
    """Resubmits jobs that have ended, for example at their time limit."""

    def __init__(self, cluster: StudyCluster, jobs: int, folder: Path, tell: Callable[[str], None]) -> None:
        self._cluster, self._jobs, self._folder, self._tell = cluster, jobs, folder, tell
        self._looked = time.monotonic()
        self._failed = 0

    def __call__(self) -> None:
        """Resubmit ended jobs. Raises ProcessFailedError: one job after the other ended before its worker started."""
        if time.monotonic() - self._looked < LOOK_S:
            return
        self._looked = time.monotonic()
        ended = self._cluster.forget_ended()
        self._failed = 0 if self._cluster.scheduler_info["workers"] else self._failed + len(ended)
        if self._failed >= MAX_EARLY_ENDS:
            raise ProcessFailedError(
                f"{self._failed} jobs ended before their workers started, the last {ended[-1]}. Their output is in "
                f"{self._folder / LOGS_DIR}, or in gemslide-*.out here; `sacct` shows how they ended."
            )
        for job_id in ended:
            self._tell(f"job {job_id} ended before its worker started; submitting another one.")
        try:
            self._cluster.submit(self._jobs)
        except RuntimeError as error:  # SLURM is busy; running jobs continue
            self._tell(f"SLURM did not accept a job: {_sbatch_message(error)}; trying again.")


def _sbatch_message(error: RuntimeError) -> str:
    """The message of sbatch, from all that dask-jobqueue reports about its call."""
    output = str(error).partition("stderr:\n")[2].strip() or str(error)
    return output.splitlines()[-1][:500]
