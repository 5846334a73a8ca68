"""Pairwise coverage: few combinations of factors that contain every pair of values; few faults need a third."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import combinations, product
from typing import Any

Value = tuple[str, Hashable]
"""Name of a factor and one of its values."""
Factors = Mapping[str, Sequence[Any]]
Legal = Callable[[Mapping[str, Any]], bool]
"""Whether values of some of the factors may be combined."""


def legal_pairs(factors: Factors, legal: Legal) -> list[tuple[Value, Value]]:
    """Every legal pair of values of two factors, in order."""
    return [
        ((left, a), (right, b))
        for left, right in combinations(factors, 2)
        for a, b in product(factors[left], factors[right])
        if legal({left: a, right: b})
    ]


def cover(factors: Factors, legal: Legal, start: Sequence[Mapping[str, Any]] = ()) -> list[dict[str, Any]]:
    """Choose combinations until every legal pair is in one of them; the choice is deterministic.

    A combination starts with the first pair that is still missing, and takes the value of every other factor that
    adds the most missing pairs; ties go to the least used value.

    Args:
        start: combinations to include in any case.

    Raises:
        ValueError: a pair is legal, but no value of some other factor fits it.
    """
    chosen = [{name: combination[name] for name in factors} for combination in start]
    missing = set(legal_pairs(factors, legal)).difference(*(combinations(earlier.items(), 2) for earlier in chosen))
    for pair in legal_pairs(factors, legal):
        if pair in missing:
            combination = dict(pair)
            for name in (name for name in factors if name not in combination):
                possible = [value for value in factors[name] if legal({**combination, name: value})]
                if not possible:
                    raise ValueError(f"no {name} fits {combination}")
                combination[name] = max(possible, key=_worth(name, combination, missing, chosen))
            chosen.append({name: combination[name] for name in factors})
            missing -= set(combinations(chosen[-1].items(), 2))
    return chosen


def _worth(
    name: str, others: Mapping[str, Any], missing: set[tuple[Value, Value]], chosen: list[dict[str, Any]]
) -> Callable[[Any], tuple[int, int]]:
    """Scoring function for a factor's value in a combination with these other values."""

    def worth(value: Any) -> tuple[int, int]:
        mine = (name, value)
        num_missing = sum((mine, other) in missing or (other, mine) in missing for other in others.items())
        return num_missing, -sum(combination[name] == value for combination in chosen)

    return worth
