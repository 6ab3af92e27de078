"""Stages: room is kept for pods of a gang that are created later."""

from typing import Any

import msgspec
import pytest

from bindery.api.times import timestamp
from bindery.kube.objects import podspec
from bindery.kube.objects import watched as kube
from bindery.kube.objects.podgroups import (
    Dependency,
    PodGroup,
    PodTemplate,
    SubGroup,
    TemplateMeta,
    TopologyConstraint,
)
from bindery.kube.objects.selectors import LabelSelector
from bindery.scheduler.engine import Engine
from bindery.scheduler.model.reasons import JobReason
from tests.scheduler.schedulerworld import (
    GPU,
    Clock,
    add,
    as_created,
    delete,
    engine_with,
    gang,
    group,
    modify,
    node,
    plan,
    pod,
    queue,
    report_of,
    requirements,
)


def template(gpu: int, **spec: Any) -> PodTemplate:
    container = podspec.Container(resources=requirements({GPU: gpu}))
    made = podspec.PodSpec(containers=[container], **spec)
    return PodTemplate(spec=msgspec.to_builtins(made))


def stage(
    name: str, minimum: int, *after: tuple[str, str], gpu: int = 1, **fields: Any
) -> SubGroup:
    """Return a sub-group that comes after others: pairs of name and condition."""
    return SubGroup(
        name=name,
        min_member=minimum,
        after=[Dependency(sub_group=other, condition=how) for other, how in after],
        template=template(gpu) if after else None,
        **fields,
    )


LEADER_READY = (stage("leader", 1), stage("workers", 2, ("leader", "Ready")))


def staged(*stages: SubGroup, name: str = "gang", **fields: Any) -> PodGroup:
    """Return a PodGroup whose minimum is the sum of those of its stages."""
    least = sum(each.min_member or 0 for each in stages)
    return group(name, least, sub_groups=list(stages), **fields)


def member(name: str, of: str, *, gang: str = "gang", gpu: int = 1, **fields: Any) -> kube.Pod:
    return pod(name, 0, gpu, group=gang, sub_group=of, **fields)


def bound(clock: Clock, age_s: float = 0) -> list[kube.Condition]:
    at = timestamp(clock.now - age_s)
    return [kube.Condition(type="PodScheduled", status="True", last_transition_time=at)]


def leader_runs(clock: Clock, age_s: float = 0, **fields: Any) -> kube.Pod:
    return member("leader-0", "leader", on="n", conditions=bound(clock, age_s), **fields)


def stages_of(engine: Engine, name: str = "gang") -> dict[str, tuple[tuple[str, ...], bool]]:
    """Return stage -> the nodes on which room is kept, and whether its end is known."""
    found = {key.name: reports for key, reports in engine.report.stages.items()}
    return {each.stage: (each.nodes, each.until is not None) for each in found.get(name, ())}


def test_the_first_stage_starts_only_if_the_later_ones_fit_now() -> None:
    engine = engine_with(node("n", 8, 2), staged(*LEADER_READY), member("leader-0", "leader"))

    assert plan(engine) == {}
    report = report_of(engine, "gang")
    assert report.reason == JobReason.UNSCHEDULABLE
    assert "the later stage workers must fit at the same time" in report.message

    add(engine.cluster, node("m", 8, 1))
    assert plan(engine) == {"leader-0": "m"}
    assert stages_of(engine) == {"workers": (("n",), False)}


def test_the_room_of_later_stages_is_given_to_no_other_job_in_the_session() -> None:
    engine = engine_with(
        node("n", 8, 3), staged(*LEADER_READY), member("leader-0", "leader"), pod("other", 0, 1)
    )

    assert set(plan(engine)) == {"leader-0"}
    assert report_of(engine, "other").reason == JobReason.UNSCHEDULABLE


def test_the_room_is_kept_from_session_to_session_and_across_restarts() -> None:
    clock = Clock()
    engine = engine_with(
        node("n", 8, 3), staged(*LEADER_READY), leader_runs(clock), pod("other", 0, 1), clock=clock
    )

    for _ in range(3):
        assert plan(engine) == {}
        assert stages_of(engine) == {"workers": (("n",), True)}
        clock.now += 60


