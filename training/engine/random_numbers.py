"""Random numbers in forward (dropout), the same however a network is distributed.

Before each block the generators are seeded from (seed, step, micro-batch, block). So a mask depends on nothing else:
not on the strategy, the cuts, the number of ranks, or whether the block runs a second time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from struct import pack

import torch

_GOLDEN = 0x9E3779B97F4A7C15
"""Odd, so that no two blocks of a micro-batch share a seed."""


@dataclass(frozen=True)
class Draws:
    """Seeding of the random numbers of one micro-batch."""

    seed: int
    step: int
    microbatch: int

    def start_block(self, block: int, device: torch.device) -> None:
        """Seed the generators of the CPU and of the device for one block of the network."""
        self._start(block, device)

    def start_input(self) -> None:
        """Seed the CPU's generator for the code that makes the network's input, if that draws from it."""
        self._start(-1, torch.device("cpu"))

    def _start(self, place: int, device: torch.device) -> None:
        seed = (self._first + place * _GOLDEN) % 2**64
        torch.default_generator.manual_seed(seed)
        if device.type == "cuda":
            torch.cuda.default_generators[_index(device)].manual_seed(seed)

    @cached_property
    def _first(self) -> int:
        key = pack("<3q", self.seed, self.step, self.microbatch)
        return int.from_bytes(blake2b(key, digest_size=8).digest(), "little")


@contextmanager
def random_numbers_kept(device: torch.device) -> Iterator[None]:
    """Let code inside draw random numbers without affecting the program around it."""
    devices = [_index(device)] if device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        yield


def _index(device: torch.device) -> int:
    return torch.cuda.current_device() if device.index is None else device.index
