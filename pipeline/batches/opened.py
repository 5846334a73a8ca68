"""Devices that stay open from slide to slide."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Generic

from pipeline.batches.devices import Devices, ManyDevices, Network, OneDevice
from pipeline.batches.where import OTHER_RANK, RunOn, connection_to


class Opened(Generic[Network]):
    """One network's devices, which stay open until others are opened. Thread-safe."""

    def __init__(self) -> None:
        self._key: Hashable = None
        self._devices: Devices[Network] | None = None
        self._opening = threading.Lock()

    def open(
        self,
        names: tuple[str, ...],
        load: Callable[[RunOn], Network],
        run_on: Callable[[str], RunOn],
        *,
        key: Hashable,
    ) -> Devices[Network]:
        """Open the devices that a network runs on.

        Args:
            names: as `named_devices` returns them; "rank:1" is the second process of torchrun.
            run_on: how it runs on a device, by name.
            key: all that the network depends on; another key closes the devices and opens them again.

        Raises:
            UnreadableError: the network is damaged. BadRecipeError: devices that it cannot run on.
        """
        with self._opening:
            if self._devices is None or self._key != (names, key):
                self._close()
                self._devices, self._key = _opened(names, load, run_on), (names, key)
            return self._devices

    def close(self) -> None:
        """End the processes of open devices."""
        with self._opening:
            self._close()

    def _close(self) -> None:
        if isinstance(self._devices, ManyDevices):
            self._devices.end()
        self._devices = self._key = None


def _opened(
    names: tuple[str, ...], load: Callable[[RunOn], Network], run_on: Callable[[str], RunOn]
) -> Devices[Network]:
    here = tuple(run_on(name) for name in names if not name.startswith(OTHER_RANK))
    others = [name for name in names if name.startswith(OTHER_RANK)]
    if len(here) == 1 and not others:
        return OneDevice(load(here[0]))
    return ManyDevices(load, here, [connection_to(name, is_caller=True) for name in others])


def identity_of(path: Path) -> tuple[int, ...]:
    """Numbers that change when a file does; none where it cannot be read, which is reported when it is loaded."""
    try:
        status = path.stat()
    except OSError:
        return ()
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
