"""Drawings of a schedule: text for the terminal and SVG for a page.

The text has a row per clock, where every action takes one clock. The SVG has a row per rank with time from left to
right, as simulate.py times it, and under each row the activations that the rank keeps.
"""

from collections.abc import Callable, Iterator, Sequence
from html import escape
from itertools import pairwise

from training.engine.schedule import Action, Op, Schedule, ScheduleError
from training.oracle.simulation.simulate import Sent, Span, Timeline

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 960, 104, 140, 74, 46
BAR, STRIP, GAP = 26, 22, 16
SHADES = {  # from the colours of Okabe & Ito: distinct to colour-blind readers, and by lightness in print
    (Op.F, False): ("#0072b2", "#ffffff"),
    (Op.F, True): ("url(#mirrored-forward)", "#000000"),
    (Op.B, False): ("#e69f00", "#000000"),
    (Op.B, True): ("url(#mirrored-backward)", "#000000"),
}
"""Fill and text colour of a box, by (op, is mirrored)."""
MARKS = {Op.REDUCE: ("#a0307a", 0.0), Op.STEP: ("#000000", 3.0)}
"""Colour of a mark and its offset from its moment, so that both are visible at the end of a step."""
MESSAGE = "#007a5e"
"""Colour of a message."""
HATCHES = "".join(
    f'<pattern id="mirrored-{name}" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    f'<rect width="6" height="6" fill="{light}"/><rect width="2" height="6" fill="{line}"/></pattern>\n'
    for name, light, line in (("forward", "#c3e1f4", "#79b7de"), ("backward", "#fdeec4", "#efbf5c"))
)


def draw_text(schedule: Schedule, *, ranks: range | None = None) -> str:
    """Draw for the terminal: a column per rank, a row per clock; '.' is idle.

    F and B carry their micro-batch, R and S their stage; a mark (') stands for the mirrored replica.

    Args:
        ranks: those to show; all if omitted.

    Raises:
        ScheduleError: the schedule stalls.
    """
    shown = ranks or range(len(schedule.ranks))
    clocks = [[row[rank] for rank in shown] for row in by_clock(schedule)]
    while clocks and not any(clocks[-1]):
        clocks.pop()
    rows = [["clock", *(f"rank {rank}" for rank in shown)]]
    for clock, actions in enumerate(clocks):
        rows.append([str(clock).rjust(5), *("." if a is None else _cell(schedule, a) for a in actions)])
    width = max(len(cell) for row in rows for cell in row) + 2
    return "\n".join("".join(cell.ljust(7 if i == 0 else width) for i, cell in enumerate(row)).rstrip() for row in rows)


def format_bytes(num_bytes: int) -> str:
    """Format a size as in "5.24 GB": decimal units, three digits."""
    if num_bytes < 1000:
        return f"{num_bytes} bytes"
    power = next(p for p in (1, 2, 3, 4) if num_bytes < 999.5 * 1000**p or p == 4)
    value = num_bytes / 1000**power
    return f"{value:.{max(0, 3 - len(str(int(value))))}f} {('kB', 'MB', 'GB', 'TB')[power - 1]}"


def draw_svg(
    timeline: Timeline,
    schedule: Schedule,
    *,
    title: str,
    ranks: range | None = None,
    full_s: float | None = None,
    amount: Callable[[int], str] = format_bytes,
) -> str:
    """Draw for a page.

    Args:
        timeline: of the schedule, from `simulate`.
        ranks: those to show; all if omitted.
        full_s: time at the right edge, to draw several schedules to one scale; the end of the step if omitted.
        amount: formats the most that a rank keeps, from `StageCost.kept_bytes`.

    Returns:
        a self-contained XML document.
    """
    shown = ranks or range(len(schedule.ranks))
    end_s = full_s or timeline.end_s or 1.0
    scale = (WIDTH - LEFT - RIGHT) / end_s
    most = max((timeline.peak_bytes[rank] for rank in shown), default=0)
    height = TOP + len(shown) * (BAR + STRIP + GAP) + BOTTOM
    sent = [each for each in timeline.messages if each.end_s > each.start_s]
    sent = [each for each in sent if each.sender in shown and each.receiver in shown]
    body = [*_axis(timeline, shown, end_s, height), *_legend(schedule)]
    for row, rank in enumerate(shown):
        top = TOP + row * (BAR + STRIP + GAP)
        body += _strip(timeline.ranks[rank], scale, top + BAR, most)
        body += _row(timeline.ranks[rank], schedule, scale, top)
        body.append(_text(12, top + 17, f"rank {rank}", "font-weight='bold'"))
        body.append(_text(12, top + BAR + 14, _stages(timeline.ranks[rank], schedule), "class='small'"))
        peak = f"peak {amount(timeline.peak_bytes[rank])}"
        body.append(_text(WIDTH - RIGHT + 10, top + BAR + 14, peak, "class='small'"))
    if sent:
        body += [*(_message(each, shown, scale) for each in sent), *_legend_of_messages(height)]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'font-family="sans-serif" font-size="12" fill="#000000">\n<title>{escape(title)}</title>\n'
        f"<style>.small {{ font-size: 11px; fill: #444444 }} .middle {{ text-anchor: middle }}</style>\n"
        f'<defs>\n{HATCHES}</defs>\n<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>\n'
        + _text(12, 24, title, "font-size='16' font-weight='bold'")
        + "".join(body)
        + "</svg>\n"
    )


