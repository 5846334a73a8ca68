"""Drawings match the schedule: every action once, in its place and time, readable as text and as a page."""

import re
from dataclasses import replace
from itertools import groupby, pairwise
from xml.etree import ElementTree

import pytest

from training.engine import schedule as schedule_module
from training.engine.schedule import Op
from training.engine.strategies import STRATEGIES, build_schedule
from training.oracle.simulation.costs import Costs, StageCost
from training.oracle.simulation.draw import BAR, LEFT, RIGHT, WIDTH, draw_svg, draw_text, format_bytes
from training.oracle.simulation.links import Link, pairs
from training.oracle.simulation.simulate import simulate

SVG = "{http://www.w3.org/2000/svg}"
COSTS = [StageCost(1.0, 2.0, 700, 90), StageCost(0.5, 1.5, 400), StageCost(2.0, 4.0, 300), StageCost(0.7, 1.1, 123)]


def build(strategy, *, num_stages=4, num_microbatches=4, data_parallel=1):
    return build_schedule(
        strategy,
        num_stages=1 if strategy == "single" else num_stages,
        num_microbatches=num_microbatches,
        data_parallel=data_parallel,
    )


def cells(schedule, **options):
    """Cells of every column of the text that are not idle."""
    rows = [line.split()[1:] for line in draw_text(schedule, **options).splitlines()[1:]]
    return [[cell for cell in column if cell != "."] for column in zip(*rows, strict=True)]


def drawn(schedule, costs=COSTS, **options):
    """The SVG as an XML tree, and its timeline."""
    timeline = simulate(schedule, Costs(costs[: schedule.num_stages]))
    return ElementTree.fromstring(draw_svg(timeline, schedule, title="drawing", **options)), timeline


def boxes(tree):
    """(tooltip, x, y, width, number inside) of every forward and backward."""
    for group in (group for group in tree.iter(f"{SVG}g") if group.find(f"{SVG}rect") is not None):
        rect, label = group.find(f"{SVG}rect"), group.find(f"{SVG}text")
        x, y, width = (float(rect.get(name)) for name in ("x", "y", "width"))
        yield group.findtext(f"{SVG}title"), x, y, width, None if label is None else label.text


def strips(tree):
    """Heights of the area under every rank's row, from left to right."""
    for path in (path.get("d") for path in tree.iter(f"{SVG}path") if path.get("fill") == "#d0d0d0"):
        bottom = float(re.match(rf"M{LEFT} ([\d.]+)", path)[1])
        yield [bottom - float(y) for y in re.findall(r"V([\d.]+)", path)]


def words(tree):
    return [text.text for text in tree.iter(f"{SVG}text")]


def test_the_text_is_the_table_in_the_engine_s_docstring():
    table = re.search(r"    clock  rank 0  rank 1\n(    .*\n)+", schedule_module.__doc__)[0]

    schedule = build("master", num_stages=2, num_microbatches=2)
    passes = tuple(tuple(a for a in actions if a.op in (Op.F, Op.B)) for actions in schedule.ranks)

    assert draw_text(replace(schedule, ranks=passes)).splitlines() == [
        line.removeprefix("    ") for line in table.splitlines()
    ]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_text_names_every_action_of_every_rank_once_and_in_order(strategy):
    schedule = build(strategy, num_microbatches=5, data_parallel=2)

    for column, actions in zip(cells(schedule), schedule.ranks, strict=True):
        assert [cell[0] for cell in column] == [action.op.value for action in actions]
        assert [int(cell.strip("FBRS'")) for cell in column] == [
            action.stage if action.microbatch is None else action.microbatch for action in actions
        ]


def test_a_mark_is_set_where_a_group_holds_two_replicas_and_nowhere_else():
    forwards = [[cell for cell in column if cell[0] == "F"] for column in cells(build("master", data_parallel=2))]

    assert "'" not in draw_text(build("1f1b", data_parallel=2))
    assert [sorted(column) for column in forwards] == [["F0", "F1'"]] * 4 + [["F2", "F3'"]] * 4


