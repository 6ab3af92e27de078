"""The queue tree with its shares as bars: pure, text of a given width. Used by `queuepicture`.

All bars have one scale, from 0 to the amount to divide, so that bars can be compared. Colour only
repeats information that is also in the characters.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from bindery.answers.amounts import amount, title
from bindery.scheduler.insight.shares import ClusterShares, QueueShare, ResourceShare
from bindery.scheduler.model.queues import missing_queue

_LEAST_BAR = 16
_LEAST_NAME = 12
_GAP = 2


@dataclass(frozen=True)
class Marks:
    """The characters of a bar."""

    held: str = "█"
    wanted: str = "░"
    nothing: str = "·"
    quota: str = "|"
    fair: str = "◆"
    limit: str = "]"
    branch: str = "├─ "
    last: str = "└─ "
    through: str = "│  "


UNICODE = Marks()
ASCII = Marks("#", "-", ".", "|", "^", "]", "|- ", "`- ", "|  ")


@dataclass(frozen=True)
class View:
    """Options of the drawing."""

    resource: str
    width: int
    """Width of the whole drawing, in columns."""
    wide: bool = False
    marks: Marks = UNICODE


def draw(shares: ClusterShares, view: View) -> Iterator[Text | Table]:
    """Yield the printed parts, from top to bottom."""
    name, total = view.resource, shares.total.get(view.resource, 0.0)
    tops = [queue.resources.get(name) for queue in shares.queues if queue.depth == 0]
    held = sum(top.allocated for top in tops if top)
    asked = sum(top.requested for top in tops if top)
    kept = sum(top.kept for top in tops if top)
    yield Text(
        f"{title(name)}: {amount(name, total)} in all, {amount(name, held)} allocated, "
        + (f"{amount(name, kept)} kept beside pods, " if kept else "")
        + f"{amount(name, asked - held)} more asked for"
    )
    if not shares.queues:
        yield Text("There are no queues.")
        return
    yield _table(shares.queues, view, total)
    for queue in shares.queues:
        if queue.problem:
            yield Text(f"{queue.name}: {queue.problem}", style="red")
    marks = view.marks
    yield Text(
        f"{marks.held} allocated  {marks.wanted} waits  {marks.quota} quota  "
        f"{marks.fair} fair share  {marks.limit} limit",
        style="dim",
    )


def scale_of(queues: Sequence[QueueShare], resource: str, total: float) -> float:
    """Return the amount of a full bar: the capacity, or the largest share if it is larger."""
    most = [total]
    for queue in queues:
        share = queue.resources.get(resource)
        if share is not None:
            most += [share.allocated, share.fair_share, share.quota or 0.0]
    return max(*most, 1e-9) if len(most) > 1 else max(total, 1e-9)


def bar(share: ResourceShare, scale: float, width: int, marks: Marks = UNICODE) -> str:
    """Return a bar of `width` characters; a full bar is `scale`.

    Amounts beyond the scale, such as many waiting pods, end at the right edge.
    """

    def cells(wholes: float) -> int:
        return min(width, round(wholes / scale * width))

    held, asked = cells(share.allocated), cells(share.requested)
    if share.allocated > 0:
        held = max(1, held)
    if share.requested > share.allocated:
        asked = min(width, max(asked, held + 1))
    text = list(marks.held * held + marks.wanted * (asked - held) + marks.nothing * (width - asked))
    for mark, wholes in (
        (marks.limit, share.limit),
        (marks.quota, share.quota),
        (marks.fair, share.fair_share),
    ):
        if wholes is not None and 0 < wholes <= scale:
            text[max(0, cells(wholes) - 1)] = mark
    return "".join(text)


def _table(queues: Sequence[QueueShare], view: View, total: float) -> Table:
    names, marks = list(_tree_names(queues, view.marks)), view.marks
    rows = [_cells(queue, view) for queue in queues]
    headings = ["HELD", "ASKED", "FAIR", "QUOTA", "LIMIT"]
    if any(_kept(queue, view) for queue in queues):
        headings.insert(1, "KEPT")
        for queue, row in zip(queues, rows, strict=True):
            row.insert(1, amount(view.resource, _kept(queue, view)))
    if view.wide:
        headings += ["WEIGHT", "PRIORITY", "RUNNING", "WAITING"]
    widths = [max(len(head), *(len(row[i]) for row in rows)) for i, head in enumerate(headings)]
    taken = sum(widths) + _GAP * (len(widths) + 1)
    name_width = max(_LEAST_NAME, min(max(map(len, names)), view.width - taken - _LEAST_BAR))
    bar_width = max(_LEAST_BAR, view.width - taken - name_width)
    scale = scale_of(queues, view.resource, total)
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    table.add_column("QUEUE", width=name_width, no_wrap=True, overflow="ellipsis")
    for heading, width in zip(headings, widths, strict=True):
        table.add_column(heading, justify="right", width=width, no_wrap=True)
    table.add_column(_ruler(scale, bar_width, view.resource), width=bar_width, no_wrap=True)
    for name, queue, row in zip(names, queues, rows, strict=True):
        share = queue.resources.get(view.resource)
        drawn = bar(share, scale, bar_width, marks) if share is not None else ""
        table.add_row(Text(name), *row, _coloured(drawn, marks))
    return table


def _kept(queue: QueueShare, view: View) -> float:
    share = queue.resources.get(view.resource)
    return share.kept if share is not None else 0.0


def _cells(queue: QueueShare, view: View) -> list[str]:
    share, name = queue.resources.get(view.resource), view.resource
    if share is None:
        cells = [""] * 5
    else:
        columns = (share.allocated, share.requested, share.fair_share, share.quota, share.limit)
        cells = [amount(name, column) for column in columns]
    if view.wide:
        weight = f"{share.weight:g}" if share is not None else ""
        cells += [weight, str(queue.priority), str(queue.running), str(queue.waiting)]
    return cells


def _tree_names(queues: Sequence[QueueShare], marks: Marks) -> Iterator[str]:
    """Yield the names with lines to their parent queues."""
    for index, queue in enumerate(queues):
        lines = []
        for depth in range(1, queue.depth + 1):
            goes_on = _goes_on(queues, index, depth)
            if depth == queue.depth:
                lines.append(marks.branch if goes_on else marks.last)
            else:
                lines.append(marks.through if goes_on else "   ")
        missing = " (missing)" if queue.problem == ": ".join(missing_queue(queue.name)) else ""
        yield "".join(lines) + queue.name + missing


def _goes_on(queues: Sequence[QueueShare], index: int, depth: int) -> bool:
    """Return whether another queue of `depth` follows below the same queue."""
    for queue in queues[index + 1 :]:
        if queue.depth < depth:
            return False
        if queue.depth == depth:
            return True
    return False


def _ruler(scale: float, width: int, resource: str) -> str:
    """Return the heading of the bars: 0 at the left, the whole at the right."""
    whole = amount(resource, scale)
    return f"0{whole:>{width - 1}}"


def _coloured(drawn: str, marks: Marks) -> Text:
    text = Text(drawn)
    styles = {
        marks.held: "green",
        marks.wanted: "yellow",
        marks.nothing: "dim",
        marks.quota: "bold blue",
        marks.fair: "bold magenta",
        marks.limit: "bold red",
    }
    for position, character in enumerate(drawn):
        text.stylize(styles[character], position, position + 1)
    return text
