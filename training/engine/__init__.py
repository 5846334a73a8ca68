"""Train a list of blocks spread over ranks: GEMS (SC20) and its relatives. engine.py shows how."""

from training.engine.agreement import NonFiniteError
from training.engine.batches import TensorBatch, split
from training.engine.engine import Engine, StepResult
from training.engine.executor import Batch, Loss
from training.engine.partition import block_costs
from training.engine.plan import Plan, make_plan
from training.engine.ranks import LostPeerError, Ranks, alone, connect_ranks
from training.engine.recompute import Recompute

__all__ = [
    "Batch", "Engine", "Loss", "LostPeerError", "NonFiniteError", "Plan", "Ranks", "Recompute", "StepResult",
    "TensorBatch", "alone", "block_costs", "connect_ranks", "make_plan", "split",
]  # fmt: skip
