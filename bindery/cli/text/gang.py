"""The answer about a gang or a pod in lines. Used by `answer` of `bindery explain`."""

from collections.abc import Iterable, Iterator

from bindery.answers.evictions import GangEviction
from bindery.answers.explanation import JobAnswer, Standing
from bindery.cli.text.explanation import (
    outlook_lines,
    ranking_lines,
    some_lines,
    stage_lines,
    unserved_lines,
    waiting_lines,
)
from bindery.cli.text.state import are_needed, state_lines
from bindery.scheduler.insight.waiting import Explanation


def job_lines(answer: JobAnswer) -> list[str]:
    """Return the answer, line by line."""
    source, explained, condition = answer.source, answer.explained, answer.condition
    lines = state_lines(answer.snapshot, answer.about, answer.now)
    if source.unserved:
        lines += unserved_lines(source.unserved)
    if answer.other_scheduler:
        ours = source.configuration.scheduler_name
        return [*lines, f"It is planned by {answer.other_scheduler}, not by {ours}."]
    if explained is not None:
        evictions = eviction_lines(answer.evicted, explained.queue, answer.evicted_for_it)
        lines += some_lines(list(evictions))
        lines += stage_lines(explained.stages)
        is_in_message = condition is not None and explained.not_running in condition.message
        lines += (
            [f"{explained.not_running}."] if explained.not_running and not is_in_message else []
        )
    return [*lines, *_why(answer)]


def eviction_lines(
    own: GangEviction | None, queue: str, others: Iterable[GangEviction]
) -> Iterator[str]:
    """Yield the last evictions of a gang of `queue`, and the gangs evicted for it."""
    if own is not None:
        yield f"Evicted ({own.action}): {own.text}."
    lines = [f"  {each.job}: {each.text}" for each in others]
    if lines:
        yield f"Evicted for it, or in other namespaces for queue {queue}:"
        yield from lines


def _why(answer: JobAnswer) -> Iterator[str]:
    """Yield the reasons why the job waits, or that it does not wait."""
    explained = answer.explained
    match answer.standing:
        case Standing.NEEDS_GROUP:
            yield from _condition_lines(answer)
        case Standing.HAS_NO_PODS if explained is not None:
            yield from _empty_lines(answer, explained)
        case Standing.WAITS if explained is not None:
            yield from _waiting_lines(answer, explained)
            return  # the caller adds advice and nodes
        case _:
            yield "None of its pods waits for the scheduler."
            if answer.is_held:
                yield from _condition_lines(answer)
    if answer.advice:
        yield f"What to do: {answer.advice}"
    if answer.standing is Standing.NOT_WAITING and explained is not None:
        yield from ranking_lines(explained.rankings)


def _condition_lines(answer: JobAnswer) -> Iterator[str]:
    condition = answer.condition
    if condition is not None:
        yield f"The scheduler says: {condition.reason}: {condition.message}"


def _waiting_lines(answer: JobAnswer, explained: Explanation) -> Iterator[str]:
    if answer.is_held:
        yield from _condition_lines(answer)
    absence = answer.source.absence
    yield from outlook_lines(explained, absence)
    if explained.would_bind:
        if not answer.is_held and not absence:
            yield "If nothing happens, check that the scheduler runs."
        yield from ranking_lines(explained.rankings)
        return
    if answer.condition is None or answer.condition.message != explained.message:
        yield f"Held by: {explained.reason}: {explained.message}".rstrip(": ")
    yield from waiting_lines(explained)


def _empty_lines(answer: JobAnswer, explained: Explanation) -> Iterator[str]:
    """Yield the state of a gang without waiting or running pods."""
    if answer.condition is not None:
        yield from (line.rstrip(": ") for line in _condition_lines(answer))
    elif not explained.not_running:
        yield f"It has no pods yet: at least {are_needed(explained.min_member)}."
    if answer.queue_problem:
        yield f"Its queue: {answer.queue_problem}"
