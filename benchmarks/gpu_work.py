"""Work of the processes of `benchmarks.gpu_check`."""

from __future__ import annotations

import hashlib
import math
import pickle
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import psutil
import torch
import torch.multiprocessing
from torch import Tensor, nn

from benchmarks.roofline import count_work, rates_of, synchronize
from training.engine import Engine, LostPeerError, Ranks, Recompute, TensorBatch, alone, connect_ranks, make_plan
from training.engine.partition import block_costs
from training.engine.plan import Plan
from training.engine.predict import predict_memory
from training.engine.stage import Precision
from training.models.resnet_v2 import resnet_v2_blocks
from training.recipe.optimisation import cross_entropy
from training.recipe.plan import EmptyBatch

STRATEGIES = ("mp-basic", "master", "gpipe", "1f1b", "chimera")
POLICIES = {
    "keep": Recompute(),
    "norm": Recompute(rest="norm"),
    "recompute every 2": Recompute(2),
    "offload": Recompute(rest="offload"),
}
SIDES = (
    ("single", "keep"), ("single", "norm"), ("single", "recompute every 2"), ("single", "offload"),
    ("mp-basic", "keep"), ("master", "keep"), ("master", "recompute every 2"), ("gpipe", "keep"), ("1f1b", "keep"),
    ("chimera", "keep"),
)  # fmt: skip
SMALL_DEPTH, SMALL_PX = 20, 64
SHARE_OF_MEMORY = 0.5
"""Share of the GPU's memory per rank: two ranks share it."""
STEP_PX = 64
ROUNDS = 7


@dataclass(frozen=True)
class Setting:
    """Device and network to check."""

    device: torch.device
    depth: int
    side_px: int

    @property
    def network(self) -> str:
        return f"ResNet-{self.depth}-v2, one tile of {self.side_px} px"

    def name(self) -> str:
        if self.device.type != "cuda":
            return str(self.device)
        return f"{torch.cuda.device_count()} x {torch.cuda.get_device_name(0)}"

    def memory_bytes(self) -> int:
        """Memory per rank; without a GPU a small number that ends the program soon."""
        if self.device.type != "cuda":
            return 200 * 2**20
        return int(SHARE_OF_MEMORY * torch.cuda.get_device_properties(0).total_memory)


# --- processes -------------------------------------------------------------------------------------


