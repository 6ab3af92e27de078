"""The webhook's answers about queues, and about the objects that use them."""

import base64
import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bindery.api.names import (
    ENABLED_LABEL,
    GPU_MODEL_LABEL,
    NODE_POOL_LABEL,
    POD_GROUP_ANNOTATION,
    QUEUE_LABEL,
)
from bindery.binder.webhook.access import Access, PodAccess
from bindery.binder.webhook.answers import MalformedReviewError
from bindery.binder.webhook.directory import Directory
from bindery.binder.webhook.objects import OfferingNode, Offers
from bindery.binder.webhook.queues import QueueReview
from bindery.kube.objects.queues import NamespaceRule, Queue, QueueSpec
from bindery.kube.objects.watched import Meta, Namespace, PriorityClass

OWN = NamespaceRule(names=["own"])


def named(name: str, **labels: str) -> Meta:
    return Meta(name=name, labels=labels)


def directory(
    *queues: Queue, namespaces: Iterable[Namespace] = (), nodes: Iterable[OfferingNode] = ()
) -> Directory:
    classes = [
        PriorityClass(metadata=named("high"), value=1000),
        PriorityClass(metadata=named("low"), value=10),
    ]
    return Directory(
        {("", item.metadata.name): item for item in queues},
        {("", item.metadata.name): item for item in namespaces},
        {("", item.metadata.name): item for item in classes},
        {("", item.metadata.name): item for item in nodes},
    )


def queue(name: str, parent: str | None = None, **rules: Any) -> Queue:
    return Queue(metadata=named(name), spec=QueueSpec(parent=parent, **rules))


CLOSED = queue("closed", namespaces=OWN)
PINNED = queue("pinned", non_preemptible=OWN)
CLASSES = queue("classes", priority_classes={"high": OWN})
HERE = Namespace(metadata=Meta(name="team", labels={QUEUE_LABEL: "closed"}))
ENABLED = Namespace(metadata=Meta(name="on", labels={ENABLED_LABEL: "true"}))
DIRECTORY = directory(CLOSED, PINNED, CLASSES, namespaces=(HERE, ENABLED))


def review(item: Any, old: Any = None, namespace: str = "team", **fields: Any) -> bytes:
    request = {"uid": "7", "namespace": namespace, "object": item, "oldObject": old, **fields}
    return json.dumps({"request": request}).encode()


def template(queue: str = "", scheduler: str = "bindery", **spec: Any) -> dict[str, Any]:
    labels = {QUEUE_LABEL: queue} if queue else {}
    pod = {"schedulerName": scheduler, "containers": [{"name": "a"}], **spec}
    return {"metadata": {"labels": labels}, "spec": pod}


def job(template: dict[str, Any], queue: str = "") -> dict[str, Any]:
    named = {"name": "j", "labels": {QUEUE_LABEL: queue} if queue else {}}
    return {"kind": "Job", "metadata": named, "spec": {"template": template}}


def message(answer: Any) -> str:
    response = answer["response"]
    return "" if response["allowed"] else str(response["status"]["message"])


NESTED = [
    {"spec": {"template": template("closed")}},
    {"spec": {"jobTemplate": {"spec": {"template": template("closed")}}}},
    {"spec": {"replicatedJobs": [{"template": {"spec": {"template": template("closed")}}}]}},
    {"spec": {"pytorchReplicaSpecs": {"Worker": {"template": template("closed")}}}},
    {"spec": {"leaderWorkerTemplate": {"workerTemplate": template("closed")}}},
]


@pytest.mark.parametrize("item", NESTED)
def test_pod_templates_are_found_at_any_path_of_a_kind(item: dict[str, Any]) -> None:
    answer = Access(DIRECTORY, "bindery").validate_workload(review(item))

    assert message(answer) == (
        "namespace team may not use queue closed: spec.namespaces does not include it"
    )


