"""Options for SLURM, and the script of an array of jobs, each of which runs one of a study's workers."""

from __future__ import annotations

import shlex
from pathlib import Path

from pipeline.settings.site import LEDGER_VARIABLE
from pipeline.settings.starters import SlurmConfig
from pipeline.study.starting.crash_loop import EARLY_S, MAX_EARLY_ENDS
from pipeline.study.starting.local_pool import worker_command
from pipeline.study.starting.start_request import LOGS_DIR, StartRequest
from pipeline.units import RESEARCH_USE
from training.foundation.words.counts import counted

GRACE_S = 90
"""Before the time limit, for a worker to return its task. SLURM counts in minutes."""


def directives(config: SlurmConfig, study_id: str) -> list[str]:
    """Options of sbatch for one worker of a study."""
    requested = {"partition": config.partition, "account": config.account, "time": config.walltime}
    requested |= {"ntasks": "1", "cpus-per-task": str(config.cores), "mem": f"{config.memory_gb}G"}
    requested |= {"gres": f"gpu:{config.gpus}" if config.gpus else ""}
    named = [f"--{name}={value}" for name, value in requested.items() if value]
    return [f"--job-name=gemslide-{study_id}", *named, *config.extra]


def array_script(order: StartRequest, config: SlurmConfig, workers: int) -> str:
    """A script for sbatch: `workers` jobs, each of them one worker of the study until it is over.

    No path is in a line that SLURM reads, since SLURM has its own quoting rules.
    """
    options = [
        *directives(config, order.study_id),
        f"--array=1-{workers}",
        f"--output=gemslide-{order.study_id}-%A_%a.out",
        "--open-mode=append",
        "--requeue",
        f"--signal=B:USR1@{GRACE_S}",
    ]
    return _SCRIPT.format(
        options="\n".join(f"#SBATCH {option}" for option in options),
        about=f"{counted(workers, 'worker')} of the study {order.study_id}. {RESEARCH_USE}",
        ledger=_LEDGER if order.has_ledger_variable else "",
        logs=shlex.quote(str(Path(order.folder) / LOGS_DIR)),
        cores=config.cores,
        command=shlex.join(worker_command(order.study_id, order.project, order.devices)),
        early_s=round(EARLY_S),
        max_early_ends=MAX_EARLY_ENDS,
    )


_LEDGER = f"""\
# It may hold a password, so it is not written here; sbatch passes the environment on.
: "${{{LEDGER_VARIABLE}:?export {LEDGER_VARIABLE} before sbatch, and do not let sbatch drop it by --export}}"
"""

_SCRIPT = """\
#!/bin/bash
{options}

# {about}
set -u
{ledger}logs={logs}
job="${{SLURM_ARRAY_JOB_ID:-${{SLURM_JOB_ID:-0}}}}_${{SLURM_ARRAY_TASK_ID:-0}}"
echo "$HOSTNAME: see $logs/slurm-$job.log"
mkdir -p -- "$logs" && exec >> "$logs/slurm-$job.log" 2>&1 || exit 1
export OMP_NUM_THREADS="${{SLURM_CPUS_PER_TASK:-{cores}}}"

# At the time limit (USR1) the worker returns its task and the job is requeued;
# when the job is cancelled or preempted (TERM), the worker returns its task.
worker='' asked=''
end() {{ asked=$1; [ -z "$worker" ] || kill -TERM "$worker" 2> /dev/null; }}
trap 'end limit' USR1
trap 'end cancel' TERM INT

# A worker that died is started again, unless workers keep ending at once.
early=0
while :; do
    began=$SECONDS
    {command} &
    worker=$!
    [ -z "$asked" ] || kill -TERM "$worker"
    while :; do  # a signal ends the waiting, not the worker
        wait "$worker"
        code=$?
        kill -0 "$worker" 2> /dev/null || break
    done
    if [ "$code" -eq 0 ] || [ -n "$asked" ]; then break; fi
    if [ $((SECONDS - began)) -lt {early_s} ]; then early=$((early + 1)); else early=0; fi
    if [ "$early" -ge {max_early_ends} ]; then break; fi
done
if [ "$asked" = limit ]; then scontrol requeue "$job"; fi
exit "$code"
"""
