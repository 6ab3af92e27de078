"""Defects to be put into the product on purpose, one at a time, each of which histories must find.

Each is data: what is replaced, by what, the first seed that is known to find it, and a text of the
problem that it then reports. `test_histories` plays them.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from bindery.binder.api_server.api_adapter import ApiAdapter
from bindery.binder.outcome.fencing import Fence
from bindery.binder.outcome.outcome import Verdict
from bindery.binder.outcome.retention import RetentionQueue
from bindery.binder.plugins.gpusharing.plugin import GpuSharing
from bindery.binder.plugins.gpusharing.reservations import Reservations
from bindery.binder.plugins.gpusharing.unused import UnusedGroups
from bindery.binder.plugins.gpusharing.users import Use, Users
from bindery.binder.run.pod_progress import BindingState
from bindery.binder.run.run import Run
from bindery.binder.run.transaction import BindTransaction
from bindery.binder.statements.entries import StatementEntry
from bindery.binder.statements.manager import Manager
from bindery.binder.statements.run_start import PodClaims
from bindery.grouper.writer import Writer
from bindery.kube.client import Client
from bindery.kube.lease import Observation
from bindery.kube.objects.resources import PODS
from bindery.nodeagent.kubelets import Kubelets
from bindery.nodeagent.nodes import NodeKeeper
from bindery.scheduler import process as scheduler_process
from bindery.scheduler.cache.charges import Charges
from bindery.scheduler.cache.cluster import Cluster
from bindery.scheduler.cache.expected_reservations import ExpectedReservations
from bindery.scheduler.cache.holds import Holds
from bindery.scheduler.cache.promises import Promises
from bindery.scheduler.commit.evictor import Evictor
from bindery.scheduler.commit.writer import RequestWriter
from bindery.scheduler.plugins.queuelimits import QueueLimits
from bindery.scheduler.solver import units
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


def _never_true() -> Break:
    async def done(*_arguments: Any, **_named: Any) -> bool:
        return True

    return lambda _right: done


def _without(*names: str) -> Break:
    """Leave out arguments by name."""

    def break_(right: Any) -> Any:
        def called(*arguments: Any, **named: Any) -> Any:
            return right(*arguments, **{k: v for k, v in named.items() if k not in names})

        return called

    return break_


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


def _bind_whatever_has_the_name(bind: Any) -> Any:
    async def bound(
        client: Any, namespace: str, name: str, _uid: str, *rest: Any, **more: Any
    ) -> None:
        await bind(client, namespace, name, "", *rest, **more)

    return bound


def _evict_whatever_has_the_name(_evict: Any) -> Any:
    async def evicted(
        client: Any, namespace: str, name: str, _uid: str, *, dry_run: bool = False
    ) -> None:
        if not dry_run:
            await client.delete(PODS, name, namespace)

    return evicted


async def _forget_to_roll_back(_transaction: Any, pods: Any) -> None:
    for pod in pods:
        pod.prepared = False


def _retry_for_ever(attempt: Any) -> Any:
    async def attempted(transaction: Any, *, last: bool) -> Any:
        outcome = await attempt(transaction, last=last)
        return (
            replace(outcome, verdict=Verdict.RETRY)
            if outcome.verdict is Verdict.FAILED
            else outcome
        )

    return attempted


async def _unused(*_arguments: Any, **_named: Any) -> Use:
    return Use(on_node=False, on_the_way=False)


def _without_its_version(right: Any) -> Any:
    async def delete(
        client: Any, *arguments: Any, resource_version: Any = None, **named: Any
    ) -> None:
        del resource_version
        await right(client, *arguments, **named)

    return delete


async def _keep_labels(_plugin: Any, _context: Any) -> None: ...


def _create_twice(create: Any) -> Any:
    async def created(writer: Any, wanted: Any) -> None:
        await create(writer, wanted)
        await create(writer, replace(wanted, name=f"{wanted.name}-again"))

    return created


async def _update_nothing(*_arguments: Any) -> list[Any]:
    return []


def _keep_the_older(offer: Any) -> Any:
    def offered(writer: Any, write: Any) -> None:
        if write.meta.uid not in writer._written:
            offer(writer, write)

    return offered


def _settle_as_unbound(settle: Any) -> Any:
    async def settled(transaction: Any, pod: Any, error: Any) -> None:
        await settle(transaction, pod, error)
        pod.step = BindingState.WAITING

    return settled


async def _is_there(*_arguments: Any) -> bool:
    return True


PLANTED: Final = (
    # the scheduler's cache
    Planted("a deletion is not applied", Cluster, "apply", _forget_no_bound_pod),
    Planted("an event is applied twice", Charges, "enter", _enter_twice),
    Planted("a withdrawn request keeps its holds", Holds, "remove", _always(())),
    Planted("expectations are never dropped", ExpectedReservations, "due", _always([])),
    Planted("nothing is expected", ExpectedReservations, "expect", _always(())),
    Planted("a refused commit keeps its places", Cluster, "forget", _always(None)),
    Planted("promises are not taken back", Promises, "forget", _always(None)),
    Planted("promises do not expire", Promises, "expire", _always(None)),
    Planted("a refused eviction counts", Cluster, "not_evicted", _always(None)),
    Planted("limits are ignored", QueueLimits, "over_capacity", _always(None)),
    Planted("all may be evicted", units, "_is_protected", _always(False)),
    # its commits
    Planted("stale requests are not deleted", RequestWriter, "_remove", _never()),
    Planted("Statements are not withdrawn", RequestWriter, "_withdraw", _never()),
    Planted("any request is the own one", RequestWriter, "_exists", lambda _: _is_there),
    Planted("lost requests are not looked up", RequestWriter, "look_up", _always(None)),
    Planted("terms are not announced", scheduler_process, "announce", _never()),
    Planted("evictions of plans are not tried", Evictor, "_try", _never()),
    Planted("evictions do not end with the term", Evictor, "stop", _never()),
    Planted("eviction by name", Client, "evict", _evict_whatever_has_the_name),
    # binder
    Planted(
        "a rollback is forgotten", BindTransaction, "_roll_back", lambda _: _forget_to_roll_back
    ),
    Planted("binding by name", Client, "bind", _bind_whatever_has_the_name),
    Planted("attempts do not end", BindTransaction, "attempt", _retry_for_ever),
    Planted("the fence is not checked", Fence, "refusal", _always(None)),
    Planted("a copy is executed too", StatementEntry, "other_carrier", _always(None)),
    Planted("gangs are bound in part", BindTransaction, "_may_bind", _always(True)),
    Planted("two Runs may have a pod", PodClaims, "claim", _always([])),
    Planted("requests go with one outcome", Manager, "is_needed", _always(False)),
    Planted("finished requests stay", RetentionQueue, "run", _never()),
    Planted("an unknown outcome is a failure", BindTransaction, "_settle", _settle_as_unbound),
    Planted("requests are not read again", ApiAdapter, "confirm", lambda _: _confirm_nothing),
    Planted("an interruption is ignored", Run, "interrupt", _always(None)),
    # shares of GPUs
    Planted("used reservations are deleted", Users, "of", lambda _: _unused),
    Planted("reservations stay", UnusedGroups, "_look", _never()),
    Planted("reservations are not released", Reservations, "release", _never_true()),
    Planted("deletion of any version", Client, "delete", _without_its_version),
    Planted("groups are not removed", GpuSharing, "rollback", lambda _: _keep_labels),
    Planted("no user writes to the reservation", Reservations, "_count_on", _never_true()),
    # grouper
    Planted("a PodGroup is made twice", Writer, "_create", _create_twice),
    Planted("PodGroups are not updated", Writer, "_update", lambda _: _update_nothing),
    # status
    Planted("the first condition stays", StatusWriter, "offer", _keep_the_older),
    # hollow agent
    Planted("nodes keep the room of ended pods", Kubelets, "release", _always(None)),
    Planted("existing nodes are not adopted", NodeKeeper, "_adopt", _never()),
    # Leases
    Planted("a held Lease is taken", Observation, "is_held_by_other", _always(False)),
)


async def _confirm_nothing(_adapter: Any, statement: Any) -> Any:
    return statement
