"""Limits and nodes hold at every binding, while watches lag and nodes are deleted under load.

An API server, a binder and the garbage collector of pods act on the current
objects. The scheduler observes them by one watch a kind, each of which may lag behind the others,
miss events and list again.
"""

from collections import defaultdict, deque
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bindery.api.times import timestamp
from bindery.kube.objects import watched as kube
from bindery.kube.objects.bindrequests import BindRequest, CommittedStatement, StatementStatus
from bindery.kube.objects.podgroups import PodGroup
from bindery.kube.objects.queues import Queue
from bindery.kube.watches.store import EventType, Store
from bindery.scheduler.cache.feed import statement_changes
from tests.scheduler.recounting import recount, view
from tests.scheduler.schedulerworld import (
    Clock,
    as_created,
    engine_with,
    gang,
    node,
    queue,
    shared_request,
)
from tests.sizes import examples

LIMIT, NODE_CORES = 8, 6
NODES = ("a", "b", "c")
Kind = type[kube.KubeObject]
KINDS: tuple[Kind, ...] = (BindRequest, kube.Pod, kube.Node, PodGroup, Queue)
"""In the order in which a new leader lists them."""


class LaggingCluster:
    """A limited queue, in a cluster whose nodes come and go."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.clock = Clock()
        self.truth: dict[tuple[Kind, str], Any] = {}
        self.untold: defaultdict[Kind, deque[tuple[bool, Any]]] = defaultdict(deque)
        """Kind -> the events that its watch has not delivered: whether it is a deletion, object."""
        self.version = self.made = 0
        for item in (queue("q", cpu=LIMIT), *(node(name, NODE_CORES) for name in NODES)):
            self.put(item)
        self.start()
        for kind in KINDS:
            self.list_again(kind)

    # -- the API server ------------------------------------------------------------------------

    def put(self, item: kube.KubeObject) -> None:
        self.version += 1
        meta = msgspec.structs.replace(item.metadata, resource_version=str(self.version))
        item = msgspec.structs.replace(item, metadata=meta)
        self.truth[type(item), meta.name] = item
        self.untold[type(item)].append((False, item))

    def drop(self, item: kube.KubeObject) -> None:
        del self.truth[type(item), item.metadata.name]
        self.untold[type(item)].append((True, item))

    def all_of(self, kind: Kind) -> list[Any]:
        return [item for (of, _), item in self.truth.items() if of is kind]

    def requests(self) -> list[CommittedStatement]:
        return [each for stored in self.all_of(BindRequest) for each in stored.each()]

    def holders(self) -> list[kube.Pod]:
        """Return the pods that are bound and have not ended."""
        return [
            pod
            for pod in self.all_of(kube.Pod)
            if pod.spec.node_name and pod.status.phase not in ("Succeeded", "Failed")
        ]

    # -- users, the binder and Kubernetes --------------------------------------------------------

    def submit(self) -> None:
        self.made += 1
        size, cpu = self.random.randint(1, 3), self.random.randint(1, 4)
        minimum = self.random.randint(1, size)
        # Who comes later may be first, so that room goes to others than before.
        self.add(f"g{self.made}", size, minimum, cpu, priority=self.random.randint(0, 9))

    def add(self, name: str, size: int, minimum: int, cpu: int, *, priority: int = 5) -> None:
        for item in gang(name, size, minimum, cpu=cpu, queue="q", priority=priority):
            self.put(item)

    def delete_pod(self) -> None:
        """Delete a bound pod; it is gone at once or takes its time."""
        pods = self.holders()
        if not pods:
            return
        pod = self.random.choice(pods)
        if (
            self.random.random() < 0.5
            and pod.spec.node_name
            and pod.metadata.deletion_timestamp is None
        ):
            now = timestamp(self.clock.now + 30)
            meta = msgspec.structs.replace(pod.metadata, deletion_timestamp=now)
            self.put(msgspec.structs.replace(pod, metadata=meta))
        else:
            self.drop(pod)

    def delete_or_add_node(self) -> None:
        name = self.random.choice(NODES)
        known = self.truth.get((kube.Node, name))
        if known is not None:
            self.drop(known)
        else:
            self.put(node(name, NODE_CORES))

    def collect_garbage(self) -> None:
        """Fail the pods of deleted nodes, and remove failed pods."""
        for pod in self.all_of(kube.Pod):
            if pod.status.phase == "Failed":
                self.drop(pod)
            elif pod.spec.node_name and (kube.Node, pod.spec.node_name) not in self.truth:
                status = msgspec.structs.replace(pod.status, phase="Failed")
                self.put(msgspec.structs.replace(pod, status=status))

    def bind(self) -> None:
        """Carry out a request as the binder does: whole, or not at all."""
        live = [each for each in self.requests() if not each.is_final]
        if not live:
            return
        request = self.random.choice(live)
        pods: dict[str, kube.Pod] = {pod.metadata.uid: pod for pod in self.all_of(kube.Pod)}
        found = [pods.get(place.pod_uid) for place in request.spec.pods]
        is_possible = all(
            pod is not None
            and not pod.spec.node_name
            and (kube.Node, place.selected_node) in self.truth
            for pod, place in zip(found, request.spec.pods, strict=True)
        )
        if is_possible:
            for pod, place in zip(found, request.spec.pods, strict=True):
                assert pod is not None
                spec = msgspec.structs.replace(pod.spec, node_name=place.selected_node)
                status = msgspec.structs.replace(pod.status, phase="Running")
                self.put(msgspec.structs.replace(pod, spec=spec, status=status))
                self.judge(place.selected_node)
        verdict = StatementStatus(
            phase="Succeeded" if is_possible else "Failed",
            bound_pods=[place.pod_uid for place in request.spec.pods] if is_possible else [],
            completion_time=timestamp(self.clock.now),
        )
        done = msgspec.structs.replace(request, status=verdict)
        self.put(shared_request(request.metadata.name, done))

    def judge(self, name: str) -> None:
        """Check the queue and a node after a binding."""
        amounts = {pod.metadata.name: (pod.spec.node_name, _cores(pod)) for pod in self.holders()}
        assert sum(cores for _, cores in amounts.values()) <= LIMIT, amounts
        assert sum(cores for on, cores in amounts.values() if on == name) <= NODE_CORES, amounts

    def remove_finished_requests(self) -> None:
        for stored in self.all_of(BindRequest):
            if all(each.is_final for each in stored.each()):
                self.drop(stored)

    # -- the scheduler -------------------------------------------------------------------------

    def start(self) -> None:
        """Start a scheduler that has listed nothing."""
        self.engine = engine_with(clock=self.clock)
        self.stores: dict[Kind, Store[Any]] = {kind: Store() for kind in KINDS}

    def list_again(self, kind: Kind) -> None:
        """Show what there is of `kind`, and not what happened to it since the last event."""
        self.untold[kind].clear()
        changes = list(self.stores[kind].reconcile(self.all_of(kind)))
        gone = [change for change in changes if change.type is EventType.DELETED]
        if kind is BindRequest and gone:  # as `Feed` does: it may have bound its pods
            self.list_again(kube.Pod)
        self.apply(changes)

    def apply(self, changes: Any) -> None:
        for change in changes:
            for each in statement_changes(change):
                self.engine.cluster.apply(each)

    def tell(self) -> None:
        """Deliver some events of some watches."""
        for kind in self.random.sample(KINDS, self.random.randint(1, len(KINDS))):
            self.tell_of(kind, self.random.randint(1, 20))

    def tell_of(self, kind: Kind, most: int) -> None:
        store, untold = self.stores[kind], self.untold[kind]
        for _ in range(min(most, len(untold))):
            is_gone, item = untold.popleft()
            self.apply(store.lose(item) if is_gone else store.see(item))

    def show_all(self) -> None:
        for kind in KINDS:
            self.tell_of(kind, len(self.untold[kind]))

    def lose_watch(self) -> None:
        self.list_again(self.random.choice(KINDS))

    def change_leader(self) -> None:
        """Let a scheduler take over that lists the requests first, as `Feed` does."""
        self.start()
        self.list_again(KINDS[0])
        for _ in range(self.random.randint(0, 3)):
            self.bind()
        self.remove_finished_requests()
        for kind in KINDS[1:]:
            self.list_again(kind)

    def plan(self) -> None:
        """Run a cycle; the API server may refuse the requests."""
        self.cycle(is_refused=self.random.random() < 0.1)

    def cycle(self, *, is_refused: bool = False) -> None:
        for draft in list(self.engine.cycle(fencing_token=self.version)):
            if is_refused:
                self.engine.refused(draft)
            else:
                self.put(shared_request(draft.name, as_created(draft)))
        for eviction in self.engine.report.evictions:
            victim = self.truth.get((kube.Pod, eviction.task.name))
            if victim is not None:
                self.drop(victim)
        assert view(self.engine.cluster.state) == recount(self.engine.cluster.state)
        self.clock.now += 1


def _cores(pod: kube.Pod) -> int:
    [container] = pod.spec.containers
    assert container.resources is not None
    return int((container.resources.requests or {})["cpu"])


STEPS = {
    LaggingCluster.submit: 4, LaggingCluster.plan: 6, LaggingCluster.bind: 6,
    LaggingCluster.tell: 8, LaggingCluster.delete_pod: 4, LaggingCluster.delete_or_add_node: 1,
    LaggingCluster.collect_garbage: 2, LaggingCluster.remove_finished_requests: 2,
    LaggingCluster.lose_watch: 3, LaggingCluster.change_leader: 1,
}  # fmt: skip


@given(seed=st.integers(0, 2**32))
@settings(deadline=None, max_examples=examples(8))
def test_no_queue_and_no_node_exceeds_its_limit_with_any_lag_of_watches(seed: int) -> None:
    random = Random(seed)  # no secrets
    cluster = LaggingCluster(random)
    for step in random.choices(list(STEPS), list(STEPS.values()), k=200):
        step(cluster)


@pytest.mark.parametrize("is_listed", [False, True], ids=["event", "list"])
def test_room_of_an_ended_request_stays_held_until_its_binding_is_observed(
    is_listed: bool,
) -> None:
    cluster = LaggingCluster(Random(0))  # no secrets
    cluster.add("leaves", 1, 1, cpu=2)
    cluster.show_all()
    cluster.cycle()
    cluster.bind()
    cluster.add("first", 2, 2, cpu=4)  # the whole limit
    cluster.add("second", 1, 1, cpu=6)
    cluster.show_all()
    cluster.cycle()
    [planned] = (each for each in cluster.requests() if not each.is_final)
    assert [place.pod_name for place in planned.spec.pods] == ["second-0"]
    cluster.drop(cluster.truth[kube.Pod, "leaves-0"])
    cluster.show_all()

    cluster.bind()
    cluster.remove_finished_requests()
    if is_listed:
        cluster.list_again(BindRequest)
    else:
        cluster.tell_of(BindRequest, 10)
    cluster.cycle()

    assert cluster.requests() == []
