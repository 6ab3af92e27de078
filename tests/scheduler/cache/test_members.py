"""PodGroups select their pods by controller, marks, scheduling group or UID."""

import itertools
from typing import Any

import msgspec
import pytest

from bindery.api.configuration import GrouperExpectation
from bindery.api.names import KAI_SKIP_KEY, MADE_BY_GROUPER, MADE_BY_LABEL, SKIP_GROUPER_KEY
from bindery.api.times import timestamp
from bindery.kube.objects import podgroups
from bindery.kube.objects import watched as kube
from bindery.kube.objects.podgroups import Mark, Member, SubGroup
from bindery.kube.objects.podspec import SchedulingGroup
from bindery.scheduler.engine import Engine
from bindery.scheduler.model.reasons import JobReason
from bindery.scheduler.status.conditions import pending_writes
from tests.scheduler.schedulerworld import (
    CONTROLLER,
    Clock,
    add,
    delete,
    engine_with,
    group,
    modify,
    node,
    plan,
    pod,
    queue,
    report_of,
)

BIG = node("n", cpu=64)
OF_CONTROLLER = Member(controller=CONTROLLER.uid)
WAITING = GrouperExpectation(wait_for_groups=True)


def selecting(name: str, minimum: int, *members: Member, **spec: Any) -> podgroups.PodGroup:
    return group(name, minimum, members=list(members), **spec)


def jobs(engine: Engine) -> dict[str, set[str]]:
    """Return the name of each job and those of its pods."""
    found = engine.cluster.state.jobs.values()
    return {job.key.name: {task.name for task in job.tasks.values()} for job in found}


@pytest.mark.parametrize(
    ("member", "item"),
    [
        (OF_CONTROLLER, pod("a")),
        (
            Member(annotation=Mark(key="pod-group-name", value="g")),
            msgspec.structs.replace(
                pod("a"),
                metadata=kube.Meta(
                    name="a", uid="uid-a", namespace="team", annotations={"pod-group-name": "g"}
                ),
            ),
        ),
        (Member(label=Mark(key="team", value="a")), pod("a", labels={"team": "a"})),
        (
            Member(scheduling_group="train"),
            pod("a", scheduling_group=SchedulingGroup(pod_group_name="train")),
        ),
        (Member(pod="uid-a"), pod("a")),
    ],
    ids=["controller", "annotation", "label", "schedulingGroup", "pod"],
)
def test_each_selector_selects_its_pods_and_no_others(member: Member, item: kube.Pod) -> None:
    engine = engine_with(BIG, item, pod("b", controlled=False), selecting("gang", 1, member))

    assert jobs(engine) == {"gang": {"a"}, "b": {"b"}}


def test_pod_labels_narrow_a_selector() -> None:
    first = Member(controller=CONTROLLER.uid, pod_labels={"group-index": "0"})
    second = Member(controller=CONTROLLER.uid, pod_labels={"group-index": "1"})
    pods = [pod(f"p{i}", labels={"group-index": str(i % 2)}) for i in range(4)]

    engine = engine_with(BIG, selecting("g0", 2, first), selecting("g1", 2, second), *pods)

    assert jobs(engine) == {"g0": {"p0", "p2"}, "g1": {"p1", "p3"}}


def test_the_annotation_of_a_pod_overrides_selectors() -> None:
    engine = engine_with(
        BIG, selecting("selects", 1, OF_CONTROLLER), group("named"), pod("a", group="named")
    )

    assert jobs(engine) == {"selects": set(), "named": {"a"}}


def test_any_order_of_events_gives_the_same_jobs() -> None:
    older = selecting("older", 2, OF_CONTROLLER, created="2025-06-15T14:00:00Z")
    younger = selecting("younger", 1, OF_CONTROLLER, created="2025-06-15T15:00:00Z")
    items: list[kube.KubeObject] = [older, younger, pod("a"), pod("b", on="n"), BIG]

    for order in itertools.permutations(items):
        assert jobs(engine_with(*order)) == {"older": {"a", "b"}, "younger": set()}


def test_a_group_younger_than_the_groupers_reports_how_to_get_its_pods() -> None:
    older = selecting("job-train", 2, OF_CONTROLLER, created="2025-06-15T14:00:00Z")
    made = msgspec.structs.replace(older.metadata, labels={MADE_BY_LABEL: MADE_BY_GROUPER})
    younger = selecting("own", 1, OF_CONTROLLER, created="2025-06-15T15:00:00Z")

    engine = engine_with(BIG, msgspec.structs.replace(older, metadata=made), younger, pod("a"))

    (told,) = engine.cluster.problems
    assert (told.meta.name, told.reason) == ("own", "PodsTaken")
    assert told.message.endswith(f'with the annotation {SKIP_GROUPER_KEY}: "true"')