def run(
    num_ranks: int,
    task: Callable[..., Any],
    setting: Setting,
    *args: Any,
    limit_s: float,
    backend: Literal["gloo", "nccl"] = "gloo",
) -> list[Any]:
    """Results of `task(ranks, setting, *args)` on each of some fresh processes.

    Raises:
        TimeoutError: the processes took longer than the limit, and were killed.
        RuntimeError: a process failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        context = torch.multiprocessing.spawn(
            _rank, (num_ranks, folder, backend, task, setting, args), nprocs=num_ranks, join=False
        )
        until = time.monotonic() + limit_s
        try:
            while not context.join(timeout=1.0):
                if time.monotonic() > until:
                    raise TimeoutError(f"{num_ranks} ranks over {backend} took longer than {limit_s:g} s")
        finally:
            for process in context.processes:
                process.kill()
        return [pickle.loads((Path(folder) / f"rank{rank}").read_bytes()) for rank in range(num_ranks)]


def _rank(
    rank: int,
    num_ranks: int,
    folder: str,
    backend: Literal["gloo", "nccl"],
    task: Callable[..., Any],
    setting: Setting,
    args: tuple[Any, ...],
) -> None:
    device = setting.device
    if device.type == "cuda":
        own = rank % torch.cuda.device_count() if backend == "nccl" else 0
        device = torch.device("cuda", own)
    ranks = connect_ranks(
        timeout_s=60, device=device, backend=backend, init_method=f"file://{folder}/meeting-point",
        rank=rank, num_ranks=num_ranks,
    )  # fmt: skip
    setting = Setting(device, setting.depth, setting.side_px)
    (Path(folder) / f"rank{rank}").write_bytes(pickle.dumps(task(ranks, setting, *args)))
    ranks.close()


# --- equality --------------------------------------------------------------------------------------


class _DroppingBlock(nn.Module):
    """A block with dropout on its output."""

    def __init__(self, block: nn.Module):
        super().__init__()
        self.block = block
        self.dropout = nn.Dropout(0.1)

    def forward(self, value: Tensor) -> Tensor:
        return self.dropout(self.block(value))  # type: ignore[no-any-return]


def world_of_one(_: Ranks, setting: Setting) -> tuple[str, str]:
    """Digests without a group and with one of NCCL, in the same process."""
    with tempfile.TemporaryDirectory() as folder:
        torch.distributed.destroy_process_group()
        nccl = connect_ranks(
            timeout_s=60, device=setting.device, backend="nccl", init_method=f"file://{folder}/point",
            rank=0, num_ranks=1,
        )  # fmt: skip
        return digest_of(alone(), setting, "single", 1, 4, "keep"), digest_of(nccl, setting, "single", 1, 4, "keep")


def digest_of(
    ranks: Ranks, setting: Setting, strategy: str, num_stages: int, num_microbatches: int, policy: str
) -> str:
    """SHA-256 of all weights, statistics and momenta after two steps, and of the losses."""
    torch.manual_seed(0)
    blocks = [_DroppingBlock(block) for block in resnet_v2_blocks(depth=SMALL_DEPTH, num_classes=2)]
    plan = make_plan(
        strategy, costs=[1.0] * len(blocks), num_stages=num_stages, num_microbatches=num_microbatches,
        recompute=POLICIES[policy], make_optimizer=lambda named: torch.optim.SGD(named, lr=0.01, momentum=0.9),
        device=setting.device,
    )  # fmt: skip
    engine = Engine(blocks, plan, ranks=ranks)
    images = torch.randn(num_microbatches, 3, SMALL_PX, SMALL_PX, generator=torch.Generator().manual_seed(1))
    labels = (torch.arange(num_microbatches) % 2).to(setting.device)
    batch = TensorBatch(tuple((images[k : k + 1], labels[k : k + 1]) for k in range(num_microbatches)))
    results = [engine.train_step(batch, cross_entropy) for _ in range(2)]
    digest = hashlib.sha256(repr([(result.losses, result.gradient_norm) for result in results]).encode())
    for state in (engine.full_state_dict(), engine.full_optimizer_state()):
        for name, tensor in sorted(state.items()):
            digest.update(name.encode() + tensor.numpy().tobytes())
    return digest.hexdigest()


def digests_of(
    ranks: Ranks, setting: Setting, cases: Sequence[tuple[str, int, str]], num_microbatches: int
) -> list[str]:
    """Digests of several cases, one after the other in the same processes."""
    return [digest_of(ranks, setting, name, stages, num_microbatches, policy) for name, stages, policy in cases]


# --- bytes -----------------------------------------------------------------------------------------


def bytes_of_all(ranks: Ranks, setting: Setting, cases: Sequence[tuple[Precision, str]]) -> list[dict[str, Any]]:
    """Bytes of all policies, one after the other in the same process."""
    return [_bytes_of(setting, precision, policy) for precision, policy in cases]


def _bytes_of(setting: Setting, precision: Precision, policy: str) -> dict[str, Any]:
    """Live bytes of a step, and the largest growth of the allocator's memory."""
    engine = Engine(_blocks(setting), _plan(setting, precision, policy), count_bytes=True)
    batch = _batch(setting)
    engine.train_step(batch, cross_entropy)
    if setting.device.type != "cuda":
        return {"live bytes": engine.live_bytes.peak}
    torch.cuda.reset_peak_memory_stats(setting.device)
    before = torch.cuda.memory_allocated(setting.device)
    engine.train_step(batch, cross_entropy)
    grown = torch.cuda.max_memory_allocated(setting.device) - before
    live = engine.live_bytes.peak
    return {"live bytes": live, "allocator's bytes": grown, "allocator / live": round(grown / live, 3)}