def _is_mirrored(schedule: Schedule, action: Action) -> bool:
    return schedule.num_directions == 2 and action.replica % 2 == 1


def _cell(schedule: Schedule, action: Action) -> str:
    number = action.stage if action.microbatch is None else action.microbatch
    return f"{action.op.value}{number}{_mark(schedule, action)}"


def _mark(schedule: Schedule, action: Action) -> str:
    return "'" if _is_mirrored(schedule, action) else ""


def _stages(spans: Sequence[Span], schedule: Schedule) -> str:
    held = dict.fromkeys(f"{s.action.stage}{_mark(schedule, s.action)}" for s in spans if s.action.op is Op.STEP)
    names = sorted(held, key=lambda name: name.endswith("'"))
    return f"stage{'s' if len(names) > 1 else ''} {', '.join(names)}"


def _row(spans: Sequence[Span], schedule: Schedule, scale: float, top: float) -> Iterator[str]:
    """Boxes of one rank, then its marks."""
    for span in spans:
        if span.action.op not in MARKS:
            label = f"{span.action.microbatch}{_mark(schedule, span.action)}"
            x, width = LEFT + span.start_s * scale, (span.end_s - span.start_s) * scale
            box = _box(x, top, width, *SHADES[span.action.op, _is_mirrored(schedule, span.action)], label)
            yield f"<g><title>{escape(str(span.action))}</title>{box}</g>\n"
    for span in spans:
        if span.action.op in MARKS:
            yield _line_at(LEFT + span.start_s * scale, top, span.action.op, (span.end_s - span.start_s) * scale)


def _box(x: float, top: float, width: float, fill: str, letters: str, label: str) -> str:
    edge = ' stroke="#ffffff"' if width >= 3 else ""
    box = f'<rect x="{_n(x)}" y="{_n(top)}" width="{_n(width)}" height="{BAR}" fill="{fill}"{edge}/>'
    letter_widths = sum(0.3 if letter == "'" else 0.64 for letter in label)
    size = next((size for size in (12, 9, 7) if size * letter_widths <= width - 2), None)
    if size is None:
        return box
    return box + _text(x + width / 2, top + 17, label, f"class='middle' font-size='{size}' fill='{letters}'").rstrip()


def _line_at(x: float, top: float, op: Op, width: float) -> str:
    """A mark: a line where it takes no time, or a box."""
    colour, offset = MARKS[op]
    x, width = (x, width) if width >= 2 else (x + offset, 2)
    return f'<rect x="{_n(x)}" y="{_n(top - 5)}" width="{_n(width)}" height="{BAR + 5}" fill="{colour}"/>\n'


def _message(sent: Sent, shown: range, scale: float) -> str:
    """A line from the sender's row, when the message starts, to the receiver's, when it arrives."""
    rows = [TOP + shown.index(rank) * (BAR + STRIP + GAP) for rank in (sent.sender, sent.receiver)]
    ends = (BAR, 0) if rows[0] < rows[1] else (0, BAR)
    x1, x2 = (_n(LEFT + time_s * scale) for time_s in (sent.start_s, sent.end_s))
    y1, y2 = (_n(row + end) for row, end in zip(rows, ends, strict=True))
    line = f'<path d="M{x1} {y1}L{x2} {y2}" stroke="{MESSAGE}" stroke-width="1.5"/>'
    return f"<g><title>{escape(f'{sent.message[0]}, to rank {sent.receiver}')}</title>{line}</g>\n"


