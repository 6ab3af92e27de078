"""Gangs with topology constraints in random trees: properties of every plan."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bindery.kube.objects import watched as kube
from bindery.kube.objects.podgroups import SubGroup, TopologyConstraint
from bindery.kube.objects.topology import Topology, TopologyLevel, TopologySpec
from bindery.scheduler.engine import Engine
from tests.scheduler.schedulerworld import engine_with, group, node, plan, pod
from tests.sizes import examples

BLOCK, RACK = "block", "rack"
TREE = Topology(
    metadata=kube.Meta(name="dc", uid="dc"),
    spec=TopologySpec(levels=[TopologyLevel(node_label=BLOCK), TopologyLevel(node_label=RACK)]),
)


@dataclass(frozen=True)
class World:
    """Nodes by name: labels and free GPUs."""

    labels: Mapping[str, Mapping[str, str]]
    free: Mapping[str, int]
    busy: Sequence[kube.Pod] = field(default=())

    def objects(self) -> list[kube.KubeObject]:
        nodes = [
            node(name, cpu=64, gpu=self.free[name], labels=labels)
            for name, labels in self.labels.items()
        ]
        return [TREE, *nodes, *self.busy]

    def domain(self, name: str, level: str) -> tuple[str, ...] | None:
        """Return the domain of a node by its labels from the top down; None if it is in none."""
        keys = (BLOCK,) if level == BLOCK else (BLOCK, RACK)
        path = tuple(self.labels[name].get(key, "") for key in keys)
        return path if all(path) else None

    def domains(self, level: str) -> dict[tuple[str, ...], list[str]]:
        found: dict[tuple[str, ...], list[str]] = {}
        for name in self.labels:
            domain = self.domain(name, level)
            if domain is not None:
                found.setdefault(domain, []).append(name)
        return found

    def pods_in(self, names: Sequence[str], gpus: int) -> int:
        """Return how many pods of so many GPUs fit on the nodes `names`."""
        return sum(self.free[name] // gpus for name in names)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    labels, free = {}, {}
    for at in range(draw(st.integers(1, 8))):
        own = {
            BLOCK: draw(st.sampled_from(["b1", "b2", ""])),
            RACK: draw(st.sampled_from(["r1", "r2", "r3", ""])),
        }
        labels[f"n{at}"] = {key: value for key, value in own.items() if value}
        free[f"n{at}"] = draw(st.integers(0, 4))
    return World(labels, free)


def asked(level: str) -> TopologyConstraint:
    return TopologyConstraint(name="dc", required=level)


def columns(engine: Engine) -> list[np.ndarray]:
    nodes = engine.cluster.state.nodes
    return [np.copy(part) for part in (nodes.idle, nodes.releasing, nodes.pipelined)]


@settings(max_examples=examples(21), deadline=None)
@given(worlds(), st.integers(1, 6), st.integers(1, 3), st.sampled_from([BLOCK, RACK]))
def test_a_gang_is_placed_exactly_if_a_domain_has_room(
    world: World, size: int, gpus: int, level: str
) -> None:
    gang = [group("g", size, topology=asked(level))]
    pods = [pod(f"g-{at}", gpu=gpus, group="g") for at in range(size)]
    engine = engine_with(*world.objects(), *gang, *pods)
    before = columns(engine)

    found = plan(engine)

    fits = any(world.pods_in(names, gpus) >= size for names in world.domains(level).values())
    assert len(found) == (size if fits else 0)
    if fits:
        assert len({world.domain(name, level) for name in found.values()}) == 1
        assert None not in {world.domain(name, level) for name in found.values()}
    else:  # what was tried has been undone exactly
        for now, then in zip(columns(engine), before, strict=True):
            assert (now == then).all()


@settings(max_examples=examples(21), deadline=None)
@given(
    worlds(),
    st.lists(st.integers(1, 3), min_size=1, max_size=3),
    st.lists(st.integers(1, 3), min_size=1, max_size=3),
)
def test_each_sub_group_is_in_one_rack_and_the_gang_in_one_block(
    world: World, first: list[int], second: list[int]
) -> None:
    parts = {"s0": first, "s1": second}
    groups = [
        SubGroup(name=name, min_member=len(sizes), topology=asked(RACK))
        for name, sizes in parts.items()
    ]
    pods = [
        pod(f"{name}-{at}", gpu=gpus, group="g", sub_group=name)
        for name, sizes in parts.items()
        for at, gpus in enumerate(sizes)
    ]
    gang = group("g", 0, sub_groups=groups, topology=asked(BLOCK))
    engine = engine_with(*world.objects(), gang, *pods)
    before = columns(engine)

    found = plan(engine)

    assert len(found) in (0, len(pods))
    for name in parts if found else ():
        racks = {
            world.domain(place, RACK) for which, place in found.items() if which.startswith(name)
        }
        assert len(racks) == 1
        assert None not in racks
    assert len({world.domain(place, BLOCK) for place in found.values()}) <= 1
    if not found:
        for now, then in zip(columns(engine), before, strict=True):
            assert (now == then).all()


@settings(max_examples=examples(21), deadline=None)
@given(worlds(), st.integers(1, 3), st.integers(1, 3))
def test_equal_sub_groups_are_placed_exactly_if_enough_racks_fit(
    world: World, size: int, count: int
) -> None:
    groups = [SubGroup(name=f"s{at}", min_member=size, topology=asked(RACK)) for at in range(count)]
    pods = [
        pod(f"g-{part}-{at}", gpu=1, group="g", sub_group=f"s{part}")
        for part, at in product(range(count), range(size))
    ]
    engine = engine_with(*world.objects(), group("g", 0, sub_groups=groups), *pods)

    found = plan(engine)

    room = sum(world.pods_in(names, 1) // size for names in world.domains(RACK).values())
    assert len(found) == (size * count if room >= count else 0)


@settings(max_examples=examples(21), deadline=None)
@given(worlds(), st.integers(1, 6))
def test_a_preferred_level_never_delays_a_gang(world: World, size: int) -> None:
    asks = TopologyConstraint(name="dc", preferred=RACK)
    pods = [pod(f"g-{at}", gpu=1, group="g") for at in range(size)]

    found = plan(engine_with(*world.objects(), group("g", size, topology=asks), *pods))

    assert len(found) == (size if sum(world.free.values()) >= size else 0)
    in_one = any(world.pods_in(names, 1) >= size for names in world.domains(RACK).values())
    if in_one:
        assert len({world.domain(name, RACK) for name in found.values()}) == 1


@settings(max_examples=examples(14), deadline=None)
@given(worlds(), st.integers(1, 3), st.integers(1, 3))
def test_exclusive_gangs_never_share_a_rack(world: World, size: int, count: int) -> None:
    asks = TopologyConstraint(name="dc", required=RACK, exclusive=True)
    gangs = [group(f"g{at}", size, topology=asks) for at in range(count)]
    pods = [
        pod(f"g{which}-{at}", gpu=1, group=f"g{which}")
        for which, at in product(range(count), range(size))
    ]
    single = pod("single", gpu=1)

    found = plan(engine_with(*world.objects(), *gangs, *pods, single))

    racks = {
        which: {world.domain(place, RACK) for name, place in found.items() if name[:2] == which}
        for which in (f"g{at}" for at in range(count))
    }
    used = [rack for each in racks.values() for rack in each]
    assert all(len(each) <= 1 for each in racks.values())
    assert len(used) == len(set(used))
    if "single" in found:
        assert world.domain(found["single"], RACK) not in set(used) - {None}


@st.composite
def running_gangs(draw: st.DrawFn) -> tuple[World, list[kube.KubeObject], dict[str, str]]:
    """Return a world, gangs that run in one rack each, and where their pods are."""
    racks = {f"r{at}": draw(st.integers(1, 3)) for at in range(draw(st.integers(2, 3)))}
    labels = {
        f"{rack}-{at}": {BLOCK: "b1", RACK: rack}
        for rack, count in racks.items()
        for at in range(count)
    }
    free = dict.fromkeys(labels, 4)
    world = World(labels, dict(free))
    items: list[kube.KubeObject] = []
    places: dict[str, str] = {}
    for number in range(draw(st.integers(1, 4))):
        names = draw(st.sampled_from(list(world.domains(RACK).values())))
        gang = f"g{number}"
        items.append(group(gang, draw(st.integers(0, 2)), topology=asked(RACK)))
        for at in range(draw(st.integers(1, 3))):
            place = draw(st.sampled_from(names))
            if free[place]:
                free[place] -= 1
                places[f"{gang}-{at}"] = place
                items.append(
                    pod(
                        f"{gang}-{at}",
                        gpu=1,
                        group=gang,
                        on=place,
                        phase="Running",
                        controlled=True,
                    )
                )
    return world, items, places


@settings(max_examples=examples(21), deadline=None)
@given(running_gangs(), st.integers(1, 3), st.integers(3, 4), st.booleans())
def test_moved_gangs_stay_in_one_rack(
    running: tuple[World, list[kube.KubeObject], dict[str, str]],
    size: int,
    gpus: int,
    is_constrained: bool,
) -> None:
    world, items, places = running
    asks = asked(RACK) if is_constrained else None
    waiting = [pod(f"w-{at}", gpu=gpus, group="w") for at in range(size)]
    engine = engine_with(*world.objects(), *items, group("w", size, topology=asks), *waiting)

    bound = plan(engine)

    after = dict(places)
    for eviction in engine.report.evictions:
        assert eviction.moves_to, "only consolidation evicts here, and it kills nobody"
        after[eviction.task.name] = eviction.moves_to
    gang_racks: dict[str, set[tuple[str, ...] | None]] = {}
    for name, place in after.items():
        gang_racks.setdefault(name[:2], set()).add(world.domain(place, RACK))
    assert all(len(racks) == 1 for racks in gang_racks.values())
    if is_constrained:
        assert len({world.domain(place, RACK) for place in bound.values()}) <= 1


@settings(max_examples=examples(21), deadline=None)
@given(
    st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=3), min_size=1, max_size=4),
    st.lists(
        st.tuples(st.integers(0, 11), st.sampled_from([10, 20, 30, 200])), min_size=2, max_size=14
    ),
    st.integers(1, 6),
)
@example(racks=[[2], [1, 1]], running=[(0, 10), (0, 20), (1, 20), (2, 20)], size=2)
def test_preempt_chooses_the_rack_with_fewest_victims_then_lowest_priorities(
    racks: list[list[int]], running: list[tuple[int, int]], size: int
) -> None:
    free = {f"r{r}-{n}": room for r, rooms in enumerate(racks) for n, room in enumerate(rooms)}
    labels = {name: {BLOCK: "b1", RACK: name.split("-")[0]} for name in free}
    world, names = World(labels, dict(free)), list(free)
    victims: dict[str, tuple[str, int]] = {}
    for at, (place, priority) in enumerate(running):
        name = names[place % len(names)]
        if free[name]:
            free[name] -= 1
            victims[f"v{at}"] = name, priority
    others = [
        pod(name, gpu=1, on=place, phase="Running", priority=priority, controlled=False)
        for name, (place, priority) in victims.items()
    ]
    gang = [pod(f"g-{at}", gpu=1, group="g", priority=60) for at in range(size)]
    costs = []
    for members in world.domains(RACK).values():
        lower = sorted(p for place, p in victims.values() if place in members and p < 60)
        needed = max(0, size - sum(free[name] for name in members))
        if needed <= len(lower):
            costs.append((needed, sorted(lower[:needed], reverse=True)))
    engine = engine_with(*world.objects(), *others, group("g", size, topology=asked(RACK)), *gang)

    found = plan(engine)

    gone = sorted((victims[e.task.name][1] for e in engine.report.evictions), reverse=True)
    if not costs:
        assert not gone
        assert not found
    else:
        assert (len(gone), gone) == min(costs)
        assert bool(found) == (not gone)
