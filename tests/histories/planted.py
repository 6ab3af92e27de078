"""Defects to be put into the product on purpose, one at a time, each of which histories must find.

Each is data: what is replaced, by what, the first seed that is known to find it, and a text of the
problem that it then reports. `test_histories` plays them.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from bindery.binder.api_server.api_adapter import ApiAdapter
from bindery.binder.outcome.retention import RetentionQueue
from bindery.binder.plugins.gpusharing.unused import UnusedGroups
from bindery.binder.run.run import Run
from bindery.grouper.writer import Writer
from bindery.kube.client import Client
from bindery.kube.lease import Observation
from bindery.kube.objects.resources import PODS
from bindery.nodeagent.kubelets import Kubelets
from bindery.scheduler.cache.charges import Charges
from bindery.scheduler.cache.cluster import Cluster
from bindery.scheduler.cache.holds import Holds
from bindery.scheduler.plugins.queuelimits import QueueLimits
from bindery.scheduler.status.writer import StatusWriter

Break = Callable[[Any], Any]
"""Returns the broken replacement of what it is given."""


@dataclass(frozen=True)
class Planted:
    """One defect."""

    name: str
    owner: Any
    attribute: str
    broken: Break
    first: int = 0
    """The first seed that is known to find it."""
    found: str = ""
    """A text of the problem."""


def _always(answer: Any) -> Break:
    return lambda _right: lambda *_arguments, **_named: answer


def _never() -> Break:
    """Let a coroutine function do nothing."""

    async def nothing(*_arguments: Any, **_named: Any) -> None: ...

    return lambda _right: nothing


def _forget_no_bound_pod(apply: Any) -> Any:
    """Apply all changes but deletions of pods that run."""

    def applied(cluster: Any, change: Any) -> Any:
        pod = change.object
        if change.type == "DELETED" and type(pod).__name__ == "Pod" and pod.spec.node_name:
            change = replace(change, type="MODIFIED")
        return apply(cluster, change)

    return applied


def _enter_twice(enter: Any) -> Any:
    def entered(charges: Any, task: Any) -> None:
        enter(charges, task)
        if task.status.holds_room and task.uid.endswith(("0", "1", "2")):
            enter(charges, task)

    return entered


def _evict_whatever_has_the_name(_evict: Any) -> Any:
    async def evicted(
        client: Any, namespace: str, name: str, _uid: str, *, dry_run: bool = False
    ) -> None:
        if not dry_run:
            await client.delete(PODS, name, namespace)

    return evicted


def _create_twice(create: Any) -> Any:
    async def created(writer: Any, wanted: Any) -> None:
        await create(writer, wanted)
        await create(writer, replace(wanted, name=f"{wanted.name}-again"))

    return created


def _without_end(client: Any, _is_valid: Any) -> Any:
    return client


async def _update_nothing(*_arguments: Any) -> list[Any]:
    return []


def _keep_the_older(offer: Any) -> Any:
    def offered(writer: Any, write: Any) -> None:
        if write.meta.uid not in writer._written:
            offer(writer, write)

    return offered


PLANTED: Final = (
    Planted("a deletion is not applied", Cluster, "apply", _forget_no_bound_pod, 1, "at rest"),
    Planted("an event is applied twice", Charges, "enter", _enter_twice, 2, "at rest"),
    Planted("a withdrawn request keeps its holds", Holds, "remove", _always(()), 4, "has no users"),
    Planted("limits are ignored", QueueLimits, "over_capacity", _always(None), 2, "with a limit"),
    Planted("eviction by name", Client, "evict", _evict_whatever_has_the_name, 1, "deletes pod"),
    Planted("finished requests stay", RetentionQueue, "run", _never(), 0, "is left"),
    Planted("reservations stay", UnusedGroups, "look_at", _always(None), 2, "has no users"),
    Planted("a PodGroup is made twice", Writer, "_create", _create_twice, 0, "PodGroups"),
    Planted(
        "PodGroups are not updated",
        Writer,
        "_update",
        lambda _: _update_nothing,
        8,
        "has minMember",
    ),
    Planted("the first condition stays", StatusWriter, "offer", _keep_the_older, 0, "tells of"),
    Planted("nodes keep the room of ended pods", Kubelets, "release", _always(None), 4, "at rest"),
    Planted("Jobs get no PodGroup", Writer, "_create", _never(), 0, "PodGroups"),
    Planted("outcomes are not written", Run, "_conclude", _never(), 0, "is left"),
    Planted("announcements are not read", ApiAdapter, "acknowledge", _never(), 1, "term"),
    Planted("a term has no end", Client, "within", lambda _: _without_end, 13, "without a request"),
    Planted("a held Lease is taken", Observation, "is_held_by_other", _always(False), 1, "is left"),
)