def test_the_pods_of_a_stage_use_the_room_kept_for_them() -> None:
    clock = Clock()
    engine = engine_with(
        node("n", 8, 3),
        staged(*LEADER_READY),
        leader_runs(clock),
        pod("other", 0, 1, priority=1000),
        clock=clock,
        actions=("allocate",),
    )
    assert plan(engine) == {}

    add(engine.cluster, member("w-0", "workers"))
    assert plan(engine) == {}, "a stage is a gang: its second pod has not come"
    assert report_of(engine, "gang").message.endswith(
        "1 pods of its later stage workers exist, which are too few"
    )

    add(engine.cluster, member("w-1", "workers"))
    assert plan(engine) == {"w-0": "n", "w-1": "n"}
    assert stages_of(engine) == {}


def test_the_room_is_released_at_the_deadline_with_an_event() -> None:
    clock = Clock()
    engine = engine_with(
        node("n", 8, 3),
        staged(*LEADER_READY, stage_timeout_seconds=100),
        leader_runs(clock),
        pod("other", 0, 1),
        clock=clock,
    )
    assert plan(engine) == {}
    until = clock.now + 100

    clock.now += 101
    assert plan(engine) == {"other": "n"}

    (report,) = next(iter(engine.report.stages.values()))
    assert (report.nodes, report.until, report.problem) == ((), until, "its time is over")
    told = [(each.meta.name, each.reason) for each in engine.cluster.problems]
    assert told == [("gang", "StageRoomReleased")]
    engine.cluster.problems.clear()
    plan(engine)
    assert not engine.cluster.problems, "once is enough"


def test_a_scheduler_that_restarts_after_the_deadline_keeps_nothing() -> None:
    clock = Clock()
    engine = engine_with(
        node("n", 8, 3), staged(*LEADER_READY), leader_runs(clock, 601), pod("other", 0, 1),
        clock=clock,
    )  # fmt: skip

    assert plan(engine) == {"other": "n"}
    assert not engine.cluster.problems


def test_a_stage_after_complete_holds_no_room_and_does_not_delay_the_gang() -> None:
    torchtune = (stage("data", 1), stage("node", 2, ("data", "Complete"), gpu=8))
    engine = engine_with(
        node("n", 8, 2), staged(*torchtune), member("data-0", "data"), pod("other", 0, 1)
    )

    assert plan(engine) == {"data-0": "n", "other": "n"}


def test_a_stage_after_complete_starts_as_a_gang_when_the_first_pods_have_ended() -> None:
    stages = (
        stage("data", 1),
        stage("node", 2, ("data", "Complete")),
        stage("launcher", 1, ("node", "Ready")),
    )
    nodes = [member(f"node-{i}", "node") for i in range(2)]
    engine = engine_with(node("n", 8, 2), staged(*stages), *nodes)
    assert plan(engine) == {}, "the launcher has no room beside the nodes"
    assert "later stage launcher" in report_of(engine, "gang").message

    add(engine.cluster, node("m", 8, 1))
    assert sorted(plan(engine)) == ["node-0", "node-1"]
    assert set(stages_of(engine)) == {"launcher"}


def test_room_is_kept_for_all_stages_of_a_chain_from_the_start() -> None:
    in_order = (
        stage("a", 1),
        stage("b", 1, ("a", "Ready")),
        stage("c", 1, ("b", "Ready")),
    )
    engine = engine_with(node("n", 8, 2), staged(*in_order), member("a-0", "a"))
    assert plan(engine) == {}

    add(engine.cluster, node("m", 8, 1))
    assert set(plan(engine)) == {"a-0"}
    assert set(stages_of(engine)) == {"b", "c"}


def test_a_stage_without_a_template_keeps_nothing_and_blocks_nothing() -> None:
    bare = SubGroup(
        name="workers",
        min_member=2,
        after=[Dependency(sub_group="leader", condition="Ready")],
    )
    engine = engine_with(
        node("n", 8, 1), staged(stage("leader", 1), bare), member("leader-0", "leader")
    )

    assert plan(engine) == {"leader-0": "n"}
    (report,) = next(iter(engine.report.stages.values()))
    assert report.problem == "it has no template, so the room that it needs is not known"


def test_the_limit_of_the_queue_counts_later_stages() -> None:
    small = queue("small", limits={GPU: 2})
    engine = engine_with(
        node("n", 8, 8), small, staged(*LEADER_READY, queue="small"), member("leader-0", "leader")
    )

    assert plan(engine) == {}
    assert report_of(engine, "gang").reason == JobReason.OVER_LIMIT


