"""Sources of past usage for sessions.

The engine passes one source to every session, and the session adds the present amounts of queues.
No I/O: `record.py` computes usage itself, and fetched usage is put into a `GivenUsage`. Invariant:
two calls with the same moment return the same usage.
"""

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from bindery.api.usage import UsageConfiguration
from bindery.scheduler.model.resources import full_name
from bindery.scheduler.usage.formula import Amounts, Decay, History, Moment
from bindery.scheduler.usage.record import UsageRecord

UsageSoFar = History | Mapping[str, Mapping[str, float]]
"""The scheduler's record of past usage; or queue -> resource -> part of the capacity."""


class UsageSource(Protocol):
    """A source of past usage."""

    def account(self, moment: Moment) -> Amounts:
        """Record `moment`; return usage as a part of capacity [resource, queue]."""


class GivenUsage:
    """Usage that is measured elsewhere."""

    def __init__(self, parts: Mapping[str, Mapping[str, float]] | None = None) -> None:
        self.parts: Mapping[str, Mapping[str, float]] = parts or {}
        """Queue -> resource -> part of capacity; always replaced as a whole."""

    def account(self, moment: Moment) -> Amounts:
        """Return the given usage; 0 for queues and resources that are not in it."""
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
    """Past usage and its weight."""

    def __init__(self, source: UsageSource, k_value: float) -> None:
        self.source = source
        self.k_value = k_value
        self.latest: tuple[Moment, Amounts] | None = None
        """The last moment, and usage [resource, queue] at that time."""

    def configure(self, configuration: UsageConfiguration) -> None:
        """Use the weights of `configuration` from now on; the source stays the same."""
        self.k_value = configuration.k_value
        if isinstance(self.source, UsageRecord):
            self.source.configure(decay_of(configuration))

    def account(self, moment: Moment) -> Amounts:
        """Record `moment`; return usage as a part of capacity [resource, queue]."""
        parts = self.source.account(moment)
        self.latest = moment, parts
        return parts


def past_usage(configuration: UsageConfiguration, so_far: UsageSoFar | None = None) -> PastUsage:
    """Return the source of `configuration` with the usage `so_far`."""
    source: UsageSource = GivenUsage()
    if so_far and not isinstance(so_far, History):
        source = GivenUsage(so_far)
    elif configuration.source == "record":
        source = record = UsageRecord(decay_of(configuration))
        if isinstance(so_far, History):
            record.precede(so_far)
    return PastUsage(source, configuration.k_value)


def decay_of(configuration: UsageConfiguration) -> Decay:
    """Return the weights of the past by `configuration`."""
    return Decay(configuration.window_seconds, configuration.half_life_seconds)


def nothing_past() -> PastUsage:
    """Return a source without usage, which has no effect."""
    return PastUsage(GivenUsage(), 0.0)