def predicted_bytes(
    setting: Setting, precision: Precision, policy: str, strategy: str = "single", num_microbatches: int = 1
) -> int:
    """Live bytes of the fullest rank in such a step, on fake tensors."""
    batch = EmptyBatch(num_microbatches, 1, setting.side_px)
    plan = _plan(setting, precision, policy, strategy=strategy, num_stages=num_ranks_of(strategy))
    return max(rank.peak_bytes for rank in predict_memory(_blocks(setting), cross_entropy, batch, plan))


def num_ranks_of(strategy: str) -> int:
    return 1 if strategy == "single" else 2


# --- speed -----------------------------------------------------------------------------------------


def speeds(_: Ranks, setting: Setting) -> list[dict[str, Any]]:
    """Tiles per second of successive forwards and backwards, with the share of the roofline."""
    settings: dict[str, dict[str, Any]] = {
        "fp32": {},
        "fp32, faster kernels": {"deterministic": False},
        "bf16": {"precision": "bf16"},
        "bf16, channels_last": {"precision": "bf16", "channels_last": True},
        "bf16, channels_last, norm": {"precision": "bf16", "channels_last": True, "policy": "norm"},
        "bf16, channels_last, compiled": {"precision": "bf16", "channels_last": True, "compiled": True},
    }
    lines = []
    for name, options in settings.items():
        engine = Engine(_blocks(setting), _plan(setting, **options))
        batch = _batch(setting)
        seconds = _median_s(lambda e=engine, b=batch: e.train_step(b, cross_entropy), setting.device)  # type: ignore[misc]
        lines.append(_speed_line(setting, name, options.get("precision", "fp32"), seconds))
        del engine
    if setting.device.type == "cuda":
        lines += _graphs(setting)
    return lines


