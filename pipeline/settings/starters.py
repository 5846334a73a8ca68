"""Settings of what starts a study's workers elsewhere: sections of `gemslide.toml`.

A project may have been sent by somebody, and these settings end up in job scripts that run as the person who starts
them: no value here can name a program, a file or another person's address. What a site needs beyond that belongs to
the person: Dask's own settings (`~/.config/dask/`), or a line added to the printed script by hand.
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
    """`[study.slurm]`: what each job asks of SLURM; left out, SLURM's own defaults."""

    partition: str = Field("", pattern=rf"{_WORDS}|^$")
    account: str = Field("", pattern=rf"^({_WORD})?$")
    walltime: str = Field("", pattern=r"^(\d{1,3}-)?\d{1,4}(:\d{2}){0,2}$|^$")
    """Of one job, as SLURM writes it: minutes, hours:minutes:seconds or days-hours. Workers end before it, in good
    order."""
    cores: int = Field(4, ge=1, le=4096)
    """Of one worker."""
    memory_gb: int = Field(8, ge=1, le=65_536)
    """Of one worker, in GiB."""
    gpus: int = Field(0, ge=0, le=64)
    """Of one worker; name them in `--devices`."""
    extra: tuple[Annotated[str, Field(pattern=rf"^--({'|'.join(EXTRA)})(={_VALUE})?$", max_length=200)], ...] = ()
    """Further options of sbatch, such as `--qos=long`; those that name no file and no program."""


class DaskConfig(Section):
    """`[study.dask]`"""

    resources: dict[Annotated[str, Field(pattern=rf"^{_WORD}$")], Annotated[float, Field(gt=0)]] = Field({})
    """Resources that one study worker takes of a Dask worker that was started with `--resources`."""
