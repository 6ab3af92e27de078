"""Queue limits hold while nodes are deleted under load, and pods of deleted nodes stay charged."""

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from bindery.api.times import timestamp
from bindery.kube.objects import watched as kube
from bindery.kube.objects.bindrequests import CommittedStatement
from bindery.scheduler.model.reasons import JobReason
from tests.scheduler.recounting import recount, view
from tests.scheduler.schedulerworld import (
    Clock,
    add,
    as_created,
    delete,
    engine_with,
    modify,
    node,
    places,
    pod,
    queue,
    report_of,
)
from tests.sizes import examples

LIMIT = 8
NODES = ("a", "b", "c")
STUCK_S = 120.0


@dataclass
class Load:
    """A queue with a limit, in a cluster whose nodes come and go."""

    clock: Clock = field(default_factory=Clock)
    cpu: dict[str, int] = field(default_factory=dict)
    """Pod -> its cores."""
    on: dict[str, str] = field(default_factory=dict)
    """Bound pod -> its node."""
    leaving: dict[str, float] = field(default_factory=dict)
    """Pod that is being deleted -> since when."""
    requests: list[CommittedStatement] = field(default_factory=list)
    nodes: set[str] = field(default_factory=lambda: set(NODES))
    made: int = 0

    def __post_init__(self) -> None:
        self.engine = engine_with(
            queue("q", cpu=LIMIT), *(node(name, 6) for name in NODES), clock=self.clock
        )

    def pod(self, name: str) -> kube.Pod:
        since = self.leaving.get(name)
        return pod(
            name,
            self.cpu[name],
            queue="q",
            on=self.on.get(name, ""),
            deleting=timestamp(since) if since is not None else None,
        )

    def submit(self, cpu: int) -> None:
        name = f"p{self.made}"
        self.made += 1
        self.cpu[name] = cpu
        add(self.engine.cluster, self.pod(name))

    def plan(self) -> None:
        for draft in list(self.engine.cycle()):
            self.requests.append(as_created(draft))
            add(self.engine.cluster, self.requests[-1])
        self.clock.now += 1

    def bind(self) -> None:
        """Let the binder finish the oldest request; it binds nothing to a node that is gone."""
        if not self.requests:
            return
        request = self.requests.pop(0)
        for each in request.spec.pods:
            if each.selected_node in self.nodes and each.pod_name in self.cpu:
                self.on[each.pod_name] = each.selected_node
                modify(self.engine.cluster, self.pod(each.pod_name))
        delete(self.engine.cluster, request)

    def delete_node(self, name: str) -> None:
        if name in self.nodes:
            self.nodes.remove(name)
            delete(self.engine.cluster, node(name, 6))

    def add_node(self, name: str) -> None:
        if name not in self.nodes:
            self.nodes.add(name)
            add(self.engine.cluster, node(name, 6))

    def delete_pod(self, at: int) -> None:
        """Ask for the deletion of a bound pod; its node, if there is one, takes its time."""
        bound = sorted(self.on.keys() - self.leaving.keys())
        if bound:
            name = bound[at % len(bound)]
            self.leaving[name] = self.clock.now
            modify(self.engine.cluster, self.pod(name))

    def remove_pod(self) -> None:
        if self.leaving:
            name = next(iter(self.leaving))
            delete(self.engine.cluster, self.pod(name))
            for known in (self.cpu, self.on, self.leaving):
                del known[name]

    def held(self) -> int:
        """Return the cores of the pods that are bound or being bound, without stuck ones."""
        planned = {each.pod_name for request in self.requests for each in request.spec.pods}
        return sum(
            cpu
            for name, cpu in self.cpu.items()
            if (name in self.on or name in planned)
            and self.clock.now - self.leaving.get(name, self.clock.now) <= STUCK_S
        )


STEPS = st.one_of(
    st.tuples(st.just("submit"), st.integers(1, 4)),
    st.tuples(st.just("submit"), st.integers(1, 4)),
    st.tuples(st.just("bind")),
    st.tuples(st.just("delete_node"), st.sampled_from(NODES)),
    st.tuples(st.just("add_node"), st.sampled_from(NODES)),
    st.tuples(st.just("delete_pod"), st.integers(0, 9)),
    st.tuples(st.just("remove_pod")),
    st.tuples(st.just("wait"), st.sampled_from([5.0, 60.0, 121.0])),
)


@given(steps=st.lists(STEPS, min_size=5, max_size=40))
@settings(deadline=None, max_examples=examples(14))
def test_a_queue_never_exceeds_its_limit_while_nodes_are_created_and_deleted(
    steps: list[tuple[str, int | float | str]],
) -> None:
    load = Load()
    for name, *arguments in steps:
        if name == "wait":
            load.clock.now += float(arguments[0])
        else:
            getattr(load, name)(*arguments)
        load.plan()
        assert load.held() <= LIMIT
        assert view(load.engine.cluster.state) == recount(load.engine.cluster.state)


def test_pods_of_a_deleted_node_count_until_their_deletion_is_due() -> None:
    """As in Kubernetes' ResourceQuota, a pod that only lacks a kubelet does not block for ever."""
    load = Load()
    for _ in range(2):
        load.submit(4)
    load.plan()
    load.bind()
    load.bind()
    load.submit(4)
    for name in sorted(set(load.on.values())):
        load.delete_node(name)

    assert not places(load.engine.cycle())
    assert report_of(load.engine, "p2").reason == JobReason.OVER_LIMIT

    load.delete_pod(0)
    load.clock.now += STUCK_S - 1
    assert not places(load.engine.cycle()), "it waits until the other one has gone"
    load.clock.now += 2
    assert places(load.engine.cycle()).keys() == {"p2"}