def _graphs(setting: Setting) -> list[dict[str, Any]]:
    """Gain from CUDA graphs of whole forwards and backwards: a plain loop in bf16, with and without them."""
    image = torch.randn(1, 3, setting.side_px, setting.side_px, device=setting.device)
    label = torch.tensor([1], device=setting.device)
    lines = []
    for name in ("plain loop, bf16, channels_last", "plain loop, bf16, channels_last, graphs"):
        network: Any = nn.Sequential(*_blocks(setting)).to(setting.device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        sample = image.contiguous(memory_format=torch.channels_last)
        with torch.autocast("cuda", dtype=torch.bfloat16, cache_enabled=False):
            if name.endswith("graphs"):
                network = torch.cuda.make_graphed_callables(network, (sample,))

            def step(network: Any = network, sample: Tensor = sample) -> None:
                loss: Tensor = cross_entropy(network(sample), label)
                loss.backward()  # type: ignore[no-untyped-call]  # torch ships no types for it

            lines.append(_speed_line(setting, name, "bf16", _median_s(step, setting.device)))
    return lines


def _speed_line(setting: Setting, name: str, precision: Precision, seconds: float) -> dict[str, Any]:
    shape = (1, 3, setting.side_px, setting.side_px)
    work = count_work(_blocks(setting), shape, precision, setting.device)
    rates = rates_of(setting.device, precision, side=8192 if setting.device.type == "cuda" else 256)
    return {
        "network": setting.network,
        "setting": name,
        "tiles/s": round(1 / seconds, 3),
        "TFLOP/s": round(work.flops / seconds / 1e12, 3),
        "GFLOP per tile": round(work.flops / 1e9, 1),
        "GB moved per tile": round(work.bytes / 1e9, 2),
        "share of the roofline": round(work.least_s(rates) / seconds, 3),
        "matrix product TFLOP/s": round(rates.flops / 1e12, 2),
        "copy GB/s": round(rates.bytes / 1e9, 1),
    }


def _median_s(work: Callable[[], Any], device: torch.device) -> float:
    times = []
    for index in range(ROUNDS + 2):
        synchronize(device)
        start = time.perf_counter()
        work()
        synchronize(device)
        if index >= 2:
            times.append(time.perf_counter() - start)
    return statistics.median(times)


# --- the largest tile ------------------------------------------------------------------------------


def largest_side(setting: Setting, strategy: str, policy: str, peak: int, *, limit_s: float) -> dict[str, Any]:
    """Largest tile from the live bytes predicted for `setting`; then a step of that size on as many ranks."""
    num_ranks, budget = num_ranks_of(strategy), setting.memory_bytes()
    # A tenth is reserved for uncounted memory: convolution workspaces and temporaries between operations.
    side_px = int(math.sqrt(0.9 * budget / peak) * setting.side_px) // STEP_PX * STEP_PX
    if policy == "offload":
        side_px = min(side_px, _largest_in_host_memory(setting, strategy, peak))
    line = {"strategy": strategy, "policy": policy, "precision": "bf16", "ranks": num_ranks}
    line |= {"GB for each rank": round(budget / 1e9, 1), "predicted largest side px": side_px}
    while side_px > STEP_PX:
        fits = run(num_ranks, _fits, setting, strategy, policy, side_px, limit_s=limit_s)
        if all(fit["fits"] for fit in fits):
            return {**line, "largest side px": side_px, "allocator's GB": [fit["GB"] for fit in fits]}
        side_px = side_px * 9 // 10 // STEP_PX * STEP_PX
    return {**line, "holds": False, "failed": "no size fits"}


def _largest_in_host_memory(setting: Setting, strategy: str, peak: int) -> int:
    """Side of the largest tile whose offloaded bytes take half of the machine's free memory, all ranks together."""
    offloaded = predicted_bytes(setting, "bf16", "keep", strategy, 2 * num_ranks_of(strategy)) - peak
    side_px = (
        math.sqrt(SHARE_OF_MEMORY * psutil.virtual_memory().available / (num_ranks_of(strategy) * offloaded))
        * setting.side_px
    )
    return int(side_px) // STEP_PX * STEP_PX


def _fits(ranks: Ranks, setting: Setting, strategy: str, policy: str, side_px: int) -> dict[str, Any]:
    """Whether one step fits; a rank that runs out of memory is a lost peer for the other."""
    if setting.device.type == "cuda":
        torch.cuda.set_per_process_memory_fraction(SHARE_OF_MEMORY, setting.device)
    large = Setting(setting.device, setting.depth, side_px)
    plan = _plan(large, "bf16", policy, strategy=strategy, num_stages=ranks.num_ranks)
    engine = Engine(_blocks(large), plan, ranks=ranks)
    try:
        engine.train_step(_batch(large, 2 * ranks.num_ranks), cross_entropy)
    except (torch.OutOfMemoryError, LostPeerError):
        return {"fits": False}
    used = torch.cuda.max_memory_allocated(setting.device) if setting.device.type == "cuda" else 0
    return {"fits": True, "GB": round(used / 1e9, 2)}


def _blocks(setting: Setting) -> list[nn.Module]:
    torch.manual_seed(0)
    return resnet_v2_blocks(depth=setting.depth, num_classes=2)


def _batch(setting: Setting, num_microbatches: int = 1) -> TensorBatch:
    generator = torch.Generator().manual_seed(1)
    images = [torch.randn(1, 3, setting.side_px, setting.side_px, generator=generator) for _ in range(num_microbatches)]
    label = torch.tensor([1], device=setting.device)
    return TensorBatch(tuple((image.to(setting.device), label) for image in images))


def _plan(
    setting: Setting,
    precision: Precision = "fp32",
    policy: str = "keep",
    *,
    strategy: str = "single",
    num_stages: int = 1,
    **options: Any,
) -> Plan:
    costs = [cost.saved_bytes for cost in block_costs(_blocks(setting), (1, 3, 64, 64), precision=precision)]
    return make_plan(
        strategy, costs=costs, num_stages=num_stages, num_microbatches=2 * num_stages, precision=precision,
        recompute=POLICIES[policy], device=setting.device, **options,
    )  # fmt: skip
