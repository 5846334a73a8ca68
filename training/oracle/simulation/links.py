"""Links between ranks: a message of m bytes takes α + m β, with α of all links on its way and β of the slowest.

The model is that of ParaDL (HPDC 2021). Messages that are on a link at the same time share its bandwidth evenly.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from training.parallel.division import Swaps


class Link(NamedTuple):
    """Part of the way of a message: a cable, one direction of a network card, the memory of a host."""

    name: str
    """Links of one name are one link."""
    alpha_s: float = 0.0
    """Time until the first byte arrives."""
    beta_s_per_byte: float = 0.0
    """Inverse of the bandwidth; 0 for a link that is never in the way."""


Network = Callable[[int, int], tuple[Link, ...]]
"""(sender, receiver) -> the links on the way, in order; none for messages that take no time."""


def instant(sender: int, receiver: int) -> tuple[Link, ...]:
    """The network of a drawing: messages take no time."""
    return ()


def pairs(link: Link, both_ways: Link | None = None) -> Network:
    """A network in which each pair of ranks has a link of its own in each direction.

    Args:
        link: of one direction.
        both_ways: what the two directions have in common; None if they do not slow each other down.
    """

    def links(sender: int, receiver: int) -> tuple[Link, ...]:
        own = link._replace(name=f"{link.name} {sender} to {receiver}")
        if both_ways is None:
            return (own,)
        low, high = sorted((sender, receiver))
        return own, both_ways._replace(name=f"{both_ways.name} {low} and {high}")

    return links


def swaps_s(network: Network, swaps: Swaps, ranks: Sequence[int], meeting_s: float = 0.0) -> float:
    """Time for swaps between the parts of a stage, one after the other.

    Args:
        ranks: of the parts.
        meeting_s: further time of each, since all parts come to it at the same time.
    """
    if not swaps.count or len(set(ranks)) == 1:
        return 0.0
    num_bytes = {(ranks[giver], ranks[taker]): count for (giver, taker), count in swaps.num_bytes.items()}
    start_up_s = max(sum(link.alpha_s for link in network(*pair)) for pair in num_bytes)
    return (swaps.count - 1) * start_up_s + swap_s(network, num_bytes) + swaps.count * meeting_s


def swap_s(network: Network, num_bytes: Mapping[tuple[int, int], float]) -> float:
    """Time for messages that all start at once, by (sender, receiver), until the last has arrived.

    Exact where the link that carries most is never idle, as in an exchange between equals.
    """
    slowest_alpha_s = 0.0
    load_s: dict[str, float] = defaultdict(float)
    for (sender, receiver), count in num_bytes.items():
        links = network(sender, receiver) if count else ()
        slowest_alpha_s = max(slowest_alpha_s, sum(link.alpha_s for link in links))
        for link in links:
            load_s[link.name] += count * link.beta_s_per_byte
    return slowest_alpha_s + max(load_s.values(), default=0.0)
