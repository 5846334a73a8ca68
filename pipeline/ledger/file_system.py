"""The file system that a folder is on: SQLite's write-ahead log needs shared memory, which machines do not share."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import psutil

from training.foundation.errors import BadRecipeError

NETWORK_FILE_SYSTEMS = frozenset(
    {"nfs", "nfs4", "lustre", "gpfs", "cifs", "smb", "smb2", "smb3", "smbfs", "afpfs", "ceph", "beegfs", "afs", "panfs"}
    | {"glusterfs", "fuse.glusterfs", "fuse.sshfs", "fuse.ceph", "orangefs", "pvfs2", "ocfs2", "gfs2", "9p", "ncpfs"}
    | {"webdav", "davfs", "fuse.davfs", "fuse.s3fs", "fuse.rclone", "wekafs", "vboxsf", "fuse.vmhgfs-fuse"}
)
"""As the kernel names them. Shared folders of virtual machines count: they are on another machine's disk."""


class Mount(NamedTuple):
    """A mounted file system."""

    mountpoint: str
    fstype: str


def mounts() -> list[Mount]:
    """Mounted file systems, in mount order: a later one hides an earlier one at the same mount point."""
    return [Mount(partition.mountpoint, partition.fstype) for partition in psutil.disk_partitions(all=True)]


def file_system_of(path: Path, mounted: Iterable[Mount]) -> str:
    """Name of the file system that `path` is or would be on; empty if unknown."""
    real = os.path.realpath(path)
    around = [mount for mount in mounted if os.path.commonpath([real, mount.mountpoint]) == mount.mountpoint]
    best = max(enumerate(around), key=lambda candidate: (len(candidate[1].mountpoint), candidate[0]), default=None)
    return best[1].fstype if best else ""


def check_local(path: Path, mounted: Iterable[Mount] | None = None) -> None:
    """Refuse to create or open a SQLite database where several machines may write to it.

    Raises:
        BadRecipeError: it is on a network file system.
    """
    kind = file_system_of(path, mounts() if mounted is None else mounted)
    if kind.lower() in NETWORK_FILE_SYSTEMS:
        raise BadRecipeError(
            f"{path}: is on a network file system ({kind}), where SQLite's write-ahead log loses data. Put the "
            'ledger on a local disk ([study] ledger = "/local/path/gemslide.db" in gemslide.toml), or, for workers on '
            'several machines, use PostgreSQL ([study] ledger = "postgresql://user@host/database").'
        )