@pytest.mark.parametrize(
    ("item", "namespace", "problem"),
    [
        (job(template()), "team", "queue closed"),
        (job(template()), "other", ""),
        (job(template(), queue="closed"), "other", "queue closed"),
        (job(template("pinned"), queue="closed"), "other", ""),
        (job(template("closed", scheduler="default-scheduler")), "team", ""),
        (job(template("closed", scheduler="default-scheduler")), "on", "queue closed"),
        (job(template("closed", scheduler="volcano")), "on", ""),
        (job(template("classes", priorityClassName="high")), "other", "PriorityClass high"),
        (job(template("classes", priorityClassName="low")), "other", ""),
        (job(template("pinned", priorityClassName="high")), "other", "no non-preemptible pods"),
        (job(template("pinned", priorityClassName="low")), "other", ""),
        (job(template("closed")), "own", ""),
        ({"spec": {"template": {"spec": {"containers": "none"}}}}, "team", ""),
    ],
)
def test_a_workload_is_refused_if_its_pods_may_not_use_the_queue(
    item: dict[str, Any], namespace: str, problem: str
) -> None:
    answer = Access(DIRECTORY, "bindery").validate_workload(review(item, namespace=namespace))

    assert problem in message(answer)
    assert bool(problem) == bool(message(answer))


@pytest.mark.parametrize("kind", ["labels", "annotations"])
def test_a_queue_named_by_another_schedulers_key_is_checked(kind: str) -> None:
    item = job(template())
    item["metadata"][kind] = {"kai.scheduler/queue": "closed"}

    answer = Access(DIRECTORY, "bindery").validate_workload(review(item, namespace="other"))

    assert "may not use queue closed" in message(answer)


def test_a_workload_gets_one_warning_about_a_missing_queue() -> None:
    access, lost = Access(DIRECTORY, "bindery"), job(template("lost"))

    made = access.validate_workload(review(lost, namespace="other"))
    changed = access.validate_workload(review(lost, lost, namespace="other"))

    assert made["response"]["allowed"]
    assert made["response"]["warnings"] == [
        "queue lost does not exist: the gang waits until it does"
    ]
    assert "warnings" not in changed["response"]


def test_a_workload_of_another_scheduler_gets_no_warning() -> None:
    item = job(template("lost", scheduler="volcano"))

    answer = Access(DIRECTORY, "bindery").validate_workload(review(item))

    assert "warnings" not in answer["response"]


def test_a_workload_that_was_already_invalid_may_be_changed() -> None:
    old, new = job(template("closed")), job(template("closed", nodeName="n"))

    assert not message(Access(DIRECTORY, "bindery").validate_workload(review(new, old)))


def pod(queue: str = "", **metadata: Any) -> dict[str, Any]:
    item = template(queue)
    item["metadata"] |= {"namespace": "team", **metadata}
    return item


@pytest.mark.parametrize(
    ("item", "is_refused"),
    [
        (pod(), True),
        (pod("pinned"), False),
        (pod("closed", ownerReferences=[{"kind": "Job", "controller": True}]), True),
        (pod(ownerReferences=[{"kind": "Job", "controller": True}]), False),
        (pod(annotations={POD_GROUP_ANNOTATION: "g"}), False),
    ],
)
def test_a_pod_is_checked_by_its_queue_unless_its_owner_decides(
    item: dict[str, Any], is_refused: bool
) -> None:
    assert bool(PodAccess(DIRECTORY).validate(item)) is is_refused


