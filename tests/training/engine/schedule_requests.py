"""Valid requests to the engine: every strategy, up to 8 stages, 8 micro-batches and 3 groups."""

from typing import Any

from hypothesis import strategies as st

from training.engine.schedule import Schedule
from training.engine.strategies import STRATEGIES, build_schedule


@st.composite
def requests(draw: st.DrawFn, strategies: tuple[str, ...] = tuple(STRATEGIES)) -> dict[str, Any]:
    """Consistent arguments of `build_schedule`, some with fewer micro-batches than replicas or uneven shares."""
    strategy = draw(st.sampled_from(strategies))
    fitting = [num_stages for num_stages in range(1, 9) if STRATEGIES[strategy].refusal(num_stages) is None]
    num_stages = draw(st.sampled_from(fitting))
    data_parallel = draw(st.integers(1, 3))
    return {
        "strategy": strategy,
        "num_stages": num_stages,
        "num_microbatches": draw(st.integers(1, 8 * data_parallel)),
        "data_parallel": data_parallel,
    }


def build(request: dict[str, Any], **others: Any) -> Schedule:
    return build_schedule(**{**request, **others})
