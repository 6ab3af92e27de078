"""Gangs with idle GPUs or unhealthy devices have conditions that come and go with them."""

from msgspec.structs import replace

from bindery.api.names import GPUS_IDLE_SINCE_ANNOTATION
from bindery.api.states import DEVICES_UNHEALTHY, GPUS_IDLE
from bindery.api.times import timestamp
from bindery.kube.objects.podgroups import PodGroup
from bindery.kube.objects.queues import Queue, QueueSpec
from bindery.kube.objects.watched import (
    Condition,
    ContainerStatus,
    DeviceHealth,
    DevicesHealth,
    Meta,
    Pod,
    PodStatus,
)
from bindery.scheduler.engine import Engine
from bindery.scheduler.status.conditions import ConditionWrite, pending_writes
from tests.scheduler.schedulerworld import (
    NOW,
    Clock,
    engine_with,
    group,
    modify,
    node,
    plan,
    pod,
)

AFTER_S = 600.0


def queue(after_s: float | None = AFTER_S, timeout_s: float | None = None) -> Queue:
    spec = QueueSpec(idle_after_seconds=after_s, idle_timeout_seconds=timeout_s)
    return Queue(metadata=Meta(name="q", uid="uid-queue-q"), spec=spec)


def gpu_pod(name: str, idle_since: float | None = None) -> Pod:
    made = pod(name, group="g", gpu=1, on="n")
    if idle_since is None:
        return made
    annotations = {**made.metadata.annotations, GPUS_IDLE_SINCE_ANNOTATION: timestamp(idle_since)}
    return replace(made, metadata=replace(made.metadata, annotations=annotations))


def sick_pod(name: str, health: str, message: str = "") -> Pod:
    device = DeviceHealth(resource_id="GPU-7", health=health, message=message)
    resource = DevicesHealth(name="nvidia.com/gpu", resources=[device])
    status = ContainerStatus(name="main", allocated_resources_status=[resource])
    made = gpu_pod(name)
    return replace(made, status=PodStatus(phase="Running", container_statuses=[status]))


def world(*pods: Pod, rule: Queue, clock: Clock | None = None) -> Engine:
    return engine_with(
        node("n", gpu=8), rule, group("g", len(pods), "q"), *pods, clock=clock or Clock()
    )


def write_of(engine: Engine, now: float = NOW) -> ConditionWrite | None:
    plan(engine)
    writes = list(pending_writes(engine.cluster, engine.report, now))
    engine.cluster.changed_jobs.clear()
    return next((write for write in writes if write.meta.name == "g"), None)


def condition(engine: Engine, kind: str, now: float = NOW) -> Condition | None:
    write = write_of(engine, now)
    assert write is not None
    return next((each for each in write.all_conditions if each.type == kind), None)


def told(write: ConditionWrite) -> PodGroup:
    made = group("g", 2, "q", conditions=write.all_conditions)
    assert write.figures is not None
    figures = write.figures
    status = replace(made.status, state=write.state, pods=figures.pods, since=figures.since,
                     assigned_queue=figures.assigned_queue)  # fmt: skip
    return replace(made, status=status)


def test_a_gang_counts_as_idle_by_time_alone_and_no_longer_when_a_gpu_is_used() -> None:
    clock = Clock()
    engine = world(gpu_pod("a", NOW - 60), gpu_pod("b", NOW), rule=queue(), clock=clock)
    first = write_of(engine)
    assert first is not None
    assert [each.type for each in first.all_conditions] == ["Scheduled"]
    modify(engine.cluster, told(first))
    assert write_of(engine) is None

    clock.now += AFTER_S
    write = write_of(engine, clock.now)

    assert write is not None
    idle = write.all_conditions[-1]
    assert (idle.type, idle.status, idle.reason) == (GPUS_IDLE, "True", "GpusIdle")
    assert idle.message == (
        f"no pod has used its GPUs since {timestamp(NOW)}; "
        "the gang goes first if other gangs need its room"
    )
    modify(engine.cluster, told(write))
    assert write_of(engine, clock.now) is None
    modify(engine.cluster, gpu_pod("a"))
    assert condition(engine, GPUS_IDLE, clock.now) is None


def test_a_queue_with_a_timeout_alone_does_not_announce_an_idle_gang_before() -> None:
    rule = queue(after_s=None, timeout_s=AFTER_S)
    engine = world(gpu_pod("a", NOW - AFTER_S + 1), rule=rule)

    assert condition(engine, GPUS_IDLE) is None


def test_the_end_of_an_idle_gang_is_announced() -> None:
    engine = world(gpu_pod("a", NOW - AFTER_S), rule=queue(timeout_s=2 * AFTER_S))

    idle = condition(engine, GPUS_IDLE)

    assert idle is not None
    assert idle.message.endswith(f"the gang is evicted after {timestamp(NOW + AFTER_S)}")


def test_a_changed_queue_changes_who_is_idle() -> None:
    engine = world(gpu_pod("a", NOW - AFTER_S), rule=queue(after_s=None))
    assert condition(engine, GPUS_IDLE) is None

    modify(engine.cluster, queue())

    assert condition(engine, GPUS_IDLE) is not None


def test_devices_that_the_kubelet_reports_as_unhealthy_are_shown_at_their_gang() -> None:
    engine = world(sick_pod("a", "Unhealthy", "Xid 79"), sick_pod("b", "Healthy"), rule=queue())

    sick = condition(engine, DEVICES_UNHEALTHY)

    assert sick is not None
    assert sick.message == "unhealthy: GPU-7 (Xid 79) of pod a"
    modify(engine.cluster, sick_pod("a", "Healthy"))
    assert condition(engine, DEVICES_UNHEALTHY) is None
