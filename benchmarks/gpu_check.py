"""Everything about the engine that only a GPU can show, in less than ten minutes.

    .venv/bin/python -m benchmarks.gpu_check [--only PART ...] [--sides WORD ...]

    nccl       with several GPUs, `master` over two of them first, with a limit of a minute, then every strategy
               against one process. On one GPU: NCCL's groups in a world of one rank, against no group at all
    equality   ranks that share one GPU over gloo: every strategy and policy against one process, bit for bit
    bytes      ResNet-110-v2: live bytes as predicted and counted, against the allocator's figures, by policy
    speed      ResNet-110-v2, one tile at a time: fp32, bf16, channels_last, compiled blocks, CUDA graphs, and the share
               of the roofline (roofline.py)
    side       the largest square tile that trains in half of the GPU's memory per rank, by strategy: predicted, run;
               `--sides offload chimera` tries only strategies and policies with these words

Every part runs in its own processes and ends by itself. Prints JSON lines; the exit code is 1 if a promise does not
hold. `--device cpu --depth 20 --side-px 64` tries the program itself without a GPU.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any

import torch
from torch.multiprocessing.spawn import ProcessException

from benchmarks import gpu_work
from benchmarks.gpu_work import Setting
from benchmarks.machine import circumstances

Line = dict[str, Any]
NCCL_LIMIT_S = 60
PART_LIMIT_S = 180


def main() -> None:
    options = _options()
    setting = Setting(options.device, options.depth, options.side_px)
    if setting.device.type == "cuda" and not torch.cuda.is_available():
        raise SystemExit("torch finds no GPU here: nothing was measured")
    conditions = {"device": setting.name(), **circumstances("benchmarks.gpu_check")}
    held = True
    parts = {**PARTS, "side": partial(_side, words=options.sides)}
    for name, part in parts.items():
        if options.only and name not in options.only:
            continue
        start = time.perf_counter()
        for line in _lines(name, part, setting):
            held = held and line.get("holds", True)
            line["seconds of the part so far"] = round(time.perf_counter() - start, 1)
            print(json.dumps({"benchmark": "gpu_check", "part": name, **line, **conditions}), flush=True)
    sys.exit(0 if held else 1)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], choices=list(PARTS), metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--sides", nargs="*", default=[], metavar="WORD", help="of the largest tiles, only these")
    parser.add_argument("--device", default="cuda", type=torch.device)
    parser.add_argument("--depth", default=110, type=int)
    parser.add_argument("--side-px", default=1024, type=int)
    return parser.parse_args()


def _lines(name: str, part: Callable[[Setting], Iterator[Line]], setting: Setting) -> Iterator[Line]:
    """Run a part, or one case of it; one that fails is reported, and the others still run."""
    try:
        yield from part(setting)
    except (RuntimeError, ValueError, TimeoutError, ProcessException) as error:
        yield {"holds": False, "failed": f"{name}: {type(error).__name__}: {str(error)[-2000:]}"}


def _nccl(setting: Setting) -> Iterator[Line]:
    if setting.device.type != "cuda":
        yield {"skipped": "NCCL needs a GPU"}
        return
    if torch.cuda.device_count() < 2:
        alone, in_group = gpu_work.run(1, gpu_work.world_of_one, setting, limit_s=NCCL_LIMIT_S)[0]
        yield {"case": "a world of one rank over NCCL", "holds": alone == in_group}
        return
    wanted = gpu_work.run(1, gpu_work.digest_of, setting, "single", 1, 2, "keep", limit_s=PART_LIMIT_S)[0]
    digests = gpu_work.run(
        2, gpu_work.digest_of, setting, "master", 2, 2, "keep", backend="nccl", limit_s=NCCL_LIMIT_S
    )  # fmt: skip
    yield {"case": "master over NCCL, S = 2, N = 2", "holds": set(digests) == {wanted}}
    yield from _equality(setting, backend="nccl")


def _equality(setting: Setting, backend: str = "gloo") -> Iterator[Line]:
    """Compare two steps of a small network with dropout; weights, statistics and momentum in one digest."""
    cases = [(strategy, 2, policy) for strategy in gpu_work.STRATEGIES for policy in gpu_work.POLICIES]
    wanted = gpu_work.run(1, gpu_work.digest_of, setting, "single", 1, 4, "keep", limit_s=PART_LIMIT_S)[0]
    by_rank = gpu_work.run(2, gpu_work.digests_of, setting, cases, 4, backend=backend, limit_s=PART_LIMIT_S)
    for index, (strategy, num_stages, policy) in enumerate(cases):
        equal = all(digests[index] == wanted for digests in by_rank)
        yield {"case": f"{strategy} over {backend}, S = {num_stages}, N = 4, {policy}", "holds": equal}


def _bytes(setting: Setting) -> Iterator[Line]:
    cases = [(precision, policy) for precision in ("fp32", "bf16") for policy in gpu_work.POLICIES]
    by_case = gpu_work.run(1, gpu_work.bytes_of_all, setting, cases, limit_s=PART_LIMIT_S)[0]
    predictions = _in_parallel(gpu_work.predicted_bytes, [(setting, *case) for case in cases])
    for (precision, policy), measured, predicted in zip(cases, by_case, predictions, strict=True):
        yield {
            "network": setting.network,
            "precision": precision,
            "policy": policy,
            **measured,
            "predicted / counted": round(predicted / measured["live bytes"], 6),
            "holds": predicted == measured["live bytes"],
        }


def _speed(setting: Setting) -> Iterator[Line]:
    yield from gpu_work.run(1, gpu_work.speeds, setting, limit_s=2 * PART_LIMIT_S)[0]


def _side(setting: Setting, words: Sequence[str] = ()) -> Iterator[Line]:
    """Find the largest tile. The next larger size is not tried: the remaining memory is printed."""
    sides = [side for side in gpu_work.SIDES if not words or set(words) & set(side)]
    requests = [(setting, "bf16", policy, strategy, 2 * gpu_work.num_ranks_of(strategy)) for strategy, policy in sides]
    predictions = _in_parallel(gpu_work.predicted_bytes, requests)
    for (strategy, policy), peak in zip(sides, predictions, strict=True):
        yield from _lines(f"{strategy}, {policy}", partial(_largest, strategy, policy, peak), setting)


def _largest(strategy: str, policy: str, peak: int, setting: Setting) -> Iterator[Line]:
    yield gpu_work.largest_side(setting, strategy, policy, peak, limit_s=PART_LIMIT_S)


def _in_parallel(task: Callable[..., int], arguments: Sequence[tuple[Any, ...]]) -> list[int]:
    """Run on all cores."""
    workers = min(len(arguments), os.cpu_count() or 1)
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        return list(pool.map(task, *zip(*arguments, strict=True)))


PARTS: dict[str, Callable[[Setting], Iterator[Line]]] = {
    "nccl": _nccl,
    "equality": _equality,
    "bytes": _bytes,
    "speed": _speed,
    "side": _side,
}


if __name__ == "__main__":
    main()