def test_only_the_ranks_asked_for_are_shown():
    schedule = build("master", num_stages=3, data_parallel=2)

    assert draw_text(schedule, ranks=range(3, 6)).splitlines()[0].split("  ")[1:] == ["rank 3", "rank 4", "rank 5"]
    assert cells(schedule, ranks=range(3, 6)) == cells(schedule)[3:]
    assert [text for text in words(drawn(schedule, ranks=range(3))[0]) if text.startswith("rank ")] == [
        "rank 0", "rank 1", "rank 2",
    ]  # fmt: skip


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_page_has_a_box_for_every_pass_where_its_time_is(strategy):
    schedule = build(strategy)
    tree, timeline = drawn(schedule)
    scale = (WIDTH - LEFT - RIGHT) / timeline.end_s
    expected = [s for spans in timeline.ranks for s in spans if s.action.op in (Op.F, Op.B)]

    drawn_boxes = list(boxes(tree))

    assert [says for says, *_ in drawn_boxes] == [str(span.action) for span in expected]
    assert [x for _, x, *_ in drawn_boxes] == pytest.approx([LEFT + s.start_s * scale for s in expected], abs=0.01)
    assert [w for *_, w, _ in drawn_boxes] == pytest.approx([(s.end_s - s.start_s) * scale for s in expected], abs=0.01)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_boxes_of_a_rank_do_not_overlap_and_nothing_leaves_the_page(strategy):
    tree, _ = drawn(build(strategy, num_microbatches=8))
    _, _, width, height = map(float, tree.get("viewBox").split())

    for (_, x, y, w, _), (_, next_x, next_y, _, _) in pairwise(boxes(tree)):
        assert next_y > y or next_x >= x + w - 0.02
    for rect in (r for r in tree.iter(f"{SVG}rect") if r.get("x")):
        assert 0 <= float(rect.get("x")) <= width - float(rect.get("width"))
        assert 0 <= float(rect.get("y")) <= height - float(rect.get("height"))
    for text in tree.iter(f"{SVG}text"):
        assert float(text.get("x")) + 6 * len(text.text) * ("middle" not in text.get("class", "")) <= width
        assert float(text.get("y")) <= height


def test_a_box_says_its_micro_batch_where_there_is_room_and_marks_the_mirrored_replica():
    few = [number for *_, number in boxes(drawn(build("master", num_stages=2))[0])]
    many = [(width, number) for *_, width, number in boxes(drawn(build("master", num_microbatches=120))[0])]

    assert set(few) == {"0", "1", "2'", "3'"}
    assert all(number is None for width, number in many if width < 6)
    assert len({number for _, number in many}) < 120


def test_forward_backward_and_the_mirrored_replica_differ_in_fill():
    tree, _ = drawn(build("master"))
    fills = {}
    for group in tree.iter(f"{SVG}g"):
        op, _, replica = re.match(r"(\w) of stage (\d), replica (\d)", group.findtext(f"{SVG}title")).groups()
        fills.setdefault((op, replica), set()).add(group.find(f"{SVG}rect").get("fill"))

    assert len(fills) == len(set.union(*fills.values())) == 4
    patterns = {f"url(#{pattern.get('id')})" for pattern in tree.iter(f"{SVG}pattern")}
    assert fills["F", "1"] | fills["B", "1"] == patterns


