"""Defects to be put into the product on purpose, one at a time, each of which histories must find.

Each is data: what is replaced, by what, and the first seed that is known to find it. After worlds
have changed, `python -m tests.histories --planted` prints the first seeds of today.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from inspect import getsource
from textwrap import dedent
from typing import Any, Final

from bindery.binder.api_server.api_adapter import ApiAdapter
from bindery.binder.outcome.fencing import Fence
from bindery.binder.outcome.outcome import Verdict
from bindery.binder.outcome.retention import RetentionQueue
from bindery.binder.plugins.dra.plugin import DynamicResources
from bindery.binder.plugins.gpusharing.plugin import GpuSharing
from bindery.binder.plugins.gpusharing.unused import UnusedGroups
from bindery.binder.plugins.gpusharing.users import Use, Users
from bindery.binder.plugins.hami.queues import LockQueues
from bindery.binder.plugins.volumes.writes import VolumeWriter
from bindery.binder.run.run import Run
from bindery.binder.run.transaction import BindTransaction
from bindery.binder.statements.manager import Manager
from bindery.grouper.writer import Writer
from bindery.kube.client import Client
from bindery.kube.http.carrier import LeftWrites
from bindery.kube.lease import Observation
from bindery.kube.objects.resources import PODS
from bindery.kube.watches.store import Store
from bindery.nodeagent import pod_status
from bindery.nodeagent.kubelets import Kubelets
from bindery.nodeagent.pods import PodKeeper
from bindery.scheduler import engine
from bindery.scheduler import process as scheduler_process
from bindery.scheduler.actions import holding
from bindery.scheduler.actions.reclaim import ReclaimRule
from bindery.scheduler.cache.charges import Charges
from bindery.scheduler.cache.cluster import Cluster
from bindery.scheduler.cache.expected_reservations import ExpectedReservations
from bindery.scheduler.cache.holds import Holds
from bindery.scheduler.cache.promises import Promises
from bindery.scheduler.cache.staleness import StalenessMemory
from bindery.scheduler.commit.evictor import Evictor
from bindery.scheduler.commit.writer import RequestWriter
from bindery.scheduler.engine import Engine
from bindery.scheduler.loop import SchedulingLoop
from bindery.scheduler.plugins.queuelimits import QueueLimits
from bindery.scheduler.solver import protection, units
from bindery.scheduler.status import conditions
from bindery.scheduler.status.queue_amounts import QueueAmounts
from bindery.scheduler.status.writer import StatusWriter
from tests.histories.drawing import draw
from tests.histories.history import play
from tests.histories.plan import ActKind, Plan

_READ_AGAIN: Final = """        await self._check(self._open())
        if self._may_bind():
            await self._for_each((p for p in concerned if p.is_open), self._confirm)