def test_the_room_is_kept_within_the_domain_of_the_gang() -> None:
    racks = [
        node(f"{rack}{i}", 8, 1, labels={"rack": rack}) for rack in ("a", "b") for i in range(2)
    ]
    three = (stage("leader", 1), stage("workers", 2, ("leader", "Ready")))
    in_rack = TopologyConstraint(required="rack")
    engine = engine_with(*racks, staged(*three, topology=in_rack), member("leader-0", "leader"))
    assert plan(engine) == {}, "no rack has room for all three"

    add(engine.cluster, node("b2", 8, 1, labels={"rack": "b"}))
    (place,) = plan(engine).values()
    assert place.startswith("b")
    ((nodes, _),) = stages_of(engine).values()
    assert len(nodes) == 2
    assert all(name.startswith("b") for name in nodes)


def test_victims_are_evicted_for_all_stages_together() -> None:
    victims = [pod(f"low-{i}", 0, 1, on="n", priority=1) for i in range(3)]
    leader = member("leader-0", "leader", priority=50)
    engine = engine_with(node("n", 8, 3), staged(*LEADER_READY), *victims, leader)

    assert plan(engine) == {}
    evicted = sorted(each.task.name for each in engine.report.evictions)
    assert evicted == ["low-0", "low-1", "low-2"]


def test_nothing_is_evicted_for_a_first_stage_if_a_later_stage_never_fits() -> None:
    victims = [pod(f"low-{i}", 0, 1, on="n", priority=1) for i in range(2)]
    leader = member("leader-0", "leader", priority=50)
    engine = engine_with(node("n", 8, 2), staged(*LEADER_READY), *victims, leader)

    assert plan(engine) == {}
    assert engine.report.evictions == []


def test_every_session_restores_the_state() -> None:
    clock = Clock()
    engine = engine_with(
        node("n", 8, 3), staged(*LEADER_READY), leader_runs(clock), pod("other", 0, 1), clock=clock
    )
    before = set(engine.cluster.state.tasks)

    plan(engine)

    assert set(engine.cluster.state.tasks) == before
    (gang,) = [job for key, job in engine.cluster.state.jobs.items() if key.name == "gang"]
    assert not gang.pending
    assert gang.key not in engine.cluster.state.waiting
    assert not engine.cluster.state.nodes.pipelined.any()


def test_a_gang_below_a_raised_minimum_is_not_stale() -> None:
    clock = Clock()
    pods = [member(f"p{i}", "", on="n", conditions=bound(clock)) for i in range(2)]
    engine = engine_with(node("n", 8, 2), group("gang", 2), *pods, clock=clock)
    plan(engine)

    modify(engine.cluster, group("gang", 4))
    add(engine.cluster, member("p2", ""), member("p3", ""))
    for _ in range(5):
        assert plan(engine) == {}
        assert engine.report.evictions == []
        clock.now += 100

    delete(engine.cluster, pods[0])
    plan(engine)
    clock.now += 1000
    plan(engine)
    assert [each.task.name for each in engine.report.evictions] == ["p1"], "now it has lost one"


def test_a_first_stage_is_not_stale_before_later_pods_exist() -> None:
    clock = Clock()
    engine = engine_with(node("n", 8, 3), staged(*LEADER_READY), leader_runs(clock), clock=clock)

    for _ in range(20):
        plan(engine)
        assert engine.report.evictions == []
        clock.now += 100


def test_later_stages_are_stale_when_the_first_is_lost() -> None:
    clock = Clock()
    workers = [member(f"w-{i}", "workers", on="n", conditions=bound(clock)) for i in range(2)]
    engine = engine_with(
        node("n", 8, 3), staged(*LEADER_READY), leader_runs(clock), *workers, clock=clock
    )
    plan(engine)

    delete(engine.cluster, leader_runs(clock))
    plan(engine)
    clock.now += 1000
    plan(engine)

    assert sorted(each.task.name for each in engine.report.evictions) == ["w-0", "w-1"]


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        ([stage("a", 1, ("a", "Ready"))], "spec.subGroups: a comes after itself"),
        (
            [stage("a", 1, ("b", "Ready")), stage("b", 1, ("a", "Bound"))],
            "spec.subGroups: a comes after itself",
        ),
        ([stage("a", 1, ("b", "Ready"))], "spec.subGroups: a comes after b, which is missing"),
    ],
    ids=["self", "cycle", "missing"],
)
def test_stages_that_cannot_be_ordered_are_reported_on_the_group(
    stages: list[SubGroup], message: str
) -> None:
    engine = engine_with(node("n"), staged(*stages), member("a-0", "a"))

    plan(engine)

    assert report_of(engine, "gang").reason == JobReason.INVALID
    assert report_of(engine, "gang").message == message


