"""A rank that is gone or silent: the others say which one, and in which action, within the timeout."""

import os
import time
from dataclasses import replace
from datetime import timedelta

import torch.distributed as dist

from tests.distributed.launch import TIMEOUT_S, run_ranks
from tests.distributed.problem import Case, images_nchw, make_engine
from training.engine.ranks import Ranks
from training.engine.transport import LostPeerError

SHORT_S = 2.0


def with_short_timeout(ranks: Ranks) -> Ranks:
    """The same ranks on new channels. Only messages are in a hurry: processes may start long after each other."""
    groups = [dist.new_group(timeout=timedelta(seconds=SHORT_S)) for _ in range(3)]
    return replace(ranks, timeout_s=SHORT_S, replica_groups=tuple(groups[:2]), sync_group=groups[2])


def step_until_lost(ranks: Ranks) -> tuple[str, float]:
    """Message of the error that a step ends with, and how long it took in seconds."""
    engine = make_engine(ranks, Case("master", 2), [])
    start_s = time.monotonic()
    try:
        engine.train_step(lambda microbatch: images_nchw(0, microbatch), lambda logits_nk, _: logits_nk.square().mean())
    except LostPeerError as error:
        return str(error), time.monotonic() - start_s
    raise AssertionError("the step ended well without its peer")


def one_rank_hangs(ranks: Ranks, meeting_point: str) -> tuple[str, float] | None:
    """Rank 1 does nothing until rank 0 has noticed."""
    store = dist.FileStore(meeting_point, 2)
    ranks = with_short_timeout(ranks)
    if ranks.rank == 1:
        store.wait(["noticed"], timedelta(seconds=TIMEOUT_S))
        return None
    try:
        return step_until_lost(ranks)
    finally:
        store.set("noticed", "yes")


def one_rank_dies(ranks: Ranks) -> tuple[str, float] | None:
    """Rank 1 is gone without a word, as after a kill."""
    if ranks.rank == 1:
        os._exit(0)
    return step_until_lost(ranks)


def one_rank_dies_at_the_losses(ranks: Ranks) -> str | None:
    """Rank 1 does all its actions and is gone before the losses are shared."""
    engine = make_engine(ranks, Case("master", 2), [])
    if ranks.rank == 1:
        engine._transport.sum_over_ranks = lambda *_, **__: os._exit(0)  # type: ignore[method-assign]
    try:
        engine.train_step(lambda microbatch: images_nchw(0, microbatch), lambda logits_nk, _: logits_nk.square().mean())
    except LostPeerError as error:
        return str(error)
    return None


def test_a_silent_rank_is_named_within_the_timeout(tmp_path):
    message, waited_s = run_ranks(2, one_rank_hangs, str(tmp_path / "store"), timeout_s=SHORT_S)[0]

    assert message.startswith(
        "rank 0 in (B of stage 0, replica 0, micro-batch 0), waiting for rank 1: no answer within 2 s"
    )
    assert SHORT_S <= waited_s < 5 * SHORT_S


def test_a_dead_rank_is_named_at_once():
    message, waited_s = run_ranks(2, one_rank_dies, timeout_s=60.0)[0]

    assert "rank 0 in (" in message
    assert "of stage 0, replica 0, micro-batch 0)" in message
    assert "rank 1: no answer within 60 s, or the connection broke" in message
    assert waited_s < 30


def test_a_rank_lost_at_the_end_of_a_step_is_noticed_too():
    message = run_ranks(2, one_rank_dies_at_the_losses, timeout_s=60.0)[0]

    assert message.startswith("rank 0 in (sharing the losses), adding up with the other ranks")
