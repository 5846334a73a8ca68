"""`python -m pathology_app.jobs.supervisor JOB_ID`: one run, from its start to its end, whatever happens to the app.

The app writes to standard input what to run, and reads from standard output whether it runs. The supervisor keeps the
run's log, ends the run when its stop file appears (no process is signalled by a number from a file), and records how it
ended. When the supervisor is killed, the run ends as well.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
from pydantic import BaseModel, Field

from pathology_app.jobs.log_writer import LogWriter
from pathology_app.jobs.record import MAX_SLIDE_IDS, Ending, Job, Verb, job_path, utc_now, write_record
from pathology_app.jobs.state import HEARTBEAT_S, name_of_this_process
from pipeline.project import Project
from pipeline.settings.site import WITHIN_VARIABLE
from training.foundation.errors import GemslideError
from training.foundation.process import die_with_parent
from training.foundation.publish import explain_unwritable
from training.foundation.run_record import RUN_ID_VARIABLE, RecordFile
from training.foundation.words.names import is_name

GRACE_S = 60.0
"""From Ctrl+C until the run is killed; training waits up to 40 s for its ranks."""
_POLL_S = 0.1
_LAST_WORDS_S = 5.0
_NICENESS = 10
"""People who are viewing slides come first."""
_ENVIRONMENT = {
    "PYTHONSAFEPATH": "1",  # no module is imported from the project's folder: the project may be anybody's
    "PYTHONUNBUFFERED": "1",
    "NO_COLOR": "1",
    "COLUMNS": "1000",  # a name broken over two lines could not be removed from the log
    "TERMINAL_WIDTH": "1000",
}
_RECORDED = ("ingest", "train", "infer")
"""Verbs that record one run, under the job's id."""


class JobRequest(BaseModel):
    """The app's request to start a run.

    Attributes:
        argv: the command line after `gemslide`.
        shown_argv: the same, as the record may show it.
        hidden, kept: as in `LogWriter`.
        within: folders in which the run may read slides.
    """

    project: Path
    job_id: str
    verb: Verb
    argv: tuple[str, ...]
    shown_argv: tuple[str, ...]
    about: str
    by: str
    slides: int | None = None
    hidden: tuple[Path, ...] = ()
    kept: tuple[str, ...] = ()
    grace_s: float = Field(GRACE_S, ge=0)
    within: tuple[str, ...]


