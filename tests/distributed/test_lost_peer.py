"""A rank that has died or hangs: the others report which one, and in which action, within the timeout."""

import os
import time
from dataclasses import replace
from datetime import timedelta

import pytest
import torch.distributed as dist

from tests.distributed.launch import TIMEOUT_S, run_ranks
from tests.distributed.problem import Case, StepBatch, evenly, loss_sum, make_engine
from training.engine.engine import Engine
from training.engine.ranks import LostPeerError, Ranks

SHORT_S = 5.0
CASE = Case("master", 2, evenly(2))


def with_short_timeout(ranks: Ranks) -> Ranks:
    """The same ranks on new channels. Only messages get a short timeout: processes may start far apart."""
    data, control = (dist.new_group(timeout=timedelta(seconds=SHORT_S)) for _ in ("data", "control"))
    return replace(ranks, timeout_s=SHORT_S, data=data, control=control)


def step_until_lost(engine: Engine) -> tuple[str, float]:
    """Message of the error that ends a step, and its duration in seconds."""
    start_s = time.monotonic()
    with pytest.raises(LostPeerError) as lost:
        engine.train_step(StepBatch(CASE, 0), loss_sum)
    waited_s = time.monotonic() - start_s
    assert lost.value.peer == (1 if "rank 1:" in str(lost.value) else -1)
    return str(lost.value), waited_s


def one_rank_hangs(ranks: Ranks, meeting_point: str) -> tuple[str, float] | None:
    """Let rank 1 do nothing until rank 0 has noticed."""
    store = dist.FileStore(meeting_point, 2)
    ranks = with_short_timeout(ranks)
    engine = make_engine(ranks, CASE)
    if ranks.rank == 1:
        store.wait(["noticed"], timedelta(seconds=TIMEOUT_S))
        return None
    try:
        return step_until_lost(engine)
    finally:
        store.set("noticed", "yes")


def one_rank_dies(ranks: Ranks) -> tuple[str, float] | None:
    """Let rank 1 exit silently, as after a kill."""
    engine = make_engine(ranks, CASE)
    if ranks.rank == 1:
        os._exit(0)
    return step_until_lost(engine)


def one_rank_dies_at_the_losses(ranks: Ranks) -> tuple[str, float] | None:
    """Let rank 1 do all its work and exit before the losses are shared."""
    engine = make_engine(ranks, CASE)
    if ranks.rank == 1:
        engine._transport.sum_over_ranks = lambda *_, **__: os._exit(0)  # type: ignore[method-assign]
    return step_until_lost(engine)


def one_rank_dies_at_the_update(ranks: Ranks) -> tuple[str, float] | None:
    """Let rank 1 exit when it should send the new weights of its stage."""
    engine = make_engine(ranks, CASE)
    if ranks.rank == 1:
        engine._stages[0].update = lambda *_: os._exit(0)  # type: ignore[method-assign]
    return step_until_lost(engine)


def first_rank_dies_before_anything(ranks: Ranks) -> str:
    """Let rank 0 exit while rank 1 waits for data that only rank 0 reads."""
    if ranks.rank == 0:
        os._exit(0)
    with pytest.raises(LostPeerError) as lost:
        ranks.broadcast_from_first(None)
    assert lost.value.peer == 0
    return str(lost.value)


def test_a_first_rank_that_is_lost_before_the_engine_is_there_is_named():
    message = run_ranks(2, first_rank_dies_before_anything, timeout_s=60.0)[1]

    assert message.startswith("rank 1 waits for rank 0, which did not answer within 60 s, or is gone: ")


def test_a_silent_rank_is_named_within_the_timeout(tmp_path):
    message, waited_s = run_ranks(2, one_rank_hangs, str(tmp_path / "store"))[0]

    assert message.startswith(
        "rank 0 in (F of stage 0, replica 0, micro-batch 0), sending to rank 1: no answer within 5 s"
    )
    assert SHORT_S <= waited_s < 5 * SHORT_S


def test_a_dead_rank_is_named_at_once():
    message, waited_s = run_ranks(2, one_rank_dies, timeout_s=60.0)[0]

    assert "rank 0 in (" in message
    assert "of stage 0, replica 0, micro-batch 0)" in message
    assert "rank 1: no answer within 60 s, or the connection broke" in message
    assert waited_s < 30


def test_a_rank_lost_at_the_losses_is_noticed_too():
    message, _ = run_ranks(2, one_rank_dies_at_the_losses, timeout_s=60.0)[0]

    assert message.startswith("rank 0 in (sharing the losses), adding up with the other ranks")


def test_a_rank_lost_at_the_update_is_named():
    message, _ = run_ranks(2, one_rank_dies_at_the_update, timeout_s=60.0)[0]

    assert message.startswith("rank 0 in (STEP of stage ")
    assert "rank 1: no answer within 60 s, or the connection broke" in message
