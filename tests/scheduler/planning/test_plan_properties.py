"""Every plan has whole gangs and correct columns, and is deterministic, in any cluster."""

import random
from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from bindery.api.gpus import MODEL_PREFIX
from bindery.api.names import GPU_MODEL_LABEL
from bindery.api.times import timestamp
from bindery.kube.objects.bindrequests import CommittedStatement
from bindery.kube.objects.watched import Pod
from bindery.scheduler.commit.drafts import StatementDraft
from bindery.scheduler.commit.stale import INCOMPLETE_AFTER_S, stale_requests
from bindery.scheduler.engine import Engine
from bindery.scheduler.model.jobs import JobKey, TaskStatus, Uid
from bindery.scheduler.placing import idle
from tests.scheduler.plannedworlds import World, worlds
from tests.scheduler.recounting import recount, view
from tests.scheduler.schedulerworld import (
    GPU,
    Clock,
    add,
    as_created,
    delete,
    engine_with,
    gang,
    modify,
    node,
    plan,
)
from tests.sizes import examples

SETTINGS = settings(
    max_examples=examples(10),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
BIND_REQUESTS = st.fixed_dictionaries(
    {"max_pods": st.integers(1, 4), "merge_above": st.integers(0, 3)}
)


def by_statement(drafts: list[StatementDraft]) -> dict[str, list[StatementDraft]]:
    statements: defaultdict[str, list[StatementDraft]] = defaultdict(list)
    for draft in drafts:
        statements[draft.spec.id].append(draft)
    return statements


@given(worlds(), BIND_REQUESTS)
@SETTINGS
def test_a_cycle_keeps_the_columns_correct_and_within_capacity(
    world: World, bind_request: dict[str, int]
) -> None:
    engine = engine_with(*world.objects, bind_request=bind_request)
    state = engine.cluster.state
    before = state.nodes.idle.copy()
    assert view(state) == recount(state)

    plan(engine)

    assert view(state) == recount(state)
    assert not state.nodes.pipelined.any()
    changed = state.nodes.idle != before
    assert (state.nodes.idle[changed] >= 0).all()
    assert {task.status for task in state.tasks.values()}.isdisjoint(
        {TaskStatus.ALLOCATED, TaskStatus.PIPELINED}
    )


@given(worlds(foreign=False))
@SETTINGS
def test_the_sum_of_queues_equals_the_sum_of_nodes_without_releasing_pods(world: World) -> None:
    pods = [pod for pod in world.pods if pod.spec.node_name != "unknown"]
    engine = engine_with(*World(world.nodes, world.queues, world.groups, pods).objects)
    plan(engine)

    nodes, queues = engine.cluster.state.nodes, engine.cluster.state.queues
    axis, held = engine.cluster.state.axis, nodes.used() - nodes.releasing
    of_model = np.zeros(len(axis), dtype=np.int64)
    for row, item in enumerate(nodes.nodes):
        model = item.metadata.labels.get(GPU_MODEL_LABEL) if item is not None else None
        if model is not None:
            of_model[axis.index(MODEL_PREFIX + model)] += held[axis.index(GPU), row]
    assert np.array_equal(queues.allocated.sum(axis=1), held.sum(axis=1) + of_model)


@given(worlds())
@SETTINGS
def test_no_plan_exceeds_the_limit_of_a_queue(world: World) -> None:
    engine = engine_with(*world.objects)
    plan(engine)

    queues, planned = engine.cluster.state.queues, set[int]()
    for task in engine.cluster.state.tasks.values():
        if task.status is TaskStatus.BINDING:
            planned |= set(queues.chain(task.queue_row))
    total = {row: np.zeros(len(queues.axis), dtype=np.int64) for row in planned}
    for row in range(len(queues.entries)):
        for ancestor in set(queues.chain(row)) & planned:
            total[ancestor] += queues.allocated[:, row]
    _, _, limit = queues.rules()
    bound_over = {row: (total[row] > limit[:, row]).any() for row in planned}
    # Pods that run already may hold more than a limit: then nothing that asks for it is planned.
    for task in engine.cluster.state.tasks.values():
        if task.status is TaskStatus.BINDING:
            for row in queues.chain(task.queue_row):
                if bound_over[row]:
                    over = total[row] > limit[:, row]
                    assert not over[list(task.shape.request.indices)].any()


@given(worlds(), BIND_REQUESTS)
@SETTINGS
def test_a_gang_is_planned_whole_or_not_at_all(world: World, bind_request: dict[str, int]) -> None:
    engine = engine_with(*world.objects, bind_request=bind_request)
    drafts = list(engine.cycle())

    planned = Counter(task.job for draft in drafts for task in draft.tasks)
    for key in planned:
        job = engine.cluster.state.jobs[key]
        assert job.exists
        assert job.is_satisfied
        assert job.placed.total >= job.min_member
    for parts in by_statement(drafts).values():
        assert [draft.spec.part for draft in parts] == list(range(len(parts)))
        assert all(draft.spec.parts == len(parts) for draft in parts)
    pods = [task.uid for draft in drafts for task in draft.tasks]
    assert len(pods) == len(set(pods))
    names = [draft.key for draft in drafts]
    assert len(names) == len(set(names))


@given(worlds(), BIND_REQUESTS, st.randoms(use_true_random=False))
@SETTINGS
def test_a_refused_statement_returns_all_its_pods(
    world: World, bind_request: dict[str, int], chance: random.Random
) -> None:
    engine = engine_with(*world.objects, bind_request=bind_request)
    drafts = list(engine.cycle())

    for parts in by_statement(drafts).values():
        refused = chance.random() < 0.5
        for draft in parts:
            if refused:
                engine.refused(draft)
            else:
                add(engine.cluster, as_created(draft))
        wanted = TaskStatus.PENDING if refused else TaskStatus.BINDING
        tasks = [engine.cluster.state.tasks[t.uid] for draft in parts for t in draft.tasks]
        assert {task.status for task in tasks} == {wanted}
    assert view(engine.cluster.state) == recount(engine.cluster.state)


@given(worlds(), BIND_REQUESTS, st.randoms(use_true_random=False))
@SETTINGS
def test_a_gang_that_loses_a_request_is_completed_or_undone(
    world: World, bind_request: dict[str, int], chance: random.Random
) -> None:
    clock = Clock()
    roomy = [node("roomy", 20), *gang("sure", 5), *gang("elastic", 6, 3)]
    engine = engine_with(*world.objects, *roomy, clock=clock, bind_request=bind_request)
    cluster = engine.cluster
    created = [as_created(draft) for draft in engine.cycle()]
    # Consolidation may move the core of a gang whose extra pods are on their way.
    moved = {eviction.task.job for eviction in engine.report.evictions}
    add(cluster, *(at(item, clock.now) for item in created))
    lost = [item for item in created if chance.random() < 0.4]
    delete(cluster, *lost)
    clock.now += INCOMPLETE_AFTER_S + 1
    timeout_s = engine.configuration.bind_request.timeout_seconds

    for stale in list(stale_requests(cluster, clock.now, timeout_s)):
        delete(cluster, stale.statement)
    add(cluster, *(at(as_created(draft), clock.now) for draft in engine.cycle()))
    moved |= {eviction.task.job for eviction in engine.report.evictions}

    live = Counter(item.spec.id for item in cluster.holds.statements.values())
    for item in cluster.holds.statements.values():
        assert live[item.spec.id] == item.spec.parts
        for pod in item.spec.pods:
            job = cluster.state.jobs[cluster.state.tasks[Uid(pod.pod_uid)].job]
            assert job.is_satisfied or job.key in moved
    assert view(cluster.state) == recount(cluster.state)


def at(request: CommittedStatement, now: float) -> CommittedStatement:
    """Return `request` as created at `now`."""
    return replace(request, metadata=replace(request.metadata, creation_timestamp=timestamp(now)))


@given(worlds(), BIND_REQUESTS, st.randoms(use_true_random=False))
@SETTINGS
def test_the_order_of_objects_does_not_change_the_plan(
    world: World, bind_request: dict[str, int], chance: random.Random
) -> None:
    shuffled = world.objects
    chance.shuffle(shuffled)
    plans = []
    for objects in (world.objects, shuffled):
        engine = engine_with(*objects, bind_request=bind_request)
        drafts = sorted(
            (d.name, [(p.pod_uid, p.selected_node) for p in d.spec.pods]) for d in engine.cycle()
        )
        reasons = {key: (job.satisfied, job.reason) for key, job in engine.report.jobs.items()}
        evictions = [(e.task.uid, e.preemptor, e.moves_to) for e in engine.report.evictions]
        plans.append((drafts, reasons, evictions, view(engine.cluster.state)))

    assert plans[0] == plans[1]


def settle(engine: Engine, world: World) -> None:
    """Run cycles, and let the API server do what they ask for, until one asks for nothing."""
    by_uid = {pod.metadata.uid: pod for pod in world.pods}
    for _ in range(2 * len(world.pods) + 1):
        drafts = list(engine.cycle())
        for draft in drafts:
            add(engine.cluster, as_created(draft))
        for eviction in engine.report.evictions:
            modify(engine.cluster, leaving(by_uid[eviction.task.uid]))
        if not drafts and not engine.report.evictions:
            return
    pytest.fail("it does not come to rest")


def leaving(pod: Pod) -> Pod:
    """Return `pod` as it is once its eviction has been granted."""
    metadata = replace(pod.metadata, deletion_timestamp="2025-06-15T15:06:41Z")
    return replace(pod, metadata=metadata)


@given(worlds(), BIND_REQUESTS)
@SETTINGS
def test_idle_cycles_do_nothing(world: World, bind_request: dict[str, int]) -> None:
    engine = engine_with(*world.objects, bind_request=bind_request)
    settle(engine, world)
    settled, verdicts = view(engine.cluster.state), _verdicts(engine)

    for _ in range(3):
        assert plan(engine) == {}
        assert not engine.report.evictions
        assert view(engine.cluster.state) == settled
        assert _verdicts(engine) == verdicts


@given(world=worlds(most_jobs=8))
@SETTINGS
def test_caching_of_shortages_changes_no_verdict(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = engine_with(*world.objects)
    slow = engine_with(*world.objects)

    planned = plan(quick)
    with monkeypatch.context() as patch:
        patch.setattr(idle.IdleRoom, "_known_shortage", lambda *_: None)
        assert plan(slow) == planned

    assert _verdicts(slow) == _verdicts(quick)


def _verdicts(engine: Engine) -> dict[JobKey, tuple[bool, str]]:
    return {key: (job.satisfied, job.reason) for key, job in engine.report.jobs.items()}
