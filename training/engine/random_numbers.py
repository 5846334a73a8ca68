"""Random numbers in forward (dropout), the same however a network is spread.

Before each block the generators are seeded from (seed, step, micro-batch, block). So a mask depends on nothing else:
not on the strategy, the cuts, the number of ranks, or on whether the block runs a second time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from struct import pack

import torch


@dataclass(frozen=True)
class Draws:
    """Where the random numbers of one micro-batch begin."""

    seed: int
    step: int
    microbatch: int

    def start_block(self, block: int, device: torch.device) -> None:
        """Seed the generators of the CPU and of the device for one block of the network."""
        key = pack("<4q", self.seed, self.step, self.microbatch, block)
        seed = int.from_bytes(blake2b(key, digest_size=8).digest(), "little")
        torch.default_generator.manual_seed(seed)
        if device.type == "cuda":
            torch.cuda.default_generators[_index(device)].manual_seed(seed)


@contextmanager
def random_numbers_kept(device: torch.device) -> Iterator[None]:
    """What runs inside draws as it likes; the program around it goes on as if nothing had been drawn."""
    devices = [_index(device)] if device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        yield


def _index(device: torch.device) -> int:
    return torch.cuda.current_device() if device.index is None else device.index
