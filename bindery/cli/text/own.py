"""Answers for a user with rights in one namespace, in lines. Used by `bindery.cli.explain.own`."""

from collections.abc import Iterator

from bindery.answers.amounts import ordinal, plain, title
from bindery.answers.own import OwnAnswer
from bindery.answers.ownqueues import RULES
from bindery.cli.text.gang import eviction_lines
from bindery.cli.text.state import state_lines
from bindery.kube.objects.podgroups import GangQueue, Turn


def own_lines(answer: OwnAnswer) -> list[str]:
    """Return the recorded state of a gang or a pod, line by line."""
    lines = state_lines(answer.snapshot, answer.about, answer.now)
    lines += eviction_lines(answer.evicted, "", ())
    condition = answer.condition
    if condition is not None and answer.is_held:
        lines.append(f"The scheduler says: {condition.reason}: {condition.message}".rstrip(": "))
    if answer.turn is not None:
        lines.append(turn_text(answer.turn))
    if answer.figures is not None:
        lines += _share_lines(answer.figures)
    if answer.advice:
        lines.append(f"What to do: {answer.advice}")
    lines.append(
        "This is the recorded status. Users with the ClusterRole bindery-reader also get a plan "
        "and the nodes."
    )
    return lines


def turn_text(turn: Turn) -> str:
    """Return the place of a gang as a sentence."""
    ahead = turn.place - 1
    before = "nobody comes before it" if not ahead else f"{ahead} come before it"
    if ahead == 1:
        before = "one comes before it"
    return (
        f"Its turn: {ordinal(turn.place)} of {turn.of} that wait for room, "
        f"{ordinal(turn.place_in_queue)} of {turn.of_queue} in its queue; {before}."
    )


def own_queue_lines(figures: GangQueue) -> Iterator[str]:
    """Yield the figures of a queue."""
    gangs = figures.gangs
    yield f"Queue {figures.name}: {gangs.running} gangs run, {gangs.pending} wait."
    yield from _share_lines(figures)


def _share_lines(figures: GangQueue) -> Iterator[str]:
    """Yield a table of the queue: one line for each resource that is held, requested or limited."""
    names = {name for rule in RULES for name in getattr(figures, rule)}
    yield f"Queue {figures.name}:"
    headings = "  ".join(f"{rule.replace('_', ' '):>10}" for rule in RULES)
    yield f"  {'':<12}  {headings}"
    for name in sorted(names):
        cells = (plain(name, getattr(figures, rule).get(name, "-")) for rule in RULES)
        yield f"  {title(name):<12}  {'  '.join(f'{cell:>10}' for cell in cells)}"