@pytest.mark.parametrize(
    ("spec", "problem", "warning"),
    [
        ({"queue": "closed"}, "may not use queue closed", ""),
        ({}, "may not use queue closed", ""),
        ({"queue": "classes", "priorityClassName": "high"}, "may not use PriorityClass high", ""),
        ({"queue": "pinned", "preemptibility": "NonPreemptible"}, "no non-preemptible", ""),
        (
            {"queue": "pinned", "priorityClassName": "high", "preemptibility": "Preemptible"},
            "",
            "",
        ),
        ({"queue": "missing"}, "", "queue missing does not exist"),
        ({"queue": "pinned", "priorityClassName": "lost"}, "", "PriorityClass lost does not exist"),
        ({"queue": "default"}, "", ""),
        ({"queue": "default", "subGroups": [{"name": "a"}, {"name": "b", "parent": "a"}]}, "", ""),
        ({"queue": "default", "subGroups": [{"name": "a", "parent": "b"}]}, "parent b of a", ""),
        (
            {
                "queue": "default",
                "subGroups": [{"name": "a", "after": [{"subGroup": "zz", "condition": "Ready"}]}],
            },
            "a comes after zz, which is missing",
            "",
        ),
        (
            {
                "queue": "default",
                "subGroups": [
                    {"name": "a", "after": [{"subGroup": "b", "condition": "Ready"}]},
                    {"name": "b", "after": [{"subGroup": "a", "condition": "Ready"}]},
                ],
            },
            "a comes after itself",
            "",
        ),
        (
            {
                "queue": "default",
                "subGroups": [{"name": "a", "parent": "b"}, {"name": "b", "parent": "a"}],
            },
            "a is its own ancestor",
            "",
        ),
    ],
)
def test_an_invalid_pod_group_is_refused_or_gets_a_warning(
    spec: dict[str, Any], problem: str, warning: str
) -> None:
    answer = Access(DIRECTORY, "bindery").validate_group(review({"spec": spec}))

    assert problem in message(answer)
    assert bool(problem) == bool(message(answer))
    assert warning in "; ".join(answer["response"].get("warnings", [""]))


def test_other_fields_of_a_pod_group_with_an_invalid_tree_may_be_changed() -> None:
    broken = {"queue": "default", "subGroups": [{"name": "a", "parent": "b"}]}
    changed = review({"spec": {**broken, "minMember": 2}}, {"spec": broken})

    assert not message(Access(DIRECTORY, "bindery").validate_group(changed))


@pytest.mark.parametrize(
    ("item", "is_adopted"),
    [
        (template(scheduler="default-scheduler"), True),
        (template(scheduler=""), True),
        (template(scheduler="volcano"), False),
        (template(scheduler="default-scheduler", nodeName="n"), False),
        ({**template(scheduler=""), "metadata": {"labels": {ENABLED_LABEL: "false"}}}, False),
        (
            {**template(scheduler=""), "metadata": {"ownerReferences": [{"kind": "DaemonSet"}]}},
            False,
        ),
    ],
)
def test_a_pod_without_another_scheduler_is_assigned_to_bindery(
    item: dict[str, Any], is_adopted: bool
) -> None:
    response = Access(DIRECTORY, "bindery").adopt(review(item, namespace="on"))["response"]

    assert response["allowed"]
    patch = json.loads(base64.b64decode(response.get("patch", "W10=")))
    assert [step["value"] for step in patch] == ["bindery"] * is_adopted


@pytest.mark.parametrize(
    ("item", "problem", "warning"),
    [
        ({"metadata": {"name": "a"}, "spec": {"parent": "a"}}, "a -> a", ""),
        ({"metadata": {"name": "top"}, "spec": {"parent": "low"}}, "top -> low -> mid -> top", ""),
        ({"metadata": {"name": "new"}, "spec": {"parent": "low"}}, "", ""),
        ({"metadata": {"name": "new"}, "spec": {"parent": "gone"}}, "", "parent gone does not"),
        ({"metadata": {"name": "new"}, "spec": {}}, "", ""),
    ],
)
def test_a_queue_on_a_cycle_is_refused_and_one_without_its_parent_gets_a_warning(
    item: dict[str, Any], problem: str, warning: str
) -> None:
    tree = directory(queue("top"), queue("mid", "top"), queue("low", "mid"))

    answer = QueueReview(tree).validate(review(item))

    assert problem in message(answer)
    assert bool(problem) == bool(message(answer))
    assert warning in "; ".join(answer["response"].get("warnings", [""]))


GPU_NODE = OfferingNode(
    metadata=named("n", **{GPU_MODEL_LABEL: "NVIDIA-A100-SXM4-40GB"}),
    status=Offers(allocatable={"cpu": "8", "nvidia.com/gpu": "8", "example.com/nic": "2"}),
)


