"""Messages on shared links, in simulated time."""

from functools import partial

import pytest

from training.oracle.simulation.clock import Clock, Computing, Traffic
from training.oracle.simulation.links import Link, pairs, swap_s

CABLE = Link("cable", alpha_s=1.0, beta_s_per_byte=0.1)


def one_link(sender, receiver):
    """A network of a single link."""
    return (CABLE,)


def ended(clock, works):
    """When each (start, work) has ended; work begins at its start and gives the moment of its end."""
    found = {}

    def do(name, start_s, work):
        yield clock.after(start_s)
        yield work()
        found[name] = clock.now_s

    for name, (start_s, work) in enumerate(works):
        clock.start(do(name, start_s, work))
    clock.run()
    return [found[name] for name in range(len(works))]


def arrivals(network, *messages):
    """When each (start, sender, receiver, bytes) has arrived."""
    clock = Clock()
    traffic = Traffic(clock, network)
    return ended(clock, [(start_s, partial(traffic.send, *message)) for start_s, *message in messages])


def test_a_message_alone_takes_alpha_and_its_bytes():
    assert arrivals(pairs(CABLE), (2.0, 0, 1, 50)) == [pytest.approx(2 + 1 + 5)]


def test_a_message_without_bytes_is_not_sent():
    assert arrivals(pairs(CABLE), (2.0, 0, 1, 0)) == [2.0]


def test_two_messages_get_half_of_a_link_each_while_both_are_on_it():
    """The second comes after 20 bytes of the first; then 20 each at half speed, and the rest of the first alone."""
    assert arrivals(one_link, (0.0, 0, 1, 60), (2.0, 1, 0, 20)) == pytest.approx([1 + 2 + 4 + 2, 3 + 4])


def test_directions_slow_each_other_down_only_where_they_share_a_link():
    memory = Link("memory", beta_s_per_byte=0.08)
    both = (0.0, 0, 1, 50), (0.0, 1, 0, 50)

    assert arrivals(pairs(CABLE), *both) == pytest.approx([6.0, 6.0])
    assert arrivals(pairs(CABLE, memory), *both) == pytest.approx([1 + 50 * 0.16] * 2)
    assert arrivals(pairs(CABLE, memory), both[0]) == pytest.approx([6.0])


def test_the_slowest_link_of_a_way_decides():
    def way(sender, receiver):
        return CABLE, Link("switch", 0.5), Link("card", 0.25, 0.4)

    assert arrivals(way, (0.0, 0, 1, 10)) == pytest.approx([1.75 + 4.0])


@pytest.mark.parametrize("number", [2, 3, 8])
def test_a_swap_of_equals_takes_the_time_of_its_messages(number):
    """On links of their own, and on one that all share; the closed form equals the messages sent one by one."""
    pairs_of_ranks = [(a, b) for a in range(number) for b in range(number) if a != b]
    for network in (pairs(CABLE), one_link):
        at_once = arrivals(network, *((0.0, a, b, 12) for a, b in pairs_of_ranks))
        assert swap_s(network, dict.fromkeys(pairs_of_ranks, 12)) == pytest.approx(max(at_once))
    assert swap_s(one_link, dict.fromkeys(pairs_of_ranks, 12)) == pytest.approx(1 + number * (number - 1) * 1.2)


def ends(num_ranks, *computations, groups=1):
    """When each (start, seconds beside all others, alone) has ended."""
    clock = Clock()
    computing = Computing(clock, num_ranks, groups)
    return ended(clock, [(start_s, partial(computing.compute, *own)) for start_s, *own in computations])


def test_a_rank_is_faster_while_the_others_wait():
    assert ends(2, (1.0, 8.0, 0.75)) == [pytest.approx(7.0)]
    assert ends(2, (0.0, 8.0, 0.75), (0.0, 8.0, 0.75)) == pytest.approx([8.0, 8.0])
    # 4 s alone do 4 / 0.5 of the first, which has 8 left beside the second; that has 2 left then, done in 1 s.
    assert ends(2, (0.0, 16.0, 0.5), (4.0, 10.0, 0.5)) == pytest.approx([12.0, 13.0])


def test_two_of_three_ranks_are_half_as_much_in_the_way_of_each_other():
    assert ends(3, (0.0, 8.0, 0.5), (0.0, 8.0, 1.0)) == pytest.approx([6.0, 8.0])


def test_other_groups_are_in_the_way_as_if_they_were_played():
    assert ends(1, (0.0, 8.0, 0.5), groups=2) == [8.0]
    one_of_two_in_each = ends(2, (0.0, 8.0, 0.5), groups=2)
    assert one_of_two_in_each == pytest.approx(ends(4, (0.0, 8.0, 0.5), (0.0, 8.0, 0.5))[:1])
