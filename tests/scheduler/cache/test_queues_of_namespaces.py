"""The queue of a pod is its own or else its namespace's, and must allow the namespace."""

import itertools

import pytest

from bindery.api.names import QUEUE_LABEL
from bindery.kube.objects import watched as kube
from bindery.kube.objects.podgroups import PodGroup
from bindery.kube.objects.queueaccess import AccessReason
from bindery.kube.objects.queues import NamespaceRule, Queue, QueueSpec
from bindery.scheduler.engine import Engine
from bindery.scheduler.model.jobs import JobKey
from bindery.scheduler.status.job_events import owner_of
from tests.scheduler.recounting import recount, view
from tests.scheduler.schedulerworld import (
    NAMESPACE,
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

SMALL = queue("small", cpu=1)


def namespace(**labels: str) -> kube.Namespace:
    named = {QUEUE_LABEL if key == "queue" else key: value for key, value in labels.items()}
    return kube.Namespace(metadata=kube.Meta(name=NAMESPACE, uid="uid-ns", labels=named))


def queues_of(engine: Engine) -> dict[str, str]:
    return {key.name: job.queue for key, job in engine.cluster.state.jobs.items()}


MEMBER = pod("member-0", group="member")
ITEMS = [namespace(queue="small"), pod("alone"), group("member", queue=""), MEMBER]


@pytest.mark.parametrize("order", list(itertools.permutations(range(len(ITEMS)))))
def test_the_queue_is_the_same_in_any_order_of_objects(order: tuple[int, ...]) -> None:
    engine = engine_with(node("n"), SMALL, *(ITEMS[index] for index in order))

    assert queues_of(engine) == {"alone": "small", "member": "small"}


def test_the_queue_of_a_pod_or_pod_group_precedes_the_namespaces_queue() -> None:
    engine = engine_with(
        namespace(queue="small"), pod("a", queue="other"), group("g", queue="other")
    )

    assert queues_of(engine) == {"a": "other", "g": "other"}


def test_a_waiting_pod_follows_the_label_and_a_bound_pod_keeps_its_queue() -> None:
    bound = pod("bound", on="n", charged="small")
    engine = engine_with(node("n"), SMALL, queue("large"), namespace(queue="small"), bound)
    add(engine.cluster, pod("waits", cpu=1))
    assert not plan(engine)

    modify(engine.cluster, namespace(queue="large"))

    assert plan(engine) == {"waits": "n"}
    table = engine.cluster.state.queues
    assert table.allocated[:, table.row("small")].any(), "the bound pod still counts there"


def test_a_bound_gang_without_a_queue_keeps_its_queue_when_its_namespace_changes() -> None:
    members = [pod(f"g-{i}", group="g", on="n", charged="small") for i in range(2)]
    charged = group("g", 2, queue="", charged="small")
    engine = engine_with(
        node("n"),
        SMALL,
        queue("large"),
        namespace(queue="small"),
        charged,
        *members,
        tenancy_policy_enforced=True,
    )

    modify(engine.cluster, namespace(queue="large"))

    assert {task.queue for task in engine.cluster.state.tasks.values()} == {"small"}


def test_the_sums_agree_with_the_tasks_after_each_change_of_the_namespace() -> None:
    engine = engine_with(node("n"), SMALL, *ITEMS, pod("bound", on="n"))
    for item in (namespace(queue="large"), namespace(), namespace(queue="small")):
        modify(engine.cluster, item)
        assert view(engine.cluster.state) == recount(engine.cluster.state)
    delete(engine.cluster, namespace())
    assert view(engine.cluster.state) == recount(engine.cluster.state)
    assert queues_of(engine)["member"] == "default"


def test_a_pod_waits_until_its_namespace_may_use_the_queue() -> None:
    rule = NamespaceRule(names=["other"])
    closed = Queue(metadata=SMALL.metadata, spec=QueueSpec(namespaces=rule))
    engine = engine_with(node("n"), closed, pod("a", queue="small"), pod("free"))

    assert plan(engine) == {"free": "n"}
    assert report_of(engine, "a").reason == AccessReason.NAMESPACE_NOT_ALLOWED

    opened = QueueSpec(namespaces=NamespaceRule(names=["other", NAMESPACE]))
    modify(engine.cluster, Queue(metadata=SMALL.metadata, spec=opened))
    assert plan(engine) == {"a": "n"}


def test_the_class_of_the_pods_counts_if_the_pod_group_has_none() -> None:
    only = {"high": NamespaceRule()}
    strict = Queue(
        metadata=kube.Meta(name="default", uid="uid-q"), spec=QueueSpec(priority_classes=only)
    )
    high = pod("a", group="g", priority_class_name="high")
    engine = engine_with(node("n"), strict, group("g", queue=""), high, pod("low"))

    assert plan(engine) == {"low": "n"}
    assert report_of(engine, "g").reason == AccessReason.PRIORITY_CLASS_NOT_ALLOWED


def test_the_owner_is_the_pod_groups_or_else_the_controller_of_its_pods() -> None:
    job = kube.OwnerReference(api_version="batch/v1", kind="Job", name="j", uid="u")
    owned = group("owned")
    meta = kube.Meta(
        name="owned", namespace=NAMESPACE, uid=owned.metadata.uid, owner_references=[job]
    )
    engine = engine_with(
        PodGroup(metadata=meta, spec=owned.spec), pod("a", group="owned"), pod("single")
    )

    of_group = owner_of(engine.cluster, JobKey(NAMESPACE, "owned", True))
    of_pod = owner_of(engine.cluster, JobKey(NAMESPACE, "single", False))

    assert of_group is not None
    assert (of_group.kind, of_group.name) == ("Job", "j")
    assert of_pod is not None
    assert (of_pod.kind, of_pod.name) == ("Job", "work")
    assert owner_of(engine.cluster, JobKey(NAMESPACE, "missing", False)) is None