@pytest.mark.parametrize(
    ("spec", "warning"),
    [
        (
            {"resources": {"gpus": {}}},
            "no node reports gpus, so its rule has no effect: did you mean gpu?",
        ),
        ({"resources": {"nvidia.com/gpuu": {}}}, "did you mean nvidia.com/gpu?"),
        ({"resources": {"example.com/nics": {}}}, "did you mean example.com/nic?"),
        ({"resources": {"nvidia.com/mig-9g.1gb": {}}}, "no node reports nvidia.com/mig-9g.1gb"),
        ({"models": {"NVIDIA-A100": {}}}, "did you mean NVIDIA-A100-SXM4-40GB?"),
        ({"models": {"B200": {}}}, "no node has the label nvidia.com/gpu.product=B200"),
        ({"namespaces": {"names": ["team", "nosuchns"]}}, "namespace nosuchns does not exist"),
        ({"nonPreemptible": {"names": ["a", "b"]}}, "namespaces a, b do not exist"),
        ({"priorityClasses": {"hihg": {}}}, "PriorityClass hihg does not exist"),
        ({"priorityClasses": {"*": {"names": ["gone"]}}}, "spec.priorityClasses.*.names: "),
    ],
)
def test_a_queue_that_names_missing_objects_gets_a_warning(
    spec: dict[str, Any], warning: str
) -> None:
    known = directory(namespaces=(HERE,), nodes=(GPU_NODE,))

    response = QueueReview(known).validate(review({"metadata": {"name": "q"}, "spec": spec}))

    assert response["response"]["allowed"]
    assert warning in "; ".join(response["response"]["warnings"])
    assert len(response["response"]["warnings"]) == 1


def test_a_queue_that_names_only_known_objects_gets_no_warning() -> None:
    known = directory(namespaces=(HERE,), nodes=(GPU_NODE,))
    resources = ("cpu", "memory", "pods", "gpu", "example.com/nic", "amd.com/gpu", "hugepages-2Mi")
    spec = {
        "resources": {name: {} for name in (*resources, "nvidia.com/mig-1g.5gb")},
        "models": {"NVIDIA-A100-SXM4-40GB": {}},
        "namespaces": {"names": ["team"], "selector": {}},
        "priorityClasses": {"high": {"names": ["team"]}, "*": {}},
    }

    response = QueueReview(known).validate(review({"metadata": {"name": "q"}, "spec": spec}))

    assert response["response"] == {"uid": "7", "allowed": True}


def test_a_queue_with_two_rules_for_one_resource_is_refused_once() -> None:
    twice = {
        "metadata": {"name": "q"},
        "spec": {"resources": {"gpu": {"quota": 1}, "nvidia.com/gpu": {"quota": 2}}},
    }
    once = {"metadata": {"name": "q"}, "spec": {"resources": {"gpu": {"quota": 1}}}}
    review_of = QueueReview(directory())

    for old in (None, once):
        assert "gpu and nvidia.com/gpu are the same resource" in message(
            review_of.validate(review(twice, old))
        )
    assert not message(review_of.validate(review({**twice, "more": 1}, twice)))


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"models": {"": {}}}, "spec.models: '' is no value of the label nvidia.com/gpu.product"),
        ({"priority": -99999999999}, "spec.priority: -99999999999 is beyond"),
        (
            {"namespaces": {"selector": {"matchLabels": {"a b": "c"}}}},
            "spec.namespaces.selector.matchLabels: 'a b' is no key of a label",
        ),
        ({"priorityClasses": {"p": {"selector": {"matchLabels": {"": "c"}}}}}, "is no key"),
    ],
)
def test_a_queue_with_a_meaningless_value_is_refused(spec: dict[str, Any], problem: str) -> None:
    response = QueueReview(directory()).validate(review({"metadata": {"name": "q"}, "spec": spec}))

    assert problem in message(response)


