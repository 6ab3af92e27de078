"""What a session asks about the past: what each queue has used.

The engine hands one source to every session, which tells it what queues hold at that moment. No
I/O: `record.py` remembers by itself, and what comes from elsewhere is put into a `GivenUsage`.
Invariant: asking twice at the same moment gives the same answer.
"""

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from bindery.api.usage import UsageConfiguration
from bindery.scheduler.model.resources import full_name
from bindery.scheduler.usage.formula import Amounts, Decay, Moment
from bindery.scheduler.usage.record import UsageRecord


class UsageSource(Protocol):
    """Knows past usage."""

    def account(self, moment: Moment) -> Amounts:
        """Take note of `moment`; return usage as a part of capacity [resource, queue]."""
        ...


class GivenUsage:
    """Usage that somebody else measures."""

    def __init__(self, parts: Mapping[str, Mapping[str, float]] | None = None) -> None:
        self.parts: Mapping[str, Mapping[str, float]] = parts or {}
        """Queue -> resource -> part of capacity; replaced as a whole when it is known anew."""

    def account(self, moment: Moment) -> Amounts:
        """Return what is given; a queue or resource that is not named has used nothing."""
        usage = np.zeros((len(moment.resources), len(moment.queues)))
        if not self.parts:
            return usage
        rows = {name: index for index, name in enumerate(moment.resources)}
        for column, queue in enumerate(moment.queues):
            for resource, part in self.parts.get(queue, {}).items():
                row = rows.get(full_name(resource))
                if row is not None:
                    usage[row, column] = part
        return usage


class PastUsage:
    """Past usage, and how strongly it counts."""

    def __init__(self, source: UsageSource, k_value: float) -> None:
        self.source = source
        self.k_value = k_value
        self.latest: tuple[Moment, Amounts] | None = None
        """What was last accounted for, and usage [resource, queue] as of then."""

    def configure(self, configuration: UsageConfiguration) -> None:
        """Weigh the past by `configuration` from now on; the source stays what it is."""
        self.k_value = configuration.k_value
        if isinstance(self.source, UsageRecord):
            self.source.configure(decay_of(configuration))

    def account(self, moment: Moment) -> Amounts:
        """Take note of `moment`; return usage as a part of capacity [resource, queue]."""
        parts = self.source.account(moment)
        self.latest = moment, parts
        return parts


def past_usage(configuration: UsageConfiguration) -> PastUsage:
    """Return the source that `configuration` asks for, in which nothing is known yet."""
    source: UsageSource = GivenUsage()
    if configuration.source == "record":
        source = UsageRecord(decay_of(configuration))
    return PastUsage(source, configuration.k_value)


def decay_of(configuration: UsageConfiguration) -> Decay:
    """Return how much the past counts by `configuration`."""
    return Decay(configuration.window_seconds, configuration.half_life_seconds)


def nothing_past() -> PastUsage:
    """Return usage of which nothing is known: it has no effect."""
    return PastUsage(GivenUsage(), 0.0)
