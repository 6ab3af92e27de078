"""Trees of owners and pods do not depend on the order of events."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from bindery.grouper.forest import Forest
from bindery.grouper.objects import OwnerObject
from bindery.grouper.owners import Found, Missing
from bindery.grouper.table.facts import PodFacts, Reference
from bindery.kube.objects.watched import Meta, OwnerReference


@dataclass
class World:
    """Owners that are known so far, and the forest that asks for them."""

    known: dict[str, Found] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.forest = Forest(self.find, self.asked.discard)

    def find(self, reference: Reference) -> Found:
        found = self.known.get(reference.uid, Missing.PENDING)
        if isinstance(found, Missing):
            self.asked.add(reference.uid)
        return found

    def learn(self, uid: str, found: Found) -> None:
        self.known[uid] = found
        self.asked.discard(uid)
        self.forest.see_owner(uid)

    def trees(self) -> dict[str, set[str]]:
        """Return what hangs under each root."""
        found = {}
        for uid in self.forest.roots():
            root = self.forest.root(uid)
            assert root is not None
            found[uid] = {node.reference.uid for node in root.walk()}
        return found


def reference(uid: str) -> Reference:
    return Reference("example.com/v1", "Thing", uid, uid, "default")


def owner(uid: str, above: str | None = None) -> OwnerObject:
    references = [OwnerReference(api_version="v1", kind="Thing", name="x", uid="other")]
    if above is not None:
        controller = OwnerReference(
            api_version="example.com/v1", kind="Thing", name=above, uid=above, controller=True
        )
        references.append(controller)
    meta = Meta(name=uid, namespace="default", uid=uid, owner_references=references)
    return OwnerObject(metadata=meta)


def pod(uid: str, above: str | None) -> PodFacts:
    controller = reference(above) if above is not None else None
    return PodFacts(uid, uid, "default", {}, {}, controller)


ABOVE = {
    "job-a": "set",
    "job-b": "set",
    "set": "top",
    "top": None,
    "lone": None,
}
PODS = {"p1": "job-a", "p2": "job-a", "p3": "job-b", "p4": "lone", "p5": None}


def steps() -> Iterator[Callable[[World], None]]:
    for uid, above in ABOVE.items():
        yield partial(World.learn, uid=uid, found=owner(uid, above))
    for uid, above in PODS.items():
        yield partial(_see, seen=pod(uid, above))


def _see(world: World, seen: PodFacts) -> None:
    world.forest.see_pod(seen, seen.controller)


@given(st.permutations(list(steps())))
def test_any_order_of_events_gives_the_same_trees(order: list[Callable[[World], None]]) -> None:
    world = World()
    for step in order:
        step(world)

    assert world.trees() == {
        "top": {"top", "set", "job-a", "job-b", "p1", "p2", "p3"},
        "lone": {"lone", "p4"},
        "p5": {"p5"},
    }
    assert world.asked == set()


@given(st.permutations(list(steps())), st.permutations(sorted(PODS)))
def test_nothing_is_kept_after_all_pods_are_deleted(
    order: list[Callable[[World], None]], ends: list[str]
) -> None:
    world = World()
    for step in order:
        step(world)
    for uid in ends:
        world.forest.lose_pod(uid)

    assert world.trees() == {}


def test_an_unreadable_owner_is_the_root_of_its_descendants() -> None:
    world = World()
    _see(world, pod("p1", "job-a"))
    world.learn("job-a", owner("job-a", "set"))
    world.learn("set", Missing.FORBIDDEN)

    root = world.forest.root("set")

    assert world.trees() == {"set": {"set", "job-a", "p1"}}
    assert root is not None
    assert root.missing is Missing.FORBIDDEN


def test_a_pod_that_owns_pods_is_between_them_and_its_own_owner() -> None:
    world = World()
    _see(world, pod("worker", "workers"))
    world.learn("workers", owner("workers", "leader"))
    _see(world, pod("leader", "leaders"))
    world.learn("leaders", owner("leaders", "top"))
    world.learn("top", owner("top"))

    assert world.trees() == {"top": {"top", "leaders", "leader", "workers", "worker"}}

    world.forest.lose_pod("leader")
    assert world.trees() == {"leader": {"leader", "workers", "worker"}}


def test_owner_references_on_a_cycle_end_the_walk() -> None:
    world = World(known={"a": owner("a", "b"), "b": owner("b", "a")})

    _see(world, pod("p1", "a"))

    assert len(world.trees()) == 1


def test_a_change_is_reported_once_for_the_root() -> None:
    world = World(known={"job-a": owner("job-a", "set"), "set": owner("set")})
    _see(world, pod("p1", "job-a"))
    world.forest.take_changed()

    _see(world, pod("p1", "job-a"))
    assert world.forest.take_changed() == [], "nothing is new"

    world.learn("job-a", owner("job-a", "set"))
    _see(world, pod("p2", "job-a"))
    assert world.forest.take_changed() == ["set"]