def test_the_maximum_depth_counts_levels_above_and_below_a_queue() -> None:
    upper = [queue(f"u{i}", f"u{i - 1}" if i else None) for i in range(20)]
    lower = [queue(f"l{i}", f"l{i - 1}" if i else None) for i in range(13)]
    moved = {"metadata": {"name": "l0"}, "spec": {"parent": "u19"}}
    fits = {"metadata": {"name": "l0"}, "spec": {"parent": "u18"}}
    review_of = QueueReview(directory(*upper, *lower))

    assert "more than 32 levels" in message(review_of.validate(review(moved)))
    assert not message(review_of.validate(review(fits)))


@pytest.mark.parametrize(
    ("name", "gangs", "problem"),
    [
        ("top", {}, "queue top has queues below it: mid"),
        ("low", {"running": 2, "pending": 1}, "queue low has gangs: 2 running, 1 waiting"),
        ("low", {"running": 0}, ""),
    ],
)
def test_the_deletion_of_a_queue_in_use_is_refused(
    name: str, gangs: dict[str, int], problem: str
) -> None:
    tree = directory(queue("top"), queue("mid", "top"), queue("low", "mid"))
    old = {"metadata": {"name": name}, "status": {"gangs": gangs}}

    answer = QueueReview(tree).validate(review(None, old, operation="DELETE"))

    assert problem in message(answer)
    assert bool(problem) == bool(message(answer))


@pytest.mark.parametrize(
    ("name", "parent", "problem"),
    [
        ("one", "two", ""),
        ("self", "self", ""),
        ("three", "four", "queue three has queues below it: below"),
    ],
)
def test_a_queue_on_a_cycle_may_be_deleted(name: str, parent: str, problem: str) -> None:
    tree = directory(
        queue("one", "two"),
        queue("two", "one"),
        queue("self", "self"),
        queue("three", "four"),
        queue("four", "three"),
        queue("below", "three"),
    )
    old = {"metadata": {"name": name}, "spec": {"parent": parent}}

    answer = QueueReview(tree).validate(review(None, old, operation="DELETE"))

    assert message(answer) == problem


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "metadata",
                    "spec",
                    "containers",
                    "labels",
                    "template",
                    "parent",
                    "ownerReferences",
                ]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=12,
)


@given(item=anything, old=anything)
def test_every_object_gets_an_answer_or_is_reported_as_malformed(item: Any, old: Any) -> None:
    access, body = Access(DIRECTORY, "bindery"), review(item, old)
    deciders = (
        access.validate_workload,
        access.validate_group,
        access.adopt,
        QueueReview(DIRECTORY).validate,
    )
    for decide in deciders:
        try:
            answer = decide(body)
        except MalformedReviewError:
            continue
        assert answer["response"]["uid"] == "7"


@pytest.mark.parametrize(
    ("change", "is_bound", "warned"),
    [
        ({"preemptibility": "NonPreemptible"}, True, True),
        ({"priorityClassName": "high"}, True, True),
        ({"preemptibility": "NonPreemptible"}, False, False),
        ({"preemptibility": "Preemptible"}, True, False),
    ],
)
def test_making_a_running_gang_non_preemptible_gets_a_warning_about_the_quota(
    change: dict[str, str], *, is_bound: bool, warned: bool
) -> None:
    status = {"queue": "default"} if is_bound else {}
    old = {"spec": {"minMember": 1}, "status": status}
    changed = review({"spec": {"minMember": 1, **change}, "status": status}, old)

    answer = Access(DIRECTORY, "bindery").validate_group(changed)

    assert not message(answer)
    warnings = answer["response"].get("warnings", [])
    assert any("stay preemptible" in warning for warning in warnings) is warned


OURS = "scheduling.bindery.dev/"


def keyed(on: str, kind: str, key: str, value: str) -> dict[str, Any]:
    """Return a Job with a key on itself or on its template."""
    made = template()
    item = job(made)
    metadata = item["metadata"] if on == "workload" else made["metadata"]
    metadata.setdefault(kind, {})[f"{OURS}{key}"] = value
    return item


