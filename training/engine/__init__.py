"""Train a list of blocks spread over ranks: GEMS (SC20) and its relatives. api.py shows how."""

from training.engine.api import TensorBatch, close, connect, engine_of, forward_only, gather, split, train_step
from training.engine.engine import Engine, StepResult
from training.engine.executor import Batch, Loss
from training.engine.partition import block_costs
from training.engine.plan import Plan, make_plan
from training.engine.recompute import Recompute

__all__ = [
    "Batch", "Engine", "Loss", "Plan", "Recompute", "StepResult", "TensorBatch",
    "block_costs", "close", "connect", "engine_of", "forward_only", "gather", "make_plan", "split", "train_step",
]  # fmt: skip