def test_each_rank_has_its_reductions_and_updates_as_thin_marks():
    schedule = build("chimera")
    tree, timeline = drawn(schedule)
    thin = [r for r in tree.iter(f"{SVG}rect") if r.get("width") == "2" and r.get("height") == str(BAR + 5)]

    assert len(thin) == sum(span.action.op in (Op.REDUCE, Op.STEP) for spans in timeline.ranks for span in spans)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_each_message_is_a_line_from_its_sender_to_its_receiver(strategy):
    schedule = build(strategy)
    costs = [replace(cost, input_bytes=3, gradient_bytes=2, weight_bytes=8, step_s=0.5) for cost in COSTS]
    timeline = simulate(schedule, Costs(costs[: schedule.num_stages], pairs(Link("wire", 0.1, 0.1))))
    tree = ElementTree.fromstring(draw_svg(timeline, schedule, title="drawing"))
    scale = (WIDTH - LEFT - RIGHT) / timeline.end_s

    paths = [path for group in tree.iter(f"{SVG}g") for path in group.iter(f"{SVG}path")]
    lines = [re.findall(r"[\d.]+", path.get("d")) for path in paths]
    assert len(lines) == len(timeline.messages) == (schedule.num_stages > 1) * 2 * 3 * schedule.num_microbatches
    tops = sorted({y for _, _, y, _, _ in boxes(tree)})
    for sent, (x1, y1, x2, y2) in zip(timeline.messages, lines, strict=True):
        assert [float(x1), float(x2)] == pytest.approx(
            [LEFT + sent.start_s * scale, LEFT + sent.end_s * scale], abs=0.01
        )
        assert 0 <= float(y1) - tops[sent.sender] <= BAR
        assert 0 <= float(y2) - tops[sent.receiver] <= BAR
    assert ("message between ranks" in words(tree)) == (schedule.num_stages > 1)
    thick = [r for r in tree.iter(f"{SVG}rect") if r.get("height") == str(BAR + 5) and float(r.get("width")) > 2]
    assert len(thick) == sum(span.action.op is Op.STEP for spans in timeline.ranks for span in spans)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_strip_under_a_rank_is_what_it_keeps_and_names_the_peak(strategy):
    schedule = build(strategy)
    tree, timeline = drawn(schedule, amount=lambda kept: f"{kept} units")
    assert [w for w in words(tree) if w.startswith("peak ")] == [f"peak {kept} units" for kept in timeline.peak_bytes]
    for heights, peak in zip(strips(tree), timeline.peak_bytes, strict=True):
        assert max(heights) == pytest.approx(19 * peak / max(timeline.peak_bytes), abs=0.02)
        assert heights[-1] == 0


def test_between_two_micro_batches_of_mp_basic_the_last_rank_keeps_nothing():
    tree, _ = drawn(build("mp-basic", num_microbatches=3))

    levels = [height > 0 for height in list(strips(tree))[-1]]

    assert [level for level, _ in groupby(levels)] == [False, True, False, True, False, True, False]


def test_several_drawings_can_have_one_scale():
    schedule = build("gpipe")
    (_, _, _, alone, _), *_ = boxes(drawn(schedule)[0])
    tree, timeline = drawn(schedule, full_s=simulate(build("mp-basic"), Costs(COSTS)).end_s)
    (_, _, _, shared, _), *_ = boxes(tree)

    assert shared / alone == pytest.approx(timeline.end_s / simulate(build("mp-basic"), Costs(COSTS)).end_s, rel=0.01)
    assert "100 %" in words(tree)


def test_the_time_of_mp_basic_is_the_hundred_percent_of_the_axis():
    tree, _ = drawn(build("mp-basic"))
    (mark,) = [text for text in tree.iter(f"{SVG}text") if text.text == "100 %"]

    assert float(mark.get("x")) == WIDTH - RIGHT


def test_a_title_with_signs_of_xml_stays_a_title():
    schedule = build("1f1b")

    tree = ElementTree.fromstring(draw_svg(simulate(schedule, Costs(COSTS)), schedule, title="""<b> & "c" 'd'"""))

    assert tree.findtext(f"{SVG}title") == words(tree)[0] == words(tree)[0] or """<b> & "c" 'd'""" in words(tree)
    assert tree.findtext(f"{SVG}title") == """<b> & "c" 'd'"""


@pytest.mark.parametrize(
    ("num_bytes", "says"),
    [(0, "0 bytes"), (999, "999 bytes"), (1000, "1.00 kB"), (45_600, "45.6 kB"), (999_499, "999 kB"),
     (999_600, "1.00 MB"), (5_241_024_096, "5.24 GB"), (7_000_000_000_000_000, "7000 TB")],
)  # fmt: skip
def test_bytes_are_written_with_three_digits(num_bytes, says):
    assert format_bytes(num_bytes) == says