def test_a_first_stage_that_is_being_bound_keeps_the_room_of_later_stages() -> None:
    engine = engine_with(node("n", 8, 3), staged(*LEADER_READY), member("leader-0", "leader"))
    (draft,) = engine.cycle()
    add(engine.cluster, as_created(draft), pod("other", 0, 1))

    assert plan(engine) == {}
    assert stages_of(engine) == {"workers": (("n",), False)}


def test_later_pods_with_anti_affinity_have_room_on_different_nodes() -> None:
    apart = podspec.Affinity(
        pod_anti_affinity=podspec.PodAffinity(
            required=[
                podspec.PodAffinityTerm(
                    topology_key="kubernetes.io/hostname",
                    label_selector=LabelSelector(match_labels={"app": "w"}),
                )
            ]
        )
    )
    workers = SubGroup(
        name="workers",
        min_member=2,
        after=[Dependency(sub_group="leader", condition="Ready")],
        template=PodTemplate(
            metadata=TemplateMeta(labels={"app": "w"}),
            spec=msgspec.to_builtins(podspec.PodSpec(affinity=apart)),
        ),
    )
    host = {"kubernetes.io/hostname": "n"}
    gang = staged(stage("leader", 1), workers)
    engine = engine_with(node("n", 8, 8, labels=host), gang, member("leader-0", "leader"))
    assert plan(engine) == {}, "one node is too few for two that avoid each other"

    add(engine.cluster, node("m", 8, 8, labels={"kubernetes.io/hostname": "m"}))
    assert set(plan(engine)) == {"leader-0"}
    assert stages_of(engine) == {"workers": (("m", "n"), False)}

    delete(engine.cluster, gang)
    plan(engine)
    assert not engine.cluster.state.staged


def test_quantities_in_a_template_may_be_numbers_or_limits_without_requests() -> None:
    container = {"name": "main", "resources": {"limits": {GPU: 1, "cpu": 0.5}}}
    workers = SubGroup(
        name="workers",
        min_member=2,
        after=[Dependency(sub_group="leader", condition="Ready")],
        template=PodTemplate(spec={"containers": [container], "overhead": {"cpu": 1}}),
    )
    engine = engine_with(
        node("n", 8, 2), staged(stage("leader", 1), workers), member("leader-0", "leader")
    )

    assert plan(engine) == {}
    assert "later stage workers" in report_of(engine, "gang").message


def test_an_unreadable_template_is_reported_on_the_group() -> None:
    broken = SubGroup(
        name="workers",
        min_member=2,
        after=[Dependency(sub_group="leader", condition="Ready")],
        template=PodTemplate(spec={"containers": "none"}),
    )
    leader = member("leader-0", "leader")
    engine = engine_with(node("n", 8, 2), staged(stage("leader", 1), broken), leader, pod("other"))

    assert plan(engine) == {"other": "n"}
    assert report_of(engine, "gang").reason == JobReason.INVALID
    assert report_of(engine, "gang").message.startswith(
        "spec.subGroups: the template of workers: Expected `array`"
    )


@pytest.mark.parametrize("minimum", [1, 3])
def test_the_minimum_before_the_start_is_the_first_stages_minimum(minimum: int) -> None:
    gang = group("gang", minimum, sub_groups=list(LEADER_READY))
    engine = engine_with(node("n", 8, 3), gang, member("leader-0", "leader"))

    assert plan(engine) == {"leader-0": "n"}
    (job,) = engine.cluster.state.jobs.values()
    assert job.min_member == 1


# ---- numbers and times that users set -----------------------------------------------------------


