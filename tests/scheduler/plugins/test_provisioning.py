"""ProvisioningRequests for gangs that lack room, and no evictions while nodes are provisioned."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from bindery.api.configuration import DEFAULT_PLUGINS, PluginConfiguration
from bindery.api.names import API_VERSION, NODE_POOL_LABEL
from bindery.api.names import PROVISIONING_REQUEST_ANNOTATION as ANNOTATION
from bindery.api.provisioning import ATOMIC_CLASS
from bindery.api.times import timestamp
from bindery.kube.objects import podspec
from bindery.kube.objects import watched as kube
from bindery.kube.objects.podgroups import PodGroup
from bindery.kube.objects.provisioning import ProvisioningRequest, ProvisioningStatus
from bindery.scheduler.engine import Engine
from bindery.scheduler.insight.waiting import explain
from bindery.scheduler.model.jobs import JobKey
from bindery.scheduler.model.reasons import JobReason
from bindery.scheduler.status.conditions import pending_writes
from bindery.scheduler.status.podtemplates import templates
from bindery.scheduler.status.provisioning import (
    ProvisioningChange,
    ProvisioningRequestDraft,
    arguments_of,
    steps,
)
from bindery.scheduler.world import World
from tests.scheduler.schedulerworld import (
    NAMESPACE,
    NOW,
    Clock,
    add,
    configuration,
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
)
from tests.scheduler.sharedgpus import sharer

WAIT_S = 900.0
Conditions = Sequence[kube.Condition]


def condition(
    kind: str, at: float = NOW, status: str = "True", reason: str = "R"
) -> kube.Condition:
    return kube.Condition(
        type=kind,
        status=status,
        reason=reason,
        message=f"says {kind}",
        last_transition_time=timestamp(at),
    )


ACCEPTED = condition("Accepted")
PROVISIONED = condition("Provisioned")


def world(*items: kube.KubeObject, clock: Clock | None = None, **arguments: Any) -> Engine:
    plugins = [PluginConfiguration(name=name) for name in DEFAULT_PLUGINS]
    plugins.append(PluginConfiguration(name="provisioning", arguments=arguments))
    return engine_with(*items, plugins=plugins, clock=clock or Clock())


def marked(name: str, minimum: int, mark: str = "true", **fields: Any) -> PodGroup:
    made = group(name, minimum, **fields)
    return replace(made, metadata=replace(made.metadata, annotations={ANNOTATION: mark}))


def due(engine: Engine, at: float = NOW) -> list[ProvisioningChange]:
    """Run one cycle; return the steps after it."""
    plan(engine)
    arguments = arguments_of(engine.configuration)
    assert arguments is not None
    return list(steps(engine.cluster, engine.report, arguments, at))


def drafted(engine: Engine) -> ProvisioningRequestDraft:
    (step,) = due(engine)
    assert step.draft is not None
    return step.draft


def stored(draft: ProvisioningRequestDraft, *conditions: kube.Condition) -> ProvisioningRequest:
    """Return the object that the watch shows after `draft` was created."""
    made = msgspec.convert(draft.to_object(), ProvisioningRequest)
    meta = replace(made.metadata, uid=f"uid-request-{made.metadata.name}")
    return replace(made, metadata=meta, status=ProvisioningStatus(conditions=list(conditions)))


def of_group(name: str, conditions: Conditions) -> ProvisioningRequest:
    owner = kube.OwnerReference(
        api_version=API_VERSION, kind="PodGroup", name=name, uid=f"uid-group-{name}"
    )
    meta = kube.Meta(name=name, namespace=NAMESPACE, uid="uid-r", owner_references=[owner])
    return ProvisioningRequest(
        metadata=meta, status=ProvisioningStatus(conditions=list(conditions))
    )


# ---- which requests there are -----------------------------------------------------------------


def test_a_gang_that_lacks_room_gets_one_request_with_the_shapes_of_its_pods() -> None:
    members = [
        *(pod(f"g-{i}", 4, group="g", labels={"app": "x", "rank": str(i)}) for i in range(3)),
        pod("g-head", 1, group="g", node_selector={"disk": "fast"}),
    ]
    engine = world(node("n", 4), marked("g", 4), *members)

    draft = drafted(engine)

    made = draft.to_object()
    assert made["metadata"]["ownerReferences"] == [
        {"apiVersion": API_VERSION, "kind": "PodGroup", "name": "g", "uid": "uid-group-g"}
    ]
    assert made["spec"]["provisioningClassName"] == ATOMIC_CLASS
    by_name = {each["metadata"]["name"]: each["template"] for each in draft.template_objects()}
    shapes = {
        (
            by_name[each["podTemplateRef"]["name"]]["spec"]["containers"][0]["resources"][
                "requests"
            ]["cpu"],
            each["count"],
        )
        for each in made["spec"]["podSets"]
    }
    assert shapes == {("4", 3), ("1", 1)}
    assert {"disk": "fast"} in [each["spec"].get("nodeSelector") for each in by_name.values()]
    assert {"app": "x"} in [each["metadata"]["labels"] for each in by_name.values()]


def test_only_the_minimum_is_requested() -> None:
    engine = world(node("n", 1), marked("g", 2), *gang("g", 5, cpu=2)[1:])

    assert sum(drafted(engine).counts.values()) == 2


def test_a_template_has_only_fields_that_affect_the_choice_of_nodes() -> None:
    claim = podspec.PersistentVolumeClaimSource(claim_name="data")
    spec: Mapping[str, Any] = {
        "tolerations": [podspec.Toleration(key="gpu", operator="Exists")],
        "node_selector": {"node-role.kubernetes.io/gpu": ""},
        "volumes": [
            podspec.Volume(name="token"),
            podspec.Volume(name="data", persistent_volume_claim=claim),
        ],
        "priority_class_name": "high",
    }
    (template,) = templates([[pod("g-0", 9, group="g", **spec)]])

    made = template.spec
    assert made["tolerations"] == [{"key": "gpu", "operator": "Exists"}]
    assert made["nodeSelector"] == {"node-role.kubernetes.io/gpu": ""}
    assert made["volumes"] == [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    assert set(made) == {
        "containers",
        "nodeSelector",
        "tolerations",
        "volumes",
        "schedulerName",
    }


def test_a_template_selects_the_nodes_of_the_pool() -> None:
    labels = {NODE_POOL_LABEL: "a100"}
    selector = {"disk": "fast"}
    (template,) = templates([[pod("g-0", 9, labels=labels, node_selector=selector)]])

    assert template.spec["nodeSelector"] == {NODE_POOL_LABEL: "a100", "disk": "fast"}


@pytest.mark.parametrize(
    ("on_group", "on_pods", "all_gangs", "expected"),
    [
        (None, None, False, False),
        (None, None, True, True),
        ("true", None, False, True),
        ("false", None, True, False),
        (None, "true", False, True),
        ("false", "true", False, False),
        ("yes", None, False, False),
    ],
)
def test_a_gang_requests_nodes_by_its_group_then_its_pods_then_the_configuration(
    on_group: str | None, on_pods: str | None, all_gangs: bool, expected: bool
) -> None:
    made = pod("g-0", 9, group="g")
    if on_pods is not None:
        annotations = {**made.metadata.annotations, ANNOTATION: on_pods}
        made = replace(made, metadata=replace(made.metadata, annotations=annotations))
    owner = marked("g", 1, on_group) if on_group is not None else group("g", 1)

    engine = world(node("n", 1), owner, made, allGangs=all_gangs)

    assert bool(due(engine)) is expected


def test_a_gang_with_whole_gpus_gets_a_request() -> None:
    engine = world(node("n", 8, gpu=1), marked("g", 2), *gang("g", 2, gpu=1)[1:])

    (container,) = next(drafted(engine).template_objects())["template"]["spec"]["containers"]

    assert container["resources"]["requests"]["nvidia.com/gpu"] == "1"


def test_only_lack_of_room_requests_nodes() -> None:
    limited = [queue("q", limits={"cpu": 1}), *gang("limited", 2, queue="q")]
    short = [group("short", 3), pod("short-0", 9, group="short")]
    single = pod("single", 9)
    engine = world(node("n", 4), *limited, *short, single, allGangs=True)

    assert due(engine) == []


def problem_of(engine: Engine) -> str:
    (step,) = due(engine)
    assert (step.draft, step.old) == (None, None)
    return step.problem


def test_a_gang_with_shares_of_gpus_gets_no_request_and_a_problem_is_reported() -> None:
    made = [sharer(f"g-{i}", {"gpu-fraction": "0.6"}, group="g") for i in range(2)]

    assert "a share of a GPU" in problem_of(world(node("n", 4, gpu=1), marked("g", 2), *made))
    assert due(world(node("n", 4, gpu=1), group("g", 2), *made)) == [], "it does not ask"


def test_a_gang_with_too_many_shapes_gets_no_request_and_a_problem_is_reported() -> None:
    shapes = [pod(f"g-{i}", 10 + i, group="g") for i in range(33)]

    assert "33 shapes" in problem_of(world(node("n", 1), marked("g", 33), *shapes))
    assert len(drafted(world(node("n", 1), marked("g", 32), *shapes)).counts) == 32


def test_a_request_is_deleted_when_the_gang_is_placed() -> None:
    engine = world(node("n", 1), marked("g", 2), *gang("g", 2, cpu=2)[1:])
    request = stored(drafted(engine))
    add(engine.cluster, request)
    assert due(engine) == [], "it stays while the gang waits"

    add(engine.cluster, node("big", 8))

    (step,) = due(engine)
    assert (step.old, step.draft) == (request, None)
    delete(engine.cluster, request)
    assert due(engine) == []


def test_a_request_is_deleted_when_the_gang_waits_for_another_reason() -> None:
    engine = world(node("n", 1), marked("g", 2), *gang("g", 2, cpu=2)[1:])
    request = stored(drafted(engine))
    add(engine.cluster, request)

    delete(engine.cluster, pod("g-1", 2, group="g"))

    (step,) = due(engine)
    assert step.old == request


def test_a_request_for_other_pods_is_replaced() -> None:
    engine = world(node("n", 1), marked("g", 2), *gang("g", 3, cpu=2)[1:])
    request = stored(drafted(engine))
    add(engine.cluster, request)

    modify(engine.cluster, marked("g", 3))

    (step,) = due(engine)
    assert step.old == request
    delete(engine.cluster, request)
    assert sum(drafted(engine).counts.values()) == 3


@pytest.mark.parametrize("kind", ["Failed", "BookingExpired", "CapacityRevoked"])
def test_a_request_that_has_ended_is_replaced_after_a_while(kind: str) -> None:
    engine = world(node("n", 1), marked("g", 1), pod("g-0", 9, group="g"), retrySeconds=60)
    request = stored(drafted(engine), condition(kind))
    add(engine.cluster, request)

    assert due(engine, NOW + 59) == []
    (step,) = due(engine, NOW + 60)
    assert step.old == request


def test_a_request_of_an_earlier_group_is_left_to_the_garbage_collector() -> None:
    engine = world(node("n", 1), marked("g", 1), pod("g-0", 9, group="g"))
    request = stored(drafted(engine))
    earlier = replace(request.metadata.owner_references[0], uid="uid-earlier")
    add(
        engine.cluster,
        replace(request, metadata=replace(request.metadata, owner_references=[earlier])),
    )

    (step,) = due(engine)
    assert step.old is None


# ---- no evictions -----------------------------------------------------------------------------


def contested(
    conditions: Conditions | None, clock: Clock | None = None, mark: str = "true"
) -> Engine:
    """A gang of high priority on a full node, with a request in this state, or without one."""
    victims = [pod(f"low-{i}", 4, on="n", priority=1, queue="q") for i in range(2)]
    gang_pods = [pod(f"g-{i}", 4, group="g", priority=90) for i in range(2)]
    requests = [of_group("g", conditions)] if conditions is not None else []
    return world(
        *(node("n", 8), queue("q"), *gang_pods, *victims, *requests),
        marked("g", 2, mark, queue="q", created=timestamp(NOW)),
        clock=clock,
    )


def evicts(engine: Engine) -> bool:
    plan(engine)
    return bool(engine.report.evictions)


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ([ACCEPTED], False),
        ([ACCEPTED, PROVISIONED], False),
        ([ACCEPTED, condition("Failed")], True),
        ([ACCEPTED, PROVISIONED, condition("BookingExpired")], True),
        ([ACCEPTED, PROVISIONED, condition("CapacityRevoked")], True),
        ([condition("Accepted", status="False")], True),
        ([ACCEPTED, condition("Provisioned", status="False", reason="CapacityIsNotFound")], True),
        (
            [ACCEPTED, condition("Provisioned", status="False", reason="FailedToCheckCapacity")],
            True,
        ),
        ([ACCEPTED, condition("Provisioned", status="False", reason="Waiting")], False),
        ([condition("Accepted", NOW - WAIT_S)], True),
        ([condition("Accepted", NOW - WAIT_S), PROVISIONED], False),
    ],
)
def test_nothing_is_evicted_for_a_gang_while_its_nodes_are_provisioned(
    conditions: Conditions, expected: bool
) -> None:
    assert evicts(contested(conditions)) is expected


def test_evictions_begin_when_the_nodes_are_not_provisioned_in_time() -> None:
    clock = Clock()
    engine = contested([ACCEPTED], clock)
    assert not evicts(engine)

    clock.now += WAIT_S

    assert evicts(engine)


@pytest.mark.parametrize(
    ("conditions", "reason"),
    [
        (None, JobReason.NODES_REQUESTED),
        ([], JobReason.NODES_REQUESTED),
        ([ACCEPTED], JobReason.NODES_REQUESTED),
        ([ACCEPTED, condition("Failed")], JobReason.UNSCHEDULABLE),
    ],
)
def test_autoscalers_ignore_the_pods_while_the_request_provisions_nodes(
    conditions: Conditions | None, reason: JobReason
) -> None:
    requests = [of_group("g", conditions)] if conditions is not None else []
    made = marked("g", 2, created=timestamp(NOW))
    engine = world(node("n", 1), made, *gang("g", 2, cpu=2)[1:], *requests)
    plan(engine)

    written = {
        write.meta.name: write.condition.reason
        for write in pending_writes(engine.cluster, engine.report, NOW)
    }

    assert written == {"g": "Unschedulable", "g-0": reason, "g-1": reason}


@pytest.mark.parametrize("conditions", [None, []])
def test_evictions_wait_for_a_while_for_the_answer_to_the_request(
    conditions: Conditions | None,
) -> None:
    clock = Clock()
    engine = contested(conditions, clock)
    assert not evicts(engine)
    assert "it asks for nodes; no pods are evicted for it" in report_of(engine, "g").message

    clock.now += 60

    assert evicts(engine)


def test_a_gang_that_requests_no_nodes_waits_for_no_answer() -> None:
    assert evicts(contested(None, mark="false"))


def test_evictions_begin_when_the_request_fails_or_is_deleted() -> None:
    engine = contested([ACCEPTED])
    assert not evicts(engine)

    modify(engine.cluster, of_group("g", [ACCEPTED, condition("Failed")]))
    assert evicts(engine)

    clock = Clock()
    engine = contested([ACCEPTED], clock)
    delete(engine.cluster, of_group("g", [ACCEPTED]))
    clock.now += 60
    assert evicts(engine)


def test_no_pod_moves_for_a_gang_while_its_nodes_are_provisioned() -> None:
    spread = [pod(f"low-{i}", 4, on=f"n{i}", priority=90) for i in range(2)]
    items = [node("n0", 8), node("n1", 8), marked("g", 1), pod("g-0", 8, group="g"), *spread]

    assert evicts(world(*items, answerSeconds=0)), "consolidation moves one pod"
    assert not evicts(world(*items, of_group("g", [ACCEPTED])))


def test_the_reason_reports_that_nodes_are_being_provisioned_or_have_failed() -> None:
    engine = contested([ACCEPTED])
    plan(engine)
    report = report_of(engine, "g")
    assert report.reason == "Unschedulable"
    text = "its nodes are on their way: ProvisioningRequest g is Accepted; no pods are evicted"
    assert text in report.message
    assert all(text in each.message for each in report.pods.values())

    engine = world(
        node("n", 1), marked("g", 1), pod("g-0", 9, group="g"),
        of_group("g", [condition("Failed")]),
    )  # fmt: skip
    plan(engine)
    assert "ProvisioningRequest g is Failed: says Failed" in report_of(engine, "g").message


def test_explain_lists_the_victims_and_the_reason_why_they_stay() -> None:
    plugins = (
        *(PluginConfiguration(name=name) for name in DEFAULT_PLUGINS),
        PluginConfiguration(name="provisioning"),
    )
    victims = [pod(f"low-{i}", 4, on="n", priority=1, queue="q") for i in range(2)]
    gang_pods = [pod(f"g-{i}", 4, group="g", priority=90) for i in range(2)]
    items = [node("n", 8), queue("q"), marked("g", 2, queue="q"), *gang_pods, *victims]
    request = of_group("g", [ACCEPTED])
    explained = explain(
        World([*items, request], configuration(plugins), NOW).engine,
        JobKey(NAMESPACE, "g", is_group=True),
    )

    assert explained is not None
    assert "its nodes are on their way" in explained.message
    assert not explained.evictions
    assert explained.victims is not None
    assert {victim.job.name for victim in explained.victims.victims} == {"low-0", "low-1"}
    assert [each.reason for each in explained.victims.objections] == [JobReason.HELD_BACK]
