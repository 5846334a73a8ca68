"""A user's program, for test_engine_api.py: `api_program.py FOLDER STRATEGY ...` under torchrun."""

import os
import sys
from pathlib import Path
from typing import Any

import torch

from tests.training.engine.small_networks import loss, make_batch, make_blocks, plan_of
from training import engine

NETWORKS_TO_SPLIT = ("unet", "integers", "dropout", "handed-on", "relu-chain")


def learn(network: str, strategy: str, ranks: engine.Ranks, **options: Any) -> dict[str, Any]:
    """Train three steps, the last with another number of micro-batches; return this rank's results."""
    blocks = make_blocks(network)
    plan = plan_of(blocks, strategy, num_microbatches=4, clip_norm=0.5, **options)
    one = engine.Engine(blocks, plan, ranks=ranks)
    results = [one.train_step(make_batch(count, last=1), loss) for count in (4, 4, 3)]
    return {
        "losses": [result.losses for result in results],
        "loss": [result.loss for result in results],
        "norms": [result.gradient_norm for result in results],
        "outputs": one.forward_only(make_batch(3, last=1)),
        "state": one.full_state_dict(),
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    folder, *strategies = sys.argv[1:]
    outcomes = {}
    ranks = engine.connect_ranks(timeout_s=240)
    for strategy in strategies:
        numbers = {"data_parallel": 2} if strategy == "single" else {"num_stages": 2}
        outcomes[strategy] = {network: learn(network, strategy, ranks, **numbers) for network in NETWORKS_TO_SPLIT}
    torch.save(outcomes, Path(folder) / f"rank{os.environ['RANK']}.pt")
    ranks.close()
