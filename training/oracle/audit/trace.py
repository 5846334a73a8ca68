"""A trace for chrome://tracing and Perfetto: what each rank did in a measured step, beside the simulated one."""

from __future__ import annotations

from typing import Any

from training.engine.schedule import Action
from training.oracle.audit.race import Raced
from training.oracle.simulation.simulate import Timeline

MICROSECONDS = 1e6


def chrome_trace(measured: dict[str, Raced], simulated: dict[str, Timeline]) -> dict[str, Any]:
    """The trace of some plans: for each a process of measured ranks and one of simulated ranks, in microseconds.

    Args:
        measured: by the plan's name.
        simulated: of the same plans.
    """
    events: list[dict[str, Any]] = []
    for index, (name, raced) in enumerate(measured.items()):
        events += _process(2 * index, f"{name}: measured", len(raced.ranks))
        for rank, spans in enumerate(raced.ranks):
            events += (_event(2 * index, rank, span.action, span.start_s, span.end_s) for span in spans)
        timeline = simulated[name]
        events += _process(2 * index + 1, f"{name}: simulated", len(timeline.ranks))
        for rank, simulated_spans in enumerate(timeline.ranks):
            events += (_event(2 * index + 1, rank, span.action, span.start_s, span.end_s) for span in simulated_spans)
        for sent in timeline.messages:
            giver, _ = sent.message
            track, name_of = len(timeline.ranks) + sent.receiver, f"{giver}, from rank {sent.sender}"
            events.append(_named(2 * index + 1, track, name_of, "message", sent.start_s, sent.end_s))
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _process(process: int, name: str, num_ranks: int) -> list[dict[str, Any]]:
    threads = [f"{what}rank {rank}" for what in ("", "messages to ") for rank in range(num_ranks)]
    return [
        {"ph": "M", "name": "process_name", "pid": process, "args": {"name": name}},
        {"ph": "M", "name": "process_sort_index", "pid": process, "args": {"sort_index": process}},
        *(
            {"ph": "M", "name": "thread_name", "pid": process, "tid": thread, "args": {"name": thread_name}}
            for thread, thread_name in enumerate(threads)
        ),
    ]


def _event(process: int, rank: int, action: Action, start_s: float, end_s: float) -> dict[str, Any]:
    return _named(process, rank, str(action), action.op.name, start_s, end_s)


def _named(process: int, thread: int, name: str, kind: str, start_s: float, end_s: float) -> dict[str, Any]:
    return {
        "ph": "X", "pid": process, "tid": thread, "name": name, "cat": kind,
        "ts": start_s * MICROSECONDS, "dur": (end_s - start_s) * MICROSECONDS,
    }  # fmt: skip