@pytest.mark.parametrize("on", ["workload", "template"])
@pytest.mark.parametrize(
    ("kind", "key", "value", "problem"),
    [
        ("labels", "queues", "research", f"did you mean the label {OURS}queue?"),
        ("annotations", "min-members", "4", f"did you mean the annotation {OURS}min-member?"),
        ("labels", "colour", "red", "it is not known"),
        ("labels", "min-member", "abc", "'abc' means nothing: it must be a whole number"),
        ("annotations", "preemptible", "maybe", "it must be true or false"),
        ("annotations", "run-time-limit-seconds", "-1", "positive number of seconds"),
        ("annotations", "disruption-mode", "All", "it must be Pod or Group"),
        ("annotations", "skip-grouper", "yes", "it must be true or false"),
        ("annotations", "do-not-disrupt", "1", "it must be true or false"),
        ("annotations", "spread-devices", "on", "it must be true or false"),
        ("annotations", "last-checkpoint", "yesterday", "it must be a time such as 2026-"),
        ("annotations", "pod-group", "Not A Name!", "a name has lower case letters, digits"),
        ("annotations", "pod-group", "", "a name has lower case letters, digits"),
        ("labels", "enabled", "perhaps", "it must be true or false"),
    ],
)
def test_wrong_keys_and_values_on_a_workload_are_refused(
    on: str, kind: str, key: str, value: str, problem: str
) -> None:
    item = keyed(on, kind, key, value)
    access = Access(DIRECTORY, "bindery")

    assert problem in message(access.validate_workload(review(item)))
    # A change is refused for what it makes wrong.
    assert not message(access.validate_workload(review(item, item)))


@pytest.mark.parametrize("key", ["queue", "min-member", "preemptible", "user", "node-pool"])
@pytest.mark.parametrize("kind", ["annotations", "labels"])
def test_keys_of_owners_are_read_from_annotations_and_labels(key: str, kind: str) -> None:
    value = {"min-member": "2", "preemptible": "true"}.get(key, "research")

    item = keyed("workload", kind, key, value)
    answer = Access(DIRECTORY, "bindery").validate_workload(review(item, namespace="free"))
    assert not message(answer)


def test_a_workload_with_a_missing_priority_class_gets_a_warning() -> None:
    item = keyed("workload", "labels", "priority-class", "missing")

    answer = Access(DIRECTORY, "bindery").validate_workload(review(item, namespace="free"))
    assert not message(answer)
    assert "PriorityClass missing does not exist" in answer["response"]["warnings"][0]


@pytest.mark.parametrize(
    ("key", "value"),
    [("gpu-fraction", "-0.5"), ("gpu-fraction", "half"), ("gpu-memory", "0")],
)
def test_an_invalid_gpu_share_is_refused_at_the_workload(key: str, value: str) -> None:
    item = job(template())
    item["spec"]["template"]["metadata"]["annotations"] = {key: value}

    assert f"{key} must be" in message(Access(DIRECTORY, "bindery").validate_workload(review(item)))


@pytest.mark.parametrize(
    ("own", "warning"),
    [
        (None, "'p2' has no effect on the workload: the pods get the label of their template"),
        ("p1", "which has 'p1'"),
        ("p2", ""),
    ],
)
def test_a_node_pool_that_does_not_reach_the_pods_gets_a_warning(
    own: str | None, warning: str
) -> None:
    item = job(template())
    item["metadata"]["labels"][NODE_POOL_LABEL] = "p2"
    if own is not None:
        item["spec"]["template"]["metadata"]["labels"][NODE_POOL_LABEL] = own
    access = Access(DIRECTORY, "bindery")

    answer = access.validate_workload(review(item, namespace="any"))

    assert not message(answer)
    warnings = answer["response"].get("warnings", [])
    assert len(warnings) == bool(warning)
    assert warning in "; ".join(warnings)
    again = access.validate_workload(review(item, item, namespace="any"))
    assert "warnings" not in again["response"]
