"""A gang with the largest field values that the API server accepts does not delay others."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bindery.api.states import (
    LONGEST_STAGE_TIMEOUT_S,
    MOST_GANG_PODS,
    MOST_SUB_GROUP_LEVELS,
    MOST_SUB_GROUPS,
)
from bindery.kube.objects import watched as kube
from bindery.kube.objects.podgroups import (
    MOST_MEMBERS,
    MOST_ROLES,
    Dependency,
    Mark,
    Member,
    PodGroupSpec,
    PodTemplate,
    Segments,
    SubGroup,
    TopologyConstraint,
)
from bindery.scheduler.engine import Engine
from bindery.scheduler.status.conditions import pending_writes
from tests.scheduler.recounting import recount, view
from tests.scheduler.schedulerworld import (
    Clock,
    add,
    configuration,
    engine_with,
    gang,
    group,
    node,
    plan,
    pod,
)
from tests.sizes import examples, sample
from tests.steps import StepClock

WITHIN_S = 4.0
"""Of a `StepClock`, as all seconds here."""
ATTEMPT_S = 0.1
"""Less than the default of 1 s, for short tests: an attempt without an end, or one that looks at
the time too late, takes longer than `WITHIN_S` with any limit."""
NODES = 60
SMALL = {"containers": [{"name": "m", "resources": {"requests": {"cpu": "1m"}}}]}
LARGE = {"containers": [{"name": "m", "resources": {"requests": {"cpu": "1000000"}}}]}
ZONE = TopologyConstraint(required="zone")
HOST = TopologyConstraint(
    required="zone", segments=Segments(size=1, required="kubernetes.io/hostname")
)


def leaves(count: int, **fields: Any) -> list[SubGroup]:
    return [SubGroup(name=f"s{i}", **fields) for i in range(count)]


def later(count: int, minimum: int, spec: Mapping[str, Any], **fields: Any) -> list[SubGroup]:
    """Return a first stage of one pod, and `count` stages that follow it or each other."""
    return [
        SubGroup(name="s0", min_member=1),
        *(
            SubGroup(
                name=f"s{i + 1}",
                min_member=minimum,
                after=[Dependency(sub_group=f"s{i}", condition="Ready")],
                template=PodTemplate(spec=dict(spec)),
                **fields,
            )
            for i in range(count)
        ),
    ]


def deep() -> list[SubGroup]:
    """Return as many sub-groups as there may be, as deep as they may be."""
    found, above = [], None
    for level in range(MOST_SUB_GROUP_LEVELS - 1):
        found.append(SubGroup(name=f"l{level}", parent=above, topology=ZONE))
        above = f"l{level}"
    count = MOST_SUB_GROUPS - len(found)
    return [*found, *leaves(count, parent=above, min_member=1, topology=HOST)]


SUB_GROUPS: list[list[SubGroup]] = [
    [],
    leaves(1, min_member=MOST_GANG_PODS),
    leaves(MOST_SUB_GROUPS, min_member=1),
    leaves(MOST_SUB_GROUPS, min_member=0, topology=ZONE),
    leaves(MOST_SUB_GROUPS, min_member=MOST_GANG_PODS, min_sub_group=MOST_GANG_PODS),
    deep(),
    later(1, MOST_GANG_PODS, SMALL),
    later(1, NODES * 110, SMALL),
    later(1, NODES * 50, SMALL, topology=HOST),
    later(1, MOST_GANG_PODS, LARGE),
    later(1_000, MOST_GANG_PODS, SMALL),
    later(1_000, 1, SMALL),
    later(1_000, 1, LARGE, topology=ZONE),
]
VALUES: dict[str, list[Any]] = {
    "min_member": [0, 1, MOST_GANG_PODS],
    "queue": ["default", "q" * 253],
    "priority_class_name": [None, "p" * 253],
    "roles": [{}, {f"r{i}": MOST_GANG_PODS for i in range(MOST_ROLES)}, {"r0": 1}],
    "sub_groups": SUB_GROUPS,
    "min_sub_group": [None, 1, MOST_GANG_PODS],
    "topology": [
        None,
        ZONE,
        HOST,
        TopologyConstraint(required="kubernetes.io/hostname", exclusive=True),
        TopologyConstraint(required="zone", segments=Segments(size=MOST_GANG_PODS)),
    ],
    "preemptibility": [None, "NonPreemptible"],
    "preemption_delay_seconds": [0.0, 1e308],
    "staleness_grace_period_seconds": [None, -1e308, 1e308],
    "expected_runtime_seconds": [None, 1e-300, 1e308],
    "members": [
        [],
        [Member(annotation=Mark(key="k", value=f"{i}")) for i in range(MOST_MEMBERS)],
    ],
    "stage_timeout_seconds": [None, 0.0, LONGEST_STAGE_TIMEOUT_S, 1e308],
    "disruption_mode": [None, "Group"],
    "preemption_policy": [None, "Never"],
    "run_time_limit_seconds": [None, 1e-300, 1e308],
}


def hostile(fields: Mapping[str, Any], pods: int, running: int) -> list[kube.KubeObject]:
    """Return the gang; `running` of its `pods` run. They are of the first sub-group and role."""
    minimum, name = fields["min_member"], "s0" if fields["sub_groups"] else ""
    rest = {key: value for key, value in fields.items() if key not in ("min_member", "queue")}
    members = [
        pod(
            f"hostile-{i}", cpu="1m", group="hostile", sub_group=name, role="r0",
            on=f"n{i % NODES}" if i < running else "", labels={"app": "hostile"},
        )
        for i in range(pods)
    ]  # fmt: skip
    made = group("hostile", minimum, fields["queue"])
    return [
        msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, **rest)),
        *members,
    ]


def engine_beside(*items: kube.KubeObject, clock: Clock) -> Engine:
    engine = Engine(configuration(attempt_seconds=ATTEMPT_S), clock, StepClock())
    for i in range(NODES):
        labels = {"zone": f"z{i % 6}", "kubernetes.io/hostname": f"n{i}"}
        add(engine.cluster, node(f"n{i}", 8, labels=labels))
    add(engine.cluster, *items)
    return engine


def bound_after_s(engine: Engine, name: str) -> float:
    """Return after how many seconds of planning the gang `name` is committed."""
    stopwatch, found = engine._stopwatch, list[float]()
    assert isinstance(stopwatch, StepClock)
    begun_s = stopwatch()
    with stopwatch.running():
        for draft in engine.cycle():
            if any(task.job.name == name for task in draft.tasks):
                found.append(stopwatch() - begun_s)
    list(pending_writes(engine.cluster, engine.report, engine._clock()))
    assert found, f"{name} is not bound"
    return found[0]


def test_these_tests_have_largest_values_for_every_field_of_a_podgroup() -> None:
    assert VALUES.keys() == {each.name for each in msgspec.structs.fields(PodGroupSpec)}


@pytest.mark.parametrize("index", sample(6, range(len(SUB_GROUPS))))
@pytest.mark.parametrize("running", sample(1, [1, 0]))
def test_a_plain_gang_binds_in_time_beside_any_tree_of_sub_groups(index: int, running: int) -> None:
    fields = {name: values[0] for name, values in VALUES.items()}
    fields |= {"sub_groups": SUB_GROUPS[index], "min_member": 1}
    clock = Clock()
    engine = engine_beside(*hostile(fields, 30, running), *gang("plain", 2), clock=clock)

    assert bound_after_s(engine, "plain") < WITHIN_S

    clock.now += 30
    add(engine.cluster, *gang("later", 2))
    assert bound_after_s(engine, "later") < WITHIN_S


@pytest.mark.parametrize("nodes", [3, NODES])
def test_a_later_stage_that_lacks_one_pod_slot_is_refused_by_its_sum_in_every_cycle(
    nodes: int,
) -> None:
    fields = {name: values[0] for name, values in VALUES.items()} | {"min_member": 1}
    fields["sub_groups"] = later(1, nodes * 110, SMALL)
    engine = engine_with(*(node(f"n{i}", 8) for i in range(nodes)), *hostile(fields, 1, 1))
    clock = StepClock()

    for _ in range(3):
        with clock.running():
            plan(engine)
        ((report,),) = engine.report.stages.values()
        assert report.nodes == ()
        assert f"{nodes * 110 - 1} of {nodes * 110} pods fit" in report.problem

    assert clock() < 0.1


def test_room_is_kept_for_a_later_stage_that_takes_all_pod_slots() -> None:
    fields = {name: values[0] for name, values in VALUES.items()} | {"min_member": 1}
    fields["sub_groups"] = later(1, 3 * 110 - 1, SMALL)
    engine = engine_with(*(node(f"n{i}", 8) for i in range(3)), *hostile(fields, 1, 1))

    plan(engine)

    ((report,),) = engine.report.stages.values()
    assert report.nodes == ("n0", "n1", "n2")


@given(
    fields=st.fixed_dictionaries({name: st.sampled_from(vs) for name, vs in VALUES.items()}),
    pods=st.sampled_from([1, 2, 300]),
    running=st.sampled_from([0, 0, 1, 50]),
)
@settings(suppress_health_check=list(HealthCheck), deadline=None, max_examples=examples(9))
def test_a_plain_gang_binds_in_time_beside_a_gang_with_the_largest_values(
    fields: dict[str, Any], pods: int, running: int
) -> None:
    engine = engine_beside(
        *hostile(fields, pods, min(pods, running)), *gang("plain", 2), clock=Clock()
    )

    assert bound_after_s(engine, "plain") < WITHIN_S * 1.5

    assert view(engine.cluster.state) == recount(engine.cluster.state)
    assert engine.cluster.defects.take() == []
