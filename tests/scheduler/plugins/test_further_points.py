"""A plugin that watches its own kinds and decides about single pods: licences in pools.

The plugin here is a third party's: each pod takes a seat on a node that it names, from a pool that
the scheduler itself knows nothing of.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from bindery.api.configuration import SchedulerConfiguration
from bindery.kube.objects.podspec import PodResourceClaim
from bindery.kube.objects.resources import Resource
from bindery.kube.objects.watched import KubeObject, Meta, Pod
from bindery.kube.watches.store import Change, EventType
from bindery.scheduler.engine import Engine
from bindery.scheduler.ledgers.base import Ledger, LedgerRefusalError, Operation, OperationKind
from bindery.scheduler.model.jobs import Task
from bindery.scheduler.model.shapes import Need, Shape
from bindery.scheduler.model.state import PlanState
from bindery.scheduler.model.verdicts import NodeFailure, Refusal, Rows
from bindery.scheduler.planning.session import Session
from tests.scheduler.schedulerworld import (
    Clock,
    add,
    as_created,
    configuration,
    delete,
    engine_with,
    group,
    modify,
    node,
    plan,
    pod,
    report_of,
)


class Pool(KubeObject, frozen=True, kw_only=True):
    """Licences for pods on one node."""

    node: str
    seats: int = 0


POOLS = Resource("example.com", "v1", "pools", "Pool", False, Pool)


class Licences:
    """Sells each seat of a pool once; pods request seats by their claims."""

    name = "licences"

    def __init__(self) -> None:
        self.pools: dict[str, Pool] = {}
        self.sold: dict[str, int] = {}

    def watched_resources(self) -> Sequence[Resource[Any]]:
        return (POOLS,)

    def observe(self, change: Change[KubeObject]) -> bool:
        assert isinstance(change.object, Pool)
        if change.type is EventType.DELETED:
            del self.pools[change.object.metadata.name]
        else:
            self.pools[change.object.metadata.name] = change.object
        return True

    def supported_needs(self) -> Collection[Need]:
        return (Need.RESOURCE_CLAIMS,)

    def ledger(self, session: Session, state: PlanState) -> Ledger:
        self.sold = {}
        for _, node_name, data in session.handed_over(self.name):
            self.sold[node_name] = self.sold.get(node_name, 0) + data["seats"]
        self.nodes = state.nodes
        return self

    def apply(self, operation: Operation) -> None:
        name = self.nodes.name(operation.row)
        if operation.kind is OperationKind.EVICT or not operation.task.shape.needs:
            return
        if self.sold.get(name, 0) >= self.seats(name):
            raise LedgerRefusalError("has no seat left")
        self.sold[name] = self.sold.get(name, 0) + 1

    def revert(self, operation: Operation) -> None:
        if operation.kind is not OperationKind.EVICT and operation.task.shape.needs:
            self.sold[self.nodes.name(operation.row)] -= 1

    def node_failures(self, session: Session, shape: Shape) -> Iterator[NodeFailure]:
        if shape.needs:
            yield NodeFailure("have no pool", self.mask(session, lambda name: not self.has(name)))

    def invalid_task(self, session: Session, task: Task) -> Refusal | None:
        found = session.pod(task)  # none if it is bound
        claims = () if found is None else found.spec.resource_claims or ()
        wanted = [claim.name for claim in claims]
        return Refusal("Forbidden", "licences are not for it") if "forbidden" in wanted else None

    def filters_tasks_of(self, shape: Shape) -> bool:
        return bool(shape.needs)

    def task_node_failures(self, session: Session, task: Task) -> Iterable[NodeFailure]:
        found = session.pod(task)  # none if it is bound: such a pod cannot be moved
        claims = () if found is None else found.spec.resource_claims or ()
        names = [claim.name for claim in claims]
        yield NodeFailure("are not named", self.mask(session, lambda name: name not in names))

    def bind_data(self, _session: Session, task: Task, _row: int) -> Mapping[str, Any] | None:
        return {"seats": 1} if task.shape.needs else None

    def seats(self, node_name: str) -> int:
        return sum(pool.seats for pool in self.pools.values() if pool.node == node_name)

    def has(self, node_name: str) -> bool:
        return any(pool.node == node_name for pool in self.pools.values())

    def mask(self, session: Session, test: Any) -> Any:
        nodes = session.state.nodes.nodes
        return np.array([n is not None and test(n.metadata.name) for n in nodes], dtype=np.bool_)


class Rooms(Licences):
    """The same seats as room of nodes, for equal pods together."""

    name = "rooms"

    def filters_tasks_of(self, _shape: Shape) -> bool:
        return False

    def keeps_room_for(self, shape: Shape) -> bool:
        return bool(shape.needs)

    def has_room(self, session: Session, _shape: Shape, rows: Rows, _later: bool) -> Any:
        names = [session.state.nodes.name(row) for row in rows]
        return np.array([self.sold.get(n, 0) < self.seats(n) for n in names], dtype=np.bool_)

    def no_room_text(self, _shape: Shape) -> str:
        return "have no seats"


def wants(name: str, *nodes: str, **more: Any) -> Pod:
    return pod(name, resource_claims=[PodResourceClaim(name=each) for each in nodes], **more)


def pool(name: str, at: str, seats: int) -> Pool:
    return Pool(metadata=Meta(name=name), node=at, seats=seats)


ENTRY_POINTS = """
[bindery.scheduler_plugins]
licences = tests.scheduler.plugins.test_further_points:Licences
rooms = tests.scheduler.plugins.test_further_points:Rooms
"""


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install the plugins as pip would."""
    distribution = tmp_path / "licences-1.0.dist-info"
    distribution.mkdir()
    (distribution / "METADATA").write_text("Metadata-Version: 2.1\nName: licences\nVersion: 1.0\n")
    (distribution / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(tmp_path)


def with_plugin(name: str = "licences", **fields: Any) -> SchedulerConfiguration:
    """Return a configuration with the plugin in the place of the one for resource claims."""
    others = [each for each in configuration().plugins if each.name != "dra"]
    return configuration(others, more_plugins=[name], **fields)


def engine_of(*items: KubeObject, plugin: str = "licences") -> Engine:
    engine = Engine(with_plugin(plugin), Clock())
    add(engine.cluster, *items)
    return engine


def test_a_plugin_follows_changes_of_the_objects_that_it_watches() -> None:
    engine = engine_of(node("a"), node("b"), wants("p", "a", "b"), wants("q", "a", "b"))
    assert plan(engine) == {}
    assert report_of(engine, "p").message == "0/2 nodes are available: 2 have no pool"

    add(engine.cluster, pool("x", at="b", seats=1))
    assert plan(engine) == {"p": "b"}

    modify(engine.cluster, pool("x", at="b", seats=2))
    assert plan(engine) == {"q": "b"}


def test_equal_pods_are_placed_on_the_node_that_each_of_them_names() -> None:
    pools = [pool(name, at=name, seats=9) for name in "abc"]
    engine = engine_of(
        node("a"), node("b"), node("c"), *pools,
        group("g", 3), *(wants(f"p{name}", name, group="g") for name in "cab"),
    )  # fmt: skip

    assert plan(engine) == {"pa": "a", "pb": "b", "pc": "c"}


def test_a_refusal_by_a_ledger_excludes_only_that_node() -> None:
    pools = [pool("x", at="a", seats=1), pool("y", at="b", seats=1)]
    engine = engine_of(
        node("a"), node("b"), *pools, group("g", 2), group("h", 1),
        *(wants(f"p{number}", "a", "b", group="g") for number in range(2)),
        wants("q", "a", group="h"),
    )  # fmt: skip

    assert set(plan(engine).values()) == {"a", "b"}
    assert report_of(engine, "h").message == (
        "0/2 nodes are available: 1 are not named, 1 has no seat left"
    )


def test_a_plugin_gets_its_data_of_a_request_until_the_pod_is_deleted() -> None:
    engine = engine_of(node("a"), pool("x", at="a", seats=1), wants("p", "a"))
    (draft,) = engine.cycle()
    add(engine.cluster, wants("q", "a"))

    assert plan(engine) == {}  # the request is being written
    add(engine.cluster, as_created(draft))
    assert plan(engine) == {}  # it is being carried out
    modify(engine.cluster, wants("p", "a", on="a"))
    delete(engine.cluster, as_created(draft))
    assert plan(engine) == {}  # the pod runs
    delete(engine.cluster, wants("p", "a", on="a"))
    assert plan(engine) == {"q": "a"}


def test_a_request_with_malformed_plugin_data_is_ignored() -> None:
    engine = engine_of(node("a"), pool("x", at="a", seats=1), wants("p", "a"))
    (draft,) = engine.cycle()
    forged = as_created(draft)
    (entry,) = forged.spec.pods
    entry = msgspec.structs.replace(entry, plugin_data={"licences": ["seats"]})
    spec = msgspec.structs.replace(forged.spec, pods=[entry])
    add(engine.cluster, msgspec.structs.replace(forged, spec=spec), wants("q", "a"))

    assert plan(engine) == {"q": "a"}


def test_a_pod_that_a_plugin_finds_invalid_waits_with_the_reason() -> None:
    engine = engine_of(node("a"), pool("x", at="a", seats=1), wants("p", "a", "forbidden"))

    assert plan(engine) == {}
    report = report_of(engine, "p")
    assert (report.reason, report.message) == ("Forbidden", "pod p: licences are not for it")


def test_a_plugin_of_a_new_configuration_gets_all_existing_objects() -> None:
    engine = engine_with(node("a"), pool("x", at="a", seats=1), wants("p", "a"))
    assert plan(engine) == {}

    engine.configure(with_plugin())

    assert plan(engine) == {"p": "a"}


def test_room_that_a_plugin_keeps_is_counted_pod_by_pod() -> None:
    engine = engine_of(
        node("a"), node("b"), pool("x", at="a", seats=1), pool("y", at="b", seats=1),
        group("g", 3), *(wants(f"p{number}", "any", group="g") for number in range(3)),
        plugin="rooms",
    )  # fmt: skip

    assert plan(engine) == {}
    assert report_of(engine, "g").message == (
        "2 of 3 pods fit; for the next one 0/2 nodes are available: 2 have no seats"
    )