"""
_WAIT_FOR_THE_END: Final = """await asyncio.sleep(self._engine.configuration.cycle_seconds)
            continue"""
SOON_S: Final = 60.0
"""Time to come to rest where a defect prevents it."""

Break = Callable[[Any], Any]
"""Returns the broken replacement of what it is given."""


def _anything(_plan: Plan) -> bool:
    return True


@dataclass(frozen=True)
class Planted:
    """One defect."""

    part: str
    name: str
    owner: Any
    attribute: str
    broken: Break
    first: int = 0
    """The first seed that is known to find it."""
    shows_in: Callable[[Plan], bool] = _anything
    """In which histories it can show; the others are not played."""


@dataclass(frozen=True)
class Finding:
    """A history that passes without a defect, and not with it."""

    seed: int
    problem: str


@contextmanager
def put_in(defect: Planted) -> Iterator[None]:
    """Put a defect into the product while the body runs."""
    stored = defect.owner.__dict__[defect.attribute]
    right = getattr(defect.owner, defect.attribute)
    setattr(defect.owner, defect.attribute, defect.broken(right))
    try:
        yield
    finally:
        setattr(defect.owner, defect.attribute, stored)


def finding(defect: Planted, seeds: range) -> Finding | None:
    """Play a defect until a history finds it."""
    for seed in seeds:
        plan = draw(seed)
        if not defect.shows_in(plan):
            continue
        with put_in(defect):
            problem = _problem(plan)
        if problem and not _problem(plan):
            return Finding(seed, problem)
    return None


def _problem(plan: Plan) -> str:
    """Return how a history ends. A world may meet what it takes for impossible, too."""
    try:
        return play(plan, SOON_S).problem
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def _always(answer: Any) -> Break:
    return lambda _right: lambda *_arguments, **_named: answer


def _never(answer: Any = None) -> Break:
    """Let a coroutine function do nothing."""

    async def nothing(*_arguments: Any, **_named: Any) -> Any:
        return answer

    return lambda _right: nothing


def _edited(old: str, new: str) -> Break:
    """Compile a function of the product again, with one place of its text changed."""

    def broken(right: Any) -> Any:
        text = dedent(getsource(right))
        assert text.count(old) == 1, f"{right.__qualname__} has not one {old!r}"
        made: dict[str, Any] = {}
        exec(text.replace(old, new), right.__globals__, made)
        return made[right.__name__]

    return broken


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


def _let_each_announcement_go(_keep: Any) -> Any:
    return lambda _fence, announcement: announcement


def _keep_what_is_dropped(drop: Any) -> Any:
    """Keep what the request of a pod had for the binder, even after the pod is gone."""

    def dropped(holds: Any, uid: Any) -> None:
        hold = holds.get(uid)
        if hold is not None and hold.data:
            holds.settled[uid] = replace(hold, is_bound=False)
        drop(holds, uid)

    return dropped


def _evict_whatever_has_the_name(_evict: Any) -> Any:
    async def evicted(
        client: Any, namespace: str, name: str, _uid: str, *, dry_run: bool = False
    ) -> None:
        if not dry_run:
            await client.delete(PODS, name, namespace)

    return evicted


def _bind_whatever_has_the_name(bind: Any) -> Any:
    async def bound(
        client: Any, namespace: str, name: str, _uid: str, *rest: Any, **more: Any
    ) -> None:
        await bind(client, namespace, name, "", *rest, **more)

    return bound


def _without(argument: str) -> Break:
    def broken(right: Any) -> Any:
        async def called(*arguments: Any, **named: Any) -> Any:
            named.pop(argument, None)
            return await right(*arguments, **named)

        return called

    return broken


async def _forget_to_roll_back(_transaction: Any, pods: Any) -> None:
    for pod in pods:
        pod.prepared = pod.in_doubt = False


def _void_nothing(_right: Any) -> Any:
    async def void(_transaction: Any, pod: Any) -> None:
        pod.in_doubt = False

    return void


def _try_for_ever(attempt: Any) -> Any:
    async def attempted(transaction: Any, *, last: bool) -> Any:
        outcome = await attempt(transaction, last=last)
        is_failure = outcome.verdict is Verdict.FAILED
        return replace(outcome, verdict=Verdict.RETRY) if is_failure else outcome

    return attempted


def _create_twice(create: Any) -> Any:
    async def created(writer: Any, wanted: Any) -> None:
        await create(writer, wanted)
        await create(writer, replace(wanted, name=f"{wanted.name}-again"))

    return created


def _keep_the_older(offer: Any) -> Any:
    def offered(writer: Any, write: Any) -> None:
        if write.meta.uid not in writer._written:
            offer(writer, write)

    return offered


def _free(held: Any) -> Any:
    """Judge that every lock may be taken."""

    async def judged(*arguments: Any) -> Any:
        return replace(await held(*arguments), may_be_taken=True)

    return judged


def _volumes(plan: Plan) -> bool:
    return plan.ground.has_volumes


def _devices(plan: Plan) -> bool:
    return plan.ground.devices > 0


def _cards(plan: Plan) -> bool:
    return plan.ground.card_nodes > 0


def _stages(plan: Plan) -> bool:
    return any(gang.needs is not None and gang.needs.stage is not None for gang in plan.gangs)


def _shares(plan: Plan) -> bool:
    return plan.gpus > 0 and any(gang.fraction for gang in plan.gangs)


def _splits(plan: Plan) -> bool:
    return plan.max_pods < 500


def _scarce(plan: Plan) -> bool:
    return any(gang.name.startswith("share") for gang in plan.gangs)


def _crowded(plan: Plan) -> bool:
    return any(act.kind is ActKind.TAKE_ROOM for act in plan.acts)


def _late(plan: Plan) -> bool:
    return any(gang.name.startswith("late") for gang in plan.gangs)


_CACHE: Final = "cache"
_COMMIT: Final = "commits"
_EVICTIONS: Final = "evictions"
_BINDER: Final = "binder"
_GPUS: Final = "shares of GPUs"
_NEEDS: Final = "volumes, devices, cards, stages"
_OTHERS: Final = "grouper, status, nodes, Leases"

PLANTED: Final = (
    Planted(_CACHE, "a deletion is not applied", Cluster, "apply", _forget_no_bound_pod, 1),
    Planted(_CACHE, "an event is applied twice", Charges, "enter", _enter_twice),
    Planted(_CACHE, "a withdrawn request keeps its holds", Holds, "remove", _always(())),
    Planted(_CACHE, "expectations are never dropped", ExpectedReservations, "due", _always([]), 1),
    Planted(_CACHE, "a refused commit keeps its places", Cluster, "forget", _always(None), 3),
    Planted(
        _CACHE, "devices of pods that are gone stay", Holds, "drop", _keep_what_is_dropped, 136,
        _devices,
    ),
    Planted(
        _CACHE, "a list misses deletions", Store, "reconcile",
        _edited("if key not in by_key]", "if False]"), 23,
    ),
    Planted(_CACHE, "promised places stay", Promises, "settle", _always(None), 20),
    Planted(_COMMIT, "limits are ignored", QueueLimits, "over_capacity", _always(None), 2),
    Planted(
        _COMMIT, "stale requests are not deleted", RequestWriter, "_remove", _never(), 43, _splits
    ),
    Planted(_COMMIT, "parts of a refused gang stay", RequestWriter, "_take_back", _never(), 69),
    Planted(_COMMIT, "any request is the own one", RequestWriter, "_exists", _never(True), 58),
    Planted(
        _COMMIT, "lost requests are not looked up", RequestWriter, "look_up", _always(None), 43
    ),
    Planted(_COMMIT, "Statements are not withdrawn", RequestWriter, "_withdraw", _never(), 147),
    Planted(_COMMIT, "terms are not announced", scheduler_process, "announce", _never()),
    Planted(
        _COMMIT, "a term that ends before its first cycle spins", SchedulingLoop, "run",
        _edited(_WAIT_FOR_THE_END, "continue"), 2649,
    ),
    Planted(_EVICTIONS, "all may be evicted", units, "_is_protected", _always(False), 15),
    Planted(
        _EVICTIONS, "reclaim takes from every queue", ReclaimRule, "_may_lose", _always(True), 30
    ),
    Planted(
        _EVICTIONS, "a pod of a dropped plan counts as going", Engine, "_spare",
        _edited("in plan.left:", "in plan.left[1:]:"), 1,
    ),
    Planted(
        _EVICTIONS, "minimum runtimes are ignored", protection, "min_runtime_s", _always(0.0), 49,
        lambda plan: plan.min_runtime_s > 0,
    ),
    Planted(
        _EVICTIONS, "broken gangs get no grace period", StalenessMemory, "of",
        _edited("Staleness(min(max(times), latest)", "Staleness(at - 600.0"), 66,
    ),
    Planted(_EVICTIONS, "budgets are counted once", Evictor, "_beyond_budgets", _always(None), 127),
    Planted(_EVICTIONS, "evictions are not tried first", Evictor, "_try", _never(), 2),
    Planted(_EVICTIONS, "eviction by name", Client, "evict", _evict_whatever_has_the_name, 2),
    Planted(_BINDER, "binding without UID", Client, "bind", _bind_whatever_has_the_name),
    Planted(_BINDER, "binding of any version", Client, "bind", _without("version")),
    Planted(
        _BINDER, "a rollback is forgotten", BindTransaction, "_roll_back",
        lambda _: _forget_to_roll_back, 7,
    ),
    Planted(
        _BINDER, "gangs are bound in part", BindTransaction, "_may_bind", _always(True), 57,
        _scarce,
    ),
    Planted(_BINDER, "attempts do not end", BindTransaction, "attempt", _try_for_ever, 7),
    Planted(_BINDER, "attempts without a pause", Run, "_backoff_s", _always(0.0), 0, _scarce),
    Planted(_BINDER, "the fence is not checked", Fence, "refusal", _always(None), 32, _late),
    Planted(
        _BINDER, "a withdrawal is ignored", Manager, "_fence_of",
        _edited("if statement.is_withdrawn:", "if False:"), 147,
    ),
    Planted(
        _BINDER, "a term has no end", Client, "within", lambda _: lambda client, _valid: client, 1
    ),
    Planted(_BINDER, "an interruption is ignored", Run, "interrupt", _always(None), 69),
    Planted(_BINDER, "finished requests stay", RetentionQueue, "run", _never(), 0),
    Planted(_BINDER, "outcomes are not written", Run, "_conclude", _never(), 0),
    Planted(_BINDER, "announcements are not read", ApiAdapter, "acknowledge", _never(), 0),
    Planted(
        _BINDER, "no announcement stays", Fence, "keep", _let_each_announcement_go, 3098, _late
    ),
    Planted(_GPUS, "reservations stay", UnusedGroups, "look_at", _always(None), 1, _shares),
    Planted(
        _GPUS, "used reservations are deleted", Users, "of",
        _never(Use(on_node=False, on_the_way=False)), 0, _shares,
    ),
    Planted(_GPUS, "groups stay on pods", GpuSharing, "rollback", _never(), 14, _shares),
    Planted(
        _NEEDS, "the node on a claim stays", VolumeWriter, "deselect", _never(), 7, _volumes
    ),
    Planted(
        _NEEDS, "reservations of devices stay", DynamicResources, "rollback", _never(), 31,
        _devices,
    ),
    Planted(_NEEDS, "locks are taken from anybody", LockQueues, "_held", _free, 1, _cards),
    Planted(
        _NEEDS, "kept room is never given back", holding, "_is_kept", _always(True), 21, _stages
    ),
    Planted(
        _NEEDS, "kept room is given back too early", holding, "_is_kept",
        _edited("session.now < until", "session.now < until - 5"), 90,
    ),
    Planted(
        _NEEDS, "kept room is not found again", engine, "hold_rooms", _always(None), 25, _stages
    ),
    Planted(_OTHERS, "a PodGroup is made twice", Writer, "_create", _create_twice, 0),
    Planted(_OTHERS, "PodGroups are not updated", Writer, "_update", _never([]), 8),
    Planted(_OTHERS, "Jobs get no PodGroup", Writer, "_create", _never(), 0),
    Planted(_OTHERS, "the first condition stays", StatusWriter, "offer", _keep_the_older, 0),
    Planted(
        _OTHERS, "a conflict is not noted", StatusWriter, "_note_conflict", _always(None), 232
    ),
    Planted(_OTHERS, "nodes keep the room of ended pods", Kubelets, "release", _always(None), 1),
    Planted(
        _OTHERS, "a pod's status is written by name", pod_status, "_patch",
        _edited('"metadata": {"uid": pod.metadata.uid}, ', ""), 1,
    ),
    Planted(
        _OTHERS, "refused pods are started", PodKeeper, "_refusal",
        _edited("None if answer.admit else Refuse(answer)", "None"), 74, _crowded,
    ),
    Planted(_OTHERS, "waiting pods do not say why", conditions, "_pod_writes", _always(())),
    Planted(
        _OTHERS, "queues count no GPUs", QueueAmounts, "_texts",
        _edited("for i in indices", "for i in indices if names[i] != GPU_RESOURCE"), 8,
        lambda plan: plan.gpus > 0,
    ),
    Planted(_OTHERS, "a held Lease is taken", Observation, "is_held_by_other", _always(False), 1),
)  # fmt: skip

MISSED: Final = (
    Planted(_EVICTIONS, "a refused eviction counts", Cluster, "not_evicted", _always(None)),
    Planted(_CACHE, "promises are not taken back", Promises, "forget", _always(None)),
    Planted(
        _BINDER, "late bindings are not made void", BindTransaction, "_void_bindings",
        _void_nothing,
    ),
    Planted(_BINDER, "requests go before all parts end", Manager, "is_needed", _always(False)),
    Planted(
        _BINDER, "writes of interrupted steps are not waited for", LeftWrites, "ended", _never()
    ),
    Planted(
        _BINDER, "pods are not read again after they were prepared", BindTransaction, "attempt",
        _edited(_READ_AGAIN, ""),
    ),
)  # fmt: skip
"""Defects that histories have not found yet; why is in docs/failure-histories.md."""