def test_pods_that_the_grouper_ignores_belong_to_the_group_that_selects_them() -> None:
    skipped = pod("a")
    annotations = {SKIP_GROUPER_KEY: "true"}
    skipped = msgspec.structs.replace(
        skipped, metadata=msgspec.structs.replace(skipped.metadata, annotations=annotations)
    )

    engine = engine_with(BIG, selecting("own", 1, OF_CONTROLLER), skipped)

    assert jobs(engine) == {"own": {"a"}}


def test_the_younger_of_two_groups_reports_that_its_pods_belong_to_the_other() -> None:
    older = selecting("older", 2, OF_CONTROLLER, created="2025-06-15T14:00:00Z")
    younger = selecting("younger", 1, OF_CONTROLLER, created="2025-06-15T15:00:00Z")

    engine = engine_with(BIG, younger, pod("a"), pod("b"), older)
    modify(engine.cluster, pod("a"))

    told = [(p.meta.name, p.reason, p.message) for p in engine.cluster.problems]
    assert told == [("younger", "PodsTaken", "pod a belongs to PodGroup older, which is older")]


def test_a_gang_is_bound_whole_when_its_podgroup_arrives_after_its_pods() -> None:
    engine = engine_with(node("n", cpu=1), pod("a"), pod("b"), grouper=WAITING)
    assert plan(engine) == {}

    add(engine.cluster, selecting("gang", 2, OF_CONTROLLER))
    assert plan(engine) == {}

    add(engine.cluster, node("m", cpu=1))
    assert sorted(plan(engine)) == ["a", "b"]


def test_pods_of_a_controller_wait_for_the_grouper() -> None:
    skipped = pod("skipped")
    skipped.metadata.annotations[SKIP_GROUPER_KEY] = "true"
    upstream = pod(
        "upstream", controlled=False, scheduling_group=SchedulingGroup(pod_group_name="train")
    )
    alone = pod("alone", controlled=False)
    engine = engine_with(BIG, pod("made"), skipped, upstream, alone, grouper=WAITING)

    assert sorted(plan(engine)) == ["alone", "skipped"]
    for name in ("made", "upstream"):
        report = report_of(engine, name)
        assert report.reason == JobReason.WAITING_FOR_GROUP
        assert "whether the grouper runs" in report.message


def test_an_invalid_mark_is_in_the_reason_of_its_pod() -> None:
    marked = pod("marked", controlled=False, labels={"kueue.x-k8s.io/pod-group-name": "My_Gang"})
    annotated = pod("annotated", controlled=False)
    annotated.metadata.annotations["pod-group-name"] = "x" * 5000
    engine = engine_with(BIG, marked, annotated, pod("own", group="Not A Name"), grouper=WAITING)
    plan(engine)

    report = report_of(engine, "marked")
    assert report.reason == JobReason.WAITING_FOR_GROUP
    assert report.message.startswith(
        "its label kueue.x-k8s.io/pod-group-name is 'My_Gang': a name has lower case letters"
    )
    assert "at most 253 characters" in report_of(engine, "annotated").message[:400]
    assert report_of(engine, "Not A Name").message.startswith(
        "PodGroup Not A Name does not exist: a name has lower case letters"
    )


def test_pods_marked_by_other_tools_wait_for_the_grouper() -> None:
    kueue = pod("kueue", controlled=False, labels={"kueue.x-k8s.io/pod-group-name": "g"})
    grove, skipped = pod("grove"), pod("skipped")
    for each in (grove, skipped):
        each.metadata.annotations[KAI_SKIP_KEY] = "true"
    grove.metadata.annotations["pod-group-name"] = "g"

    engine = engine_with(BIG, kueue, grove, skipped, grouper=WAITING)

    assert sorted(plan(engine)) == ["skipped"]


def test_pods_of_a_controller_are_planned_one_by_one_without_a_grouper() -> None:
    assert plan(engine_with(BIG, pod("made"))) == {"made": "n"}


