"""The queues of a user with read access to only one namespace.

The figures come from the status of the user's own gangs. Imports neither pydantic nor the
scheduler, which tables do not need.
"""

from collections.abc import Callable, Mapping
from typing import Final

from bindery.answers.amounts import plain
from bindery.answers.rows import Row
from bindery.kube.objects.podgroups import GangQueue
from bindery.kube.objects.snapshot import ClusterSnapshot

RULES: Final = ("quota", "fair_share", "allocated", "requested", "limit")
"""The fields of the figures of a queue."""


def queues_in(snapshot: ClusterSnapshot) -> dict[str, GangQueue]:
    """Return the figures of the queues of the gangs in `snapshot`, by name."""
    found = (group.status.queue_figures for group in snapshot.groups)
    return {each.name: each for each in found if each is not None}


def queue_wire(figures: GangQueue) -> object:
    """Return the figures of a queue for programs."""
    return {
        "name": figures.name,
        **{rule: getattr(figures, rule) for rule in RULES},
        "gangs": {"running": figures.gangs.running, "pending": figures.gangs.pending},
    }


def share_row(queue: GangQueue, resource: str, write: Callable[[str, str], str]) -> Row:
    """Return the row of `bindery queues` for `queue`; `write`: formats an amount of a resource."""

    def of(amounts: Mapping[str, str]) -> str:
        return write(resource, amounts.get(resource, "-"))

    return {
        "name": queue.name,
        "resource": resource,
        "allocated": of(queue.allocated),
        "requested": of(queue.requested),
        "fairShare": of(queue.fair_share),
        "quota": of(queue.quota),
        "limit": of(queue.limit),
        "running": queue.gangs.running,
        "waiting": queue.gangs.pending,
    }


def listed_row(queue: GangQueue) -> Row:
    """Return the row of `bindery get queues` for `queue`."""
    shares = {
        name: "/".join(
            plain(name, amount)
            for amount in (queue.allocated.get(name, "0"), queue.limit.get(name, "-"))
        )
        for name in ("gpu", "cpu", "memory")
    }
    return {
        "name": queue.name,
        "parent": "",
        "priority": "",
        "state": "",
        **shares,
        "kept": "",
        "running": queue.gangs.running,
        "waiting": queue.gangs.pending,
        "problem": "",
    }