def many(count: int, name: str = "workers") -> SubGroup:
    """Return a stage of `count` pods that ask for next to nothing."""
    spec = {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1m"}}}]}
    return SubGroup(
        name=name,
        min_member=count,
        after=[Dependency(sub_group="leader", condition="Ready")],
        template=PodTemplate(spec=spec),
    )


@pytest.mark.parametrize("count", [10_000, 99_999])
def test_an_impossible_later_stage_is_refused_before_its_pods_are_created(
    count: int,
) -> None:
    engine = engine_with(
        node("n", 8, 2), staged(stage("leader", 1), many(count)), member("leader-0", "leader"),
        *gang("plain", 2),
    )  # fmt: skip
    watch = Watch()
    engine._stopwatch = watch

    assert plan(engine) == {"plain-0": "n", "plain-1": "n"}

    assert watch.reads < 200
    report = report_of(engine, "gang")
    assert report.reason == JobReason.UNSCHEDULABLE
    assert report.message == (
        "the later stage workers must fit at the same time: its sub-group workers needs "
        f"{count} pods, and all nodes together could take 110 such pods"
    )


def test_a_running_gang_with_a_raised_later_stage_keeps_no_room_with_the_reason() -> None:
    clock = Clock()
    engine = engine_with(
        node("n", 8, 3), staged(stage("leader", 1), many(99_999)), leader_runs(clock),
        pod("other"), clock=clock,
    )  # fmt: skip

    assert plan(engine) == {"other": "n"}

    ((report,),) = engine.report.stages.values()
    assert (report.nodes, report.pods) == ((), 99_999)
    assert "all nodes together could take 110 such pods" in report.problem


class Watch:
    """A stopwatch that stands still and counts how often planning looks at it."""

    def __init__(self) -> None:
        self.reads = 0

    def __call__(self) -> float:
        self.reads += 1
        return 0.0


def test_unchanged_room_is_kept_without_planning_each_pod() -> None:
    clock = Clock()
    engine = engine_with(
        *(node(f"n{i}", 8, 2) for i in range(5)),
        staged(stage("leader", 1), many(400)),
        leader_runs(clock),
        clock=clock,
    )
    watch = Watch()
    engine._stopwatch = watch
    plan(engine)
    (first,), planned = engine.report.stages.values(), watch.reads
    assert len(first[0].nodes) == 4

    watch.reads = 0
    plan(engine)

    (second,) = engine.report.stages.values()
    assert second == first
    assert planned > 400
    assert watch.reads < 40


def test_room_is_planned_again_when_it_no_longer_fits_its_nodes() -> None:
    clock = Clock()
    engine = engine_with(
        node("n", 8, 3), node("o", 8, 3), staged(stage("leader", 1), many(50)), leader_runs(clock),
        clock=clock,
    )  # fmt: skip
    plan(engine)
    assert stages_of(engine) == {"workers": (("n",), True)}

    modify(engine.cluster, node("n", 8, 3, unschedulable=True))
    plan(engine)

    assert stages_of(engine) == {"workers": (("o",), True)}


def test_room_is_kept_for_a_day_at_most() -> None:
    clock = Clock()
    engine = engine_with(
        node("n", 8, 3),
        staged(*LEADER_READY, stage_timeout_seconds=1e308),
        leader_runs(clock),
        pod("other", 0, 1),
        clock=clock,
    )
    assert plan(engine) == {}

    clock.now += 86_401

    assert plan(engine) == {"other": "n"}


def test_no_room_is_kept_for_a_stage_after_all_earlier_pods_have_ended() -> None:
    clock = Clock()
    engine = engine_with(
        node("n", 8, 3), staged(*LEADER_READY), leader_runs(clock), pod("other", 0, 1), clock=clock
    )
    assert plan(engine) == {}

    modify(engine.cluster, leader_runs(clock, phase="Succeeded"))

    assert plan(engine) == {"other": "n"}
    assert stages_of(engine) == {}


def test_room_is_kept_while_one_of_the_earlier_stages_runs() -> None:
    clock = Clock()
    workers = stage("workers", 2, ("leader", "Ready"), ("helper", "Ready"))
    engine = engine_with(
        node("n", 8, 4),
        staged(stage("leader", 1), stage("helper", 1), workers),
        leader_runs(clock, phase="Succeeded"),
        member("helper-0", "helper", on="n", conditions=bound(clock)),
        pod("other", 0, 2),
        clock=clock,
    )

    assert plan(engine) == {}
    assert stages_of(engine) == {"workers": (("n",), True)}


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"min_member": 100_001}, "spec.minMember is 100001: the maximum is 100000"),
        ({"roles": {"worker": 10**9}}, "spec.roles demands 1000000000 pods: the maximum is 100000"),
        (
            {"sub_groups": [SubGroup(name="all", min_member=10**9)]},
            "all has a minimum of 1000000000, the maximum is 100000",
        ),
    ],
)
def test_an_invalid_minimum_is_reported_as_invalid(fields: dict[str, Any], told: str) -> None:
    minimum = fields.pop("min_member", 1)
    engine = engine_with(node("n"), group("gang", minimum, **fields), pod("p", group="gang"))

    assert plan(engine) == {}

    report = report_of(engine, "gang")
    assert report.reason == JobReason.INVALID
    assert told in report.message