def test_changed_members_move_waiting_and_running_pods() -> None:
    engine = engine_with(
        BIG, selecting("gang", 1, OF_CONTROLLER), pod("a"), pod("b", on="n", charged="default")
    )

    modify(engine.cluster, selecting("gang", 1, Member(pod="uid-b")))
    assert jobs(engine) == {"gang": {"b"}, "a": {"a"}}

    modify(engine.cluster, selecting("gang", 1))
    assert jobs(engine) == {"gang": set(), "a": {"a"}, "b": {"b"}}


def test_a_changed_label_moves_a_pod_to_another_group() -> None:
    by_label = Member(label=Mark(key="team", value="a"))
    engine = engine_with(BIG, selecting("gang", 1, by_label), pod("a"))

    modify(engine.cluster, pod("a", labels={"team": "a"}))
    assert jobs(engine) == {"gang": {"a"}}

    modify(engine.cluster, pod("a", labels={"team": "b"}))
    assert jobs(engine) == {"gang": set(), "a": {"a"}}


def test_a_bound_pod_stays_charged_when_no_group_selects_it_anymore() -> None:
    gang = selecting("gang", 1, OF_CONTROLLER, queue="limited")
    engine = engine_with(
        BIG,
        queue("limited", cpu=1),
        queue("default"),
        gang,
        pod("a", on="n", charged="limited", charged_group="uid-group-gang"),
        tenancy_policy_enforced=True,
    )

    delete(engine.cluster, gang)
    add(engine.cluster, selecting("next", 1, Member(pod="uid-b"), queue="limited"), pod("b"))

    assert jobs(engine) == {"a": {"a"}, "next": {"b"}}
    assert plan(engine) == {}, "the queue's limit is used up by the pod that runs on"
    assert report_of(engine, "next").reason == JobReason.OVER_LIMIT


def test_a_member_without_exactly_one_selector_is_reported_on_the_group() -> None:
    both = Member(controller=CONTROLLER.uid, pod="uid-a")
    engine = engine_with(BIG, selecting("gang", 1, Member(pod="uid-a"), both), pod("a"))

    plan(engine)

    report = report_of(engine, "gang")
    assert report.reason == JobReason.INVALID
    assert report.message == "spec.members[1] must have exactly one selector"


def test_sub_groups_select_their_pods() -> None:
    leaves = [
        SubGroup(name="all", min_member=0),
        SubGroup(name="driver", pod_labels={"role": "driver", "job": "x"}),
        SubGroup(name="launcher", controller="uid-launcher"),
        SubGroup(name="late", scheduling_group="late", pod_labels={"role": "late"}),
    ]
    by_label = Member(label=Mark(key="job", value="x"))
    driver = pod("driver", labels={"job": "x", "role": "driver"})
    of_launcher = pod("launcher", labels={"job": "x"})
    of_launcher.metadata.owner_references[:] = [
        kube.OwnerReference(uid="uid-launcher", controller=True)
    ]
    late = pod(
        "late",
        labels={"job": "x", "role": "late"},
        scheduling_group=SchedulingGroup(pod_group_name="late"),
    )
    other = pod("other", labels={"job": "x", "role": "late"})
    named = pod("named", labels={"job": "x", "role": "driver"}, sub_group="all")
    pods = (driver, of_launcher, late, other, named)

    def sub_groups(engine: Engine) -> dict[str, str]:
        return {task.name: task.sub_group for task in engine.cluster.state.tasks.values()}

    gang = selecting("gang", 1, by_label, sub_groups=leaves)
    expected = {
        "driver": "driver", "launcher": "launcher", "late": "late", "other": "", "named": "all"
    }  # fmt: skip
    assert sub_groups(engine_with(gang, *pods)) == expected
    assert sub_groups(engine_with(*pods, gang)) == expected

    engine = engine_with(*pods, selecting("gang", 1, by_label))
    modify(engine.cluster, gang)
    assert sub_groups(engine) == expected
    delete(engine.cluster, gang)
    assert sub_groups(engine) == {**dict.fromkeys(expected, ""), "named": "all"}


def test_a_pod_reports_only_after_a_while_that_it_waits_for_the_grouper() -> None:
    clock = Clock()
    created = msgspec.structs.replace(pod("a").metadata, creation_timestamp=timestamp(clock.now))
    engine = engine_with(
        BIG, msgspec.structs.replace(pod("a"), metadata=created), clock=clock, grouper=WAITING
    )

    plan(engine)
    assert list(pending_writes(engine.cluster, engine.report, clock.now)) == []

    clock.now += 20
    plan(engine)
    (write,) = pending_writes(engine.cluster, engine.report, clock.now)
    assert "whether the grouper runs" in write.condition.message