class Supervisor:
    """Watches over one run."""

    def __init__(self, order: JobRequest) -> None:
        self._order = order
        self._project = Project(order.project)
        self._stop_path = job_path(self._project, order.job_id, "stop.json")
        self._is_told = False
        self._is_killed = False

    def begin(self) -> None:
        """Write the record and start the run.

        Raises:
            DiskFullError: no room for its record or log. OSError: it cannot be started.
        """
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._told)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        order, jobs_dir = self._order, self._project.jobs_dir
        self._record_path = job_path(self._project, order.job_id)
        log_path = job_path(self._project, order.job_id, "log")
        with explain_unwritable(log_path):
            jobs_dir.mkdir(parents=True, exist_ok=True)
            # Only its owner may read it: a run's messages may reveal more than its record.
            self._log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            self._end_file = RecordFile(jobs_dir, f"{order.job_id}.end")
            write_record(self._record_path, self._job())
            self._process = self._start()
        except (OSError, GemslideError):  # then the run does not exist
            self._record_path.unlink(missing_ok=True)
            log_path.unlink()
            raise
        assert self._process.stdout
        self._writer = LogWriter(self._process.stdout, self._log, self._project, order.hidden, order.kept)
        self._writer.start()

    def _job(self) -> Job:
        order = self._order
        return Job(
            job_id=order.job_id,
            verb=order.verb,
            argv=order.shown_argv,
            about=order.about,
            by=order.by,
            utc=utc_now(),
            slides=order.slides,
            slide_ids=tuple(filter(is_name, order.kept))[:MAX_SLIDE_IDS],  # others are parts of file names
            process=name_of_this_process(),
        )

    def _start(self) -> subprocess.Popen[bytes]:
        within = {WITHIN_VARIABLE: json.dumps(self._order.within)}
        names = {RUN_ID_VARIABLE: self._order.job_id} if self._order.verb in _RECORDED else {}
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "pipeline", *self._order.argv],
            cwd=self._project.root,
            env={**os.environ, **names, **within, **_ENVIRONMENT},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_begin_run,
        )

    def leave_the_app(self) -> None:
        """Keep none of the app's pipes and files open; errors from here on go to the log."""
        nothing = os.open(os.devnull, os.O_RDWR)
        for number, target in ((0, nothing), (1, nothing), (2, self._log)):
            os.dup2(target, number)
        os.close(nothing)

    def watch(self) -> None:
        """Wait for the run to end, or end it; then record how it ended."""
        asked_at: float | None = None
        beat_at = time.monotonic()
        while not self._has_ended():
            now = time.monotonic()
            if asked_at is None and (self._is_told or self._stop_path.exists()):
                asked_at, self._is_told = now, True
                self._signal(signal.SIGINT)
            if asked_at is not None and not self._is_killed and now - asked_at >= self._order.grace_s:
                self._kill()
            if now - beat_at >= HEARTBEAT_S:
                beat_at = now
                self._beat()
            time.sleep(_POLL_S)
        if self._process.returncode is None:
            self._signal(signal.SIGKILL)  # anything left in the run's session, while the run is not reaped yet
        exit_code = self._process.wait()
        self._writer.join(_LAST_WORDS_S)
        self._writer.close()
        ending = Ending(utc=utc_now(), exit_code=exit_code, is_stopped=self._is_told, is_killed=self._is_killed)
        self._end_file.write(ending.model_dump())

    def _told(self, *_: object) -> None:
        self._is_told = True

    def _has_ended(self) -> bool:
        """Whether the run has ended. It is not reaped where possible: a zombie's id goes to no other process."""
        if not hasattr(os, "waitid"):
            return self._process.poll() is not None
        return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None

    def _signal(self, number: int) -> None:
        try:
            os.killpg(self._process.pid, number)
        except (ProcessLookupError, PermissionError):  # only a zombie is left
            return

    def _kill(self) -> None:
        """Kill the whole run, including processes in separate sessions, such as ranks."""
        self._is_killed = True
        try:
            children = psutil.Process(self._process.pid).children(recursive=True)
        except psutil.Error:
            children = []
        self._signal(signal.SIGKILL)
        for process in children:
            try:
                process.kill()
            except psutil.Error:
                continue

    def _beat(self) -> None:
        """Show that the run is alive to other computers and containers, which cannot see this process."""
        try:
            os.utime(self._record_path)
        except OSError:
            return


def _begin_run() -> None:
    """Prepare the new process before it becomes the run: it ends with the supervisor, and reacts to Ctrl+C whatever the
    app's own parent has set."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    die_with_parent()
    os.nice(_NICENESS)


def main() -> int:
    """Start the run, report that, and watch it."""
    supervisor = Supervisor(JobRequest.model_validate_json(sys.stdin.buffer.read()))
    try:
        supervisor.begin()
    except GemslideError as error:
        return _answer(code=error.code, message=str(error))
    except OSError as error:
        return _answer(code="failed_process", message=f"the run could not be started: {error.strerror or error}.")
    _answer(code="", message="")
    supervisor.leave_the_app()
    supervisor.watch()
    return 0


def _answer(*, code: str, message: str) -> int:
    """Answer the app, which waits for one line and nothing more. Returns the exit code."""
    sys.stdout.write(json.dumps({"code": code, "message": message}) + "\n")
    sys.stdout.flush()
    return 1 if code else 0


if __name__ == "__main__":
    sys.exit(main())
