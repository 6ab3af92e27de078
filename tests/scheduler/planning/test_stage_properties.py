"""The later pods of a started gang find room while it is kept, beside any other jobs."""

from collections.abc import Sequence
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from bindery.kube.objects import watched as kube
from bindery.kube.objects.podgroups import Dependency, PodGroup, SubGroup, TopologyConstraint
from bindery.scheduler.engine import Engine
from bindery.scheduler.model.jobs import TaskStatus
from tests.scheduler.boundpods import bound_pod, records_of
from tests.scheduler.planning.test_stages import bound, template
from tests.scheduler.schedulerworld import Clock, add, engine_with, group, modify, node, pod
from tests.sizes import examples


class Staged(NamedTuple):
    """A gang of a leader, its workers, and helpers that come when the workers are bound."""

    leader_gpus: int
    workers: int
    worker_gpus: int
    helpers: int
    shares_rack: bool
    """Whether leader and workers must be in one rack."""


GANGS = st.builds(
    Staged,
    st.integers(0, 2),
    st.integers(1, 3),
    st.integers(1, 2),
    st.integers(0, 2),
    st.booleans(),
)
OTHERS = st.lists(st.tuples(st.integers(1, 2), st.sampled_from([10, 200])), max_size=4)


def group_of(name: str, gang: Staged) -> PodGroup:
    after_leader = [Dependency(sub_group="leader", condition="Ready")]
    after_workers = [Dependency(sub_group="workers", condition="Bound")]
    rack = TopologyConstraint(required="rack") if gang.shares_rack else None
    return group(
        name,
        sub_groups=[
            SubGroup(name="domain", topology=rack),
            SubGroup(name="leader", parent="domain", min_member=1),
            SubGroup(
                name="workers",
                parent="domain",
                min_member=gang.workers,
                after=after_leader,
                template=template(gang.worker_gpus),
            ),
            SubGroup(
                name="helpers", min_member=gang.helpers, after=after_workers, template=template(1)
            ),
        ],
    )


def members(name: str, of: str, count: int, gpus: int) -> list[kube.Pod]:
    return [pod(f"{name}-{of}-{i}", 0, gpus, group=name, sub_group=of) for i in range(count)]


def cycle(engine: Engine, clock: Clock, pods: dict[str, kube.Pod]) -> set[str]:
    """Run a cycle and bind what it commits; return the names of these pods."""
    found: dict[str, kube.Pod] = {}
    for draft in list(engine.cycle()):
        records = records_of(draft)
        for each in draft.spec.pods:
            name = each.pod_name
            found[name] = bound_pod(pods[name], each.selected_node, records[name], bound(clock))
        engine.cluster.forget(draft.key)
    pods |= found
    modify(engine.cluster, *found.values())
    clock.now += 1
    return set(found)


@given(
    nodes=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    gangs=st.lists(GANGS, min_size=1, max_size=3),
    rounds=st.lists(OTHERS, min_size=2, max_size=2),
    restarts=st.booleans(),
)
@settings(max_examples=examples(8), deadline=None)
def test_later_pods_of_started_gangs_are_placed_in_the_next_cycle(
    nodes: Sequence[int],
    gangs: Sequence[Staged],
    rounds: Sequence[Sequence[tuple[int, int]]],
    restarts: bool,
) -> None:
    clock = Clock()
    machines = [
        node(f"n{i}", 8, gpus, labels={"rack": f"r{i // 2}"}) for i, gpus in enumerate(nodes)
    ]
    groups = {f"g{i}": group_of(f"g{i}", gang) for i, gang in enumerate(gangs)}
    pods = {
        each.metadata.name: each
        for i, gang in enumerate(gangs)
        for each in members(f"g{i}", "leader", 1, gang.leader_gpus)
    }

    def new_engine() -> Engine:
        known = (*machines, *groups.values(), *pods.values())
        return engine_with(*known, clock=clock, actions=("allocate", "backfill"))

    engine = new_engine()
    count = 0

    def disturb(others: Sequence[tuple[int, int]]) -> None:
        nonlocal engine, count
        for gpus, priority in others:
            one = pod(f"other-{count}", 0, gpus, priority=priority)
            pods[one.metadata.name] = one
            add(engine.cluster, one)
            count += 1
        cycle(engine, clock, pods)
        if restarts:
            engine = new_engine()

    started = {name[: -len("-leader-0")] for name in cycle(engine, clock, pods)}
    for of, others in zip(("workers", "helpers"), rounds, strict=True):
        disturb(others)
        coming = {
            each.metadata.name: each
            for name in sorted(started)
            for each in members(
                name,
                of,
                gangs[int(name[1:])].workers if of == "workers" else gangs[int(name[1:])].helpers,
                gangs[int(name[1:])].worker_gpus if of == "workers" else 1,
            )
        }
        pods |= coming
        add(engine.cluster, *coming.values())
        cycle(engine, clock, pods)
        waiting = [
            task.name
            for task in engine.cluster.state.tasks.values()
            if task.name in coming and task.status is not TaskStatus.RUNNING
        ]
        assert not waiting
    for name, gang in ((name, gangs[int(name[1:])]) for name in started):
        racks = {
            int(each.spec.node_name[1:]) // 2
            for each in pods.values()
            if each.metadata.name.startswith((f"{name}-leader", f"{name}-workers"))
        }
        assert len(racks) == 1 or not gang.shares_rack