def _strip(spans: Sequence[Span], scale: float, top: float, most: int) -> Iterator[str]:
    """Area chart of what a rank keeps over time; the height of a strip is the most that any rank keeps."""
    bottom = top + STRIP
    levels = [(LEFT + t * scale, bottom - (STRIP - 3) * kept / (most or 1)) for t, kept in _kept_over_time(spans)]
    path = f"M{LEFT} {_n(bottom)}" + "".join(f"V{_n(y)}H{_n(end)}" for (_, y), (end, _) in pairwise(levels))
    yield f'<path d="{path}V{_n(bottom)}Z" fill="#d0d0d0" stroke="#777777"/>\n'


def _kept_over_time(spans: Sequence[Span]) -> list[tuple[float, int]]:
    """(moment, bytes from then on), from the start to the rank's last action."""
    now = 0
    kept: dict[tuple[int, int, int | None], int] = {}
    levels = {0.0: 0}  # of several changes at one moment the last one counts
    for span in spans:
        passed = (span.action.replica, span.action.stage, span.action.microbatch)
        levels[span.start_s] = span.live_bytes
        if span.action.op is Op.F:
            kept[passed] = span.live_bytes - now
            now = span.live_bytes
        elif span.action.op is Op.B:
            now -= kept.pop(passed)
        levels[span.end_s] = now
    return list(levels.items())


def _axis(timeline: Timeline, shown: range, end_s: float, height: int) -> Iterator[str]:
    """Lines at parts of the time that one rank alone would take for all the work shown."""
    right = WIDTH - RIGHT
    alone_s = sum(span.end_s - span.start_s for rank in shown for span in timeline.ranks[rank])
    step = next((percent for percent in (25, 10, 5) if alone_s * percent / 100 * 3 <= end_s), 2)
    bottom = height - BOTTOM
    for percent in range(0, 101, step):
        x = LEFT + (right - LEFT) * alone_s * percent / 100 / end_s
        if x <= right + 0.01:
            yield f'<path d="M{_n(x)} {TOP - 8}V{_n(bottom)}" stroke="#cccccc" stroke-dasharray="2 3"/>\n'
            yield _text(x, bottom + 14, f"{percent} %", "class='small middle'")
    yield _text(LEFT, bottom + 32, "time; 100 % is what one rank alone would take for the same work", "class='small'")


def _legend(schedule: Schedule) -> Iterator[str]:
    x = float(LEFT)
    mirrored = (False, True) if schedule.num_directions == 2 else (False,)
    for (op, is_mirrored), shade in SHADES.items():
        if is_mirrored in mirrored:
            yield _box(x, 36, 24, *shade, "0'" if is_mirrored else "0").replace(f'height="{BAR}"', 'height="24"')
            label = f"{'mirrored ' if is_mirrored else ''}{'forward' if op is Op.F else 'backward'}"
            yield _text(x + 30, 53, label, "class='small'")
            x += 46 + 6 * len(label)
    for op, label in ((Op.REDUCE, "reduce gradients"), (Op.STEP, "update weights")):
        yield f'<rect x="{_n(x)}" y="36" width="2" height="24" fill="{MARKS[op][0]}"/>\n'
        yield _text(x + 8, 53, label, "class='small'")
        x += 24 + 6 * len(label)
    yield f'<rect x="{_n(x)}" y="44" width="20" height="12" fill="#d0d0d0" stroke="#777777"/>\n'
    yield _text(x + 26, 53, "activations kept", "class='small'")


def _legend_of_messages(height: int) -> Iterator[str]:
    x, y = LEFT + 420, height - BOTTOM + 32
    yield f'<path d="M{x} {y - 11}L{x + 16} {y + 1}" stroke="{MESSAGE}" stroke-width="1.5"/>\n'
    yield _text(x + 22, y, "message between ranks", "class='small'")


def _text(x: float, y: float, text: str, attributes: str = "") -> str:
    return f'<text x="{_n(x)}" y="{_n(y)}" {attributes}>{escape(text, quote=False)}</text>\n'


def _n(value: float) -> str:
    """A coordinate as short text, the same on every machine."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def by_clock(schedule: Schedule) -> Iterator[list[Action | None]]:
    """Yield the action that each rank starts at each clock, when every action takes one clock.

    Raises:
        ScheduleError: the schedule stalls.
    """
    done: set[Action] = set()
    queues = [list(reversed(actions)) for actions in schedule.ranks]
    while any(queues):
        next_up = {queue[-1] for queue in queues if queue}
        row: list[Action | None] = []
        for queue in queues:
            ready = bool(queue) and all(source in done for source in schedule.sources(queue[-1]))
            ready = ready and next_up.issuperset(schedule.partners(queue[-1]))
            row.append(queue.pop() if ready else None)
        started = {action for action in row if action is not None}
        if not started:
            raise ScheduleError("the schedule stalls; check_schedule says where")
        done |= started
        yield row
