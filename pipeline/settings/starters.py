"""Settings for starting a study's workers elsewhere: sections of `gemslide.toml`.

A project may come from someone else, and these settings end up in job scripts that run as the person who starts them:
no value here can name a program, a file or another person's address. A site's further needs are set by that person, in
Dask's own settings (`~/.config/dask/`) or by hand in the printed script.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from training.foundation.settings import Section

_WORD = r"[A-Za-z0-9][A-Za-z0-9_.+-]*"
_WORDS = rf"^{_WORD}(,{_WORD})*$"
_VALUE = r"[A-Za-z0-9_.,:@+*&|()\[\]-]+"
EXTRA = (
    "comment", "constraint", "exclude", "exclusive", "gres", "hint", "licenses", "mem-per-cpu", "nice", "nodelist",
    "qos", "reservation", "threads-per-core", "tmp", "wckey",
)  # fmt: skip
"""Options of sbatch that a project may set."""


class SlurmConfig(Section):
    """`[study.slurm]`: resources that each job requests from SLURM; if left out, SLURM's own defaults."""

    partition: str = Field("", pattern=rf"{_WORDS}|^$")
    account: str = Field("", pattern=rf"^({_WORD})?$")
    walltime: str = Field("", pattern=r"^(\d{1,3}-)?\d{1,4}(:\d{2}){0,2}$|^$")
    """Time limit of one job in SLURM's format: minutes, hours:minutes:seconds or days-hours. Workers shut down cleanly
    before it."""
    cores: int = Field(4, ge=1, le=4096)
    """Cores of one worker."""
    memory_gb: int = Field(8, ge=1, le=65_536)
    """Memory of one worker, in GiB."""
    gpus: int = Field(0, ge=0, le=64)
    """GPUs of one worker; name them in `--devices`."""
    extra: tuple[Annotated[str, Field(pattern=rf"^--({'|'.join(EXTRA)})(={_VALUE})?$", max_length=200)], ...] = ()
    """Further options of sbatch, such as `--qos=long`; only those that name neither a file nor a program."""


class DaskConfig(Section):
    """`[study.dask]`"""

    resources: dict[Annotated[str, Field(pattern=rf"^{_WORD}$")], Annotated[float, Field(gt=0)]] = Field({})
    """Resources that one study worker takes from a Dask worker started with `--resources`."""
