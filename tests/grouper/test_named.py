"""Gangs that are named by pods: the same plans for any order of events."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from bindery.api import names
from bindery.grouper.named import NamedGangs, Planned, is_named
from bindery.grouper.objects import OwnerObject, as_mapping
from bindery.grouper.owners import KindKey, Missing, Owners
from bindery.grouper.table.facts import PodFacts
from bindery.grouper.table.groups import WantedObject
from tests.sizes import examples

LATER = "scheduling.k8s.io/v1beta1"
COMPOSITES = "scheduling.k8s.io/v1alpha3"


@dataclass
class KnownObjects:
    """In the place of the watches of owners: the objects that have come so far."""

    objects: dict[tuple[KindKey, str], OwnerObject] = field(default_factory=dict)
    askers: set[str] = field(default_factory=set)

    def put(self, kind: KindKey, name: str, spec: Mapping[str, Any]) -> None:
        body = {
            "metadata": {"namespace": "space", "name": name, "uid": f"uid-{name}"},
            "spec": spec,
        }
        self.objects[kind, name] = msgspec.json.decode(msgspec.json.encode(body), type=OwnerObject)

    def find_named(
        self, key: KindKey, _namespace: str, name: str, asker: str
    ) -> Mapping[str, Any] | Missing:
        self.askers.add(asker)
        found = self.objects.get((key, name))
        return Missing.GONE if found is None else as_mapping(key.api_version, key.kind, found)

    def find_all(self, key: KindKey, _namespace: str, asker: str) -> list[OwnerObject]:
        self.askers.add(asker)
        return [each for (kind, _), each in sorted(self.objects.items()) if kind == key]

    def forget(self, asker: str) -> None:
        self.askers.discard(asker)


def nothing(wanted: WantedObject, root: str) -> Missing:
    return Missing.GONE


def pod(name: str, group: str = "", /, **marks: Mapping[str, str]) -> PodFacts:
    return PodFacts(
        uid=f"uid-{name}",
        name=name,
        namespace="space",
        labels=marks.get("labels", {}),
        annotations=marks.get("annotations", {}),
        controller=None,
        created=f"2026-01-01T00:00:0{name[-1]}Z",
        scheduler_name="bindery",
        scheduling_group=group,
    )


def child(parent: str, count: int) -> dict[str, Any]:
    policy = {"gang": {"minCount": count}}
    return {"schedulingPolicy": policy, "parentCompositePodGroupName": parent}


WHOLE = {"schedulingPolicy": {"gang": {"minGroupCount": 2}}}
ALONE = {"schedulingPolicy": {"gang": {"minCount": 2}}}
KUEUE = {
    "labels": {"kueue.x-k8s.io/pod-group-name": "plain"},
    "annotations": {"kueue.x-k8s.io/pod-group-total-count": "2"},
}


@dataclass
class World:
    """The gangs, and what has come so far."""

    known: KnownObjects = field(default_factory=KnownObjects)

    def __post_init__(self) -> None:
        self.gangs = NamedGangs(cast("Owners", self.known), nothing)

    def put(self, api_version: str, kind: str, name: str, spec: Mapping[str, Any]) -> None:
        self.known.put(KindKey(api_version, kind), name, spec)
        for root in self.known.askers:  # as the watches do
            self.gangs.mark(root)

    def plans(self) -> dict[str, Planned]:
        return {root: self.gangs.plan(root) for root in sorted(self.gangs.roots())}


Event = Callable[[World], object]
EVENTS: tuple[Event, ...] = (
    lambda world: world.put(COMPOSITES, "CompositePodGroup", "whole", WHOLE),
    lambda world: world.put(LATER, "PodGroup", "left", child("whole", 1)),
    lambda world: world.put(LATER, "PodGroup", "right", child("whole", 2)),
    lambda world: world.put(LATER, "PodGroup", "alone", ALONE),
    lambda world: world.gangs.take_pod(pod("l0", "left")),
    lambda world: world.gangs.take_pod(pod("r0", "right")),
    lambda world: world.gangs.take_pod(pod("r1", "right")),
    lambda world: world.gangs.take_pod(pod("a0", "alone")),
    lambda world: world.gangs.take_pod(pod("k0", **KUEUE)),
    lambda world: world.gangs.take_pod(pod("k1", **KUEUE)),
    lambda world: world.gangs.take_stranger(
        replace(pod("s0", "alone"), scheduler_name="other"), gone=False
    ),
)


def played(events: Iterable[Event]) -> World:
    world = World()
    for event in events:
        event(world)
        world.plans()  # a plan at any time changes nothing for later ones
    return world


@given(st.permutations(EVENTS))
@settings(max_examples=examples(18), deadline=None)
def test_any_order_of_events_gives_the_same_plans(events: list[Event]) -> None:
    assert played(events).plans() == played(EVENTS).plans()


@given(st.permutations(EVENTS), st.sampled_from(["uid-l0", "uid-r1", "uid-a0", "uid-k0"]))
@settings(max_examples=examples(18), deadline=None)
def test_a_deleted_pod_leaves_nothing(events: list[Event], uid: str) -> None:
    world = played(events)
    world.gangs.lose_pod(uid)
    again = next(e for e in EVENTS[4:10] if uid in {p.uid for p in _pods(e)})

    again(world)

    assert world.plans() == played(EVENTS).plans()


def _pods(event: Event) -> list[PodFacts]:
    world = World()
    event(world)
    return [pod for pods in world.gangs._pods.values() for pod in pods.values()]


def test_groups_under_one_composite_group_are_one_pod_group() -> None:
    plans = played(EVENTS).plans()

    left, right = (plans[f"upstream:space/{name}"].plan.groups for name in ("left", "right"))
    assert left == right
    (made,) = left
    assert made.pods == ("uid-l0", "uid-r0", "uid-r1")
    assert made.name == "compositepodgroup-whole-uid-whol"


def test_a_pod_of_one_group_changes_all_groups_of_its_tree() -> None:
    world = played(EVENTS)
    world.gangs.take_changed()

    world.gangs.take_pod(pod("l1", "left"))

    assert set(world.gangs.take_changed()) == {"upstream:space/left", "upstream:space/right"}


def test_a_pod_with_an_annotation_of_bindery_names_no_foreign_group() -> None:
    world = World()
    for key, text in ((names.POD_GROUP_ANNOTATION, "g"), (names.SKIP_GROUPER_KEY, "true")):
        assert not world.gangs.take_pod(pod("a0", "alone", annotations={key: text}))
    assert world.gangs.roots() == []


def test_a_missing_group_is_reported_at_its_oldest_pod() -> None:
    world = World()
    for name in ("a1", "a0"):
        world.gangs.take_pod(pod(name, "alone"))

    (problem,) = world.gangs.plan("upstream:space/alone").plan.problems

    assert problem.object.name == "a0"
    assert "PodGroup alone of scheduling.k8s.io" in problem.message


def test_a_pod_with_a_changed_mark_changes_its_gang() -> None:
    world = World()
    world.gangs.take_pod(pod("k0", **KUEUE))
    other = {**KUEUE, "labels": {"kueue.x-k8s.io/pod-group-name": "other"}}

    world.gangs.take_pod(pod("k0", **other))

    assert world.gangs.roots() == ["kueue:space/other"]
    assert is_named("kueue:space/other")


def test_a_gang_with_pods_of_two_schedulers_has_no_pod_group_and_reports_it() -> None:
    planned = played(EVENTS).plans()["upstream:space/alone"]

    assert planned.plan.groups == ()
    assert "pod s0 names other" in planned.report.error


def test_an_upstream_group_is_planned_while_it_exists_and_forgotten_with_its_pods() -> None:
    world = played(EVENTS)
    root = "upstream:space/alone"

    world.gangs.lose_pod("uid-a0")
    assert world.gangs.plan(root).uids == ("uid-alone",)
    assert world.gangs.plan(root).pods == ()

    del world.known.objects[KindKey(LATER, "PodGroup"), "alone"]
    world.gangs.plan(root)
    assert not world.gangs.has(root)
    assert root not in world.known.askers
