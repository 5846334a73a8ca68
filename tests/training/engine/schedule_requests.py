"""What may be asked of the engine: every strategy, up to 8 stages, 8 micro-batches and 3 groups."""

from typing import Any

from hypothesis import strategies as st

from training.engine.schedule import STRATEGIES, Schedule, build_schedule


@st.composite
def requests(draw: st.DrawFn, strategies: tuple[str, ...] = STRATEGIES) -> dict[str, Any]:
    """Arguments of `build_schedule` that fit each other; also fewer micro-batches than replicas, also uneven shares."""
    strategy = draw(st.sampled_from(strategies))
    num_stages = 1 if strategy == "single" else draw(st.integers(1, 8))
    if strategy == "chimera":
        num_stages = 2 * draw(st.integers(1, 4))
    data_parallel = draw(st.integers(1, 3))
    return {
        "strategy": strategy,
        "num_stages": num_stages,
        "num_microbatches": draw(st.integers(1, 8 * data_parallel)),
        "data_parallel": data_parallel,
    }


def build(request: dict[str, Any], **others: Any) -> Schedule:
    return build_schedule(**{**request, **others})
