"""The words of a snapshot without names: no name, and all words that planning parses."""

from datetime import UTC, datetime
from itertools import count
from typing import Any

import msgspec
import pytest

from bindery.api import names, podfingerprint
from bindery.api.configuration import LeaderElection, PluginConfiguration, SchedulerConfiguration
from bindery.api.usage import UsageConfiguration
from bindery.scenario.hiding.hidden import Hidden, hidden
from bindery.scenario.snapshot import hidden_snapshot_text
from tests.scenario.snapshots import RESOURCES

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MARK = "secret"
GROUP = names.API_VERSION
_numbers = count()


def secret() -> str:
    """Return another word that must be hidden."""
    return f"{MARK}-team-x{next(_numbers)}"


def meta(**fields: Any) -> dict[str, Any]:
    """Return metadata in which all that may name something does."""
    owner = {"apiVersion": f"{secret()}/v1", "kind": secret(), "name": secret(), "uid": secret()}
    return {
        "name": secret(),
        "namespace": secret(),
        "uid": secret(),
        "labels": {secret(): secret(), "kubernetes.io/hostname": secret(), f"{MARK}.io/x": "y"},
        "annotations": {
            secret(): secret(),
            names.USER_KEY: secret(),
            names.POD_GROUP_ANNOTATION: secret(),
            names.KEPT_ROOM_ANNOTATION: f'{{"rooms":{{"{secret()}":{{"{secret()}":1}}}}}}',
            names.EXCLUSIVE_DOMAINS_ANNOTATION: f'{{"levels":["{secret()}/{secret()}"]}}',
            names.NUMA_ZONES_ANNOTATION: secret(),
            "hami.io/vgpu-node": secret(),
            "hami.io/mutex.lock": f"2026-01-01T00:00:00Z,{secret()},{secret()}",
            "hami.io/vgpu-devices-allocated": f"{secret()},NVIDIA,1,1:;",
            "hami.io/node-nvidia-register": f'[{{"id":"{secret()}","count":1,"more":"{MARK}"}}]',
            "scheduling.bindery.dev/hami-devices": f'{{"pod":"{secret()}","node":"{secret()}"}}',
        },
        "ownerReferences": [owner],
        "finalizers": [secret()],
        secret(): secret(),
        **fields,
    }


def selector() -> dict[str, Any]:
    """Return a selector by labels."""
    expression = {"key": secret(), "operator": "In", "values": [secret()]}
    return {"matchLabels": {secret(): secret()}, "matchExpressions": [expression]}


def claim() -> dict[str, Any]:
    """Return the spec of a ResourceClaim."""
    request = {"name": secret(), "exactly": {"deviceClassName": secret()}}
    opaque = {"driver": "gpu.example.com", "parameters": {secret(): secret()}}
    return {"devices": {"requests": [request], "config": [{"opaque": opaque}]}}


POD = {
    "schedulerName": secret(),
    "nodeName": secret(),
    "priorityClassName": secret(),
    "nodeSelector": {secret(): secret()},
    "containers": [
        {
            "name": secret(),
            "image": f"{MARK}.io/team/train:1",
            "resources": {
                "requests": {f"{MARK}.io/card": "1", "cpu": "1"},
                "claims": [{"name": secret(), "request": secret()}],
            },
        }
    ],
    "tolerations": [{"key": secret(), "operator": "Equal", "value": secret()}],
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {
                        "matchExpressions": selector()["matchExpressions"],
                        "matchFields": [
                            {"key": "metadata.name", "operator": "In", "values": [secret()]}
                        ],
                    }
                ]
            }
        },
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": secret(), "labelSelector": selector(), "namespaces": [secret()]}
            ]
        },
    },
    "topologySpreadConstraints": [{"topologyKey": secret(), "labelSelector": selector()}],
    "schedulingGates": [{"name": secret()}],
    "resourceClaims": [{"name": secret(), "resourceClaimName": secret()}],
    "volumes": [
        {"name": secret(), "persistentVolumeClaim": {"claimName": secret()}},
        {
            "name": secret(),
            "ephemeral": {"volumeClaimTemplate": {"metadata": {secret(): secret()}}},
        },
        {"name": secret(), "hostPath": {"path": f"/{secret()}"}},
        {"name": secret(), "rbd": {"monitors": [secret()], "pool": secret(), "image": secret()}},
        {"name": secret(), "awsElasticBlockStore": {"volumeID": f"aws://{secret()}/{secret()}"}},
    ],
    secret(): secret(),
}
BINDING = {
    "podName": secret(),
    "podUID": secret(),
    "selectedNode": secret(),
    "selectedGPUGroups": [secret()],
    "pluginData": {
        "hami": {"devices": {"NVIDIA": f"{secret()},NVIDIA,1,1:;"}, "indexes": {secret(): 0}},
        "volumes": {"claims": [{"name": secret(), "uid": secret(), "volume": secret()}]},
        secret(): {secret(): [secret()]},
    },
}
STATUS = {
    "phase": "Failed",
    "reason": secret(),
    "message": f"Pod was rejected by {secret()}",
    "nominatedNodeName": secret(),
    "conditions": [{"type": f"{MARK}.io/ready", "status": "True", "message": secret()}],
    "containerStatuses": [{"name": secret(), "state": {"waiting": {"message": secret()}}}],
}
OBJECTS: list[dict[str, Any]] = [
    {"apiVersion": "v1", "kind": "Pod", "spec": POD, "status": STATUS},
    {"apiVersion": "v1", "kind": "Pod", "spec": secret(), "status": {"phase": [secret()]}},
    {"apiVersion": "v1", "kind": "Namespace"},
    {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 1},
    {
        "apiVersion": "v1",
        "kind": "Node",
        "spec": {"taints": [{"key": secret(), "value": secret(), "effect": "NoSchedule"}]},
        "status": {
            "allocatable": {"cpu": "8", f"{MARK}.io/card": "8", secret(): "1"},
            "images": [{"names": [f"{MARK}.io/team/train:1"], "sizeBytes": 5}],
        },
    },
    {
        "apiVersion": GROUP,
        "kind": "Queue",
        "spec": {
            "parent": secret(),
            "resources": {f"{MARK}.io/card": {"quota": 1}},
            "namespaces": {"names": [secret()], "selector": selector()},
            "priorityClasses": {secret(): {"names": [secret()]}},
            "fairUsers": {"label": secret()},
        },
        "status": {"allocated": {f"{MARK}.io/card": "1"}},
    },
    {
        "apiVersion": GROUP,
        "kind": "PodGroup",
        "spec": {
            "queue": secret(),
            "priorityClassName": secret(),
            "roles": {secret(): 1},
            "topology": {"name": secret(), "required": secret()},
            "members": [{"label": {"key": secret(), "value": secret()}}, {"pod": secret()}],
            "subGroups": [
                {
                    "name": secret(),
                    "podLabels": {secret(): secret()},
                    "after": [{"subGroup": secret(), "condition": "Succeeded"}],
                    "template": {"metadata": {"labels": {secret(): secret()}}, "spec": POD},
                }
            ],
        },
        "status": {"queue": secret(), "queueFigures": {"name": secret()}},
    },
    {"apiVersion": GROUP, "kind": "Topology", "spec": {"levels": [{"nodeLabel": secret()}]}},
    {
        "apiVersion": GROUP,
        "kind": "HyperNode",
        "spec": {
            "members": [
                {"name": secret()},
                {"regex": f"{MARK}.*"},
                {"regex": f"{MARK}("},
                {"selector": selector()},
            ]
        },
    },
    {
        "apiVersion": GROUP,
        "kind": "BindRequest",
        "spec": {
            "statements": [
                {
                    "id": f"{secret()}-7.2",
                    "podGroup": {"name": secret(), "uid": secret()},
                    "queue": secret(),
                    "pods": [BINDING],
                }
            ],
            "summary": {"gangs": secret(), "nodes": secret(), "pods": 1},
        },
    },
    {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "spec": {
            "claimRef": {"namespace": secret(), "name": secret(), "uid": secret()},
            "storageClassName": secret(),
            "csi": {"driver": f"{MARK}.io", "volumeHandle": f"{secret()}/{secret()}"},
        },
    },
    {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "spec": {"volumeName": secret(), "storageClassName": secret(), "selector": selector()},
    },
    {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": secret()},
    {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "spec": {"drivers": [{"name": MARK}]}},
    {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "spec": {"selector": selector()}},
    {"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": {"spec": POD}}},
    {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "spec": claim()},
    {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass"},
    {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "spec": {"spec": claim()},
    },
    {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "spec": {"hard": {f"requests.{MARK}.io/card": "1"}},
    },
    {"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver"},
    {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIStorageCapacity",
        "storageClassName": secret(),
        "nodeTopology": selector(),
    },
    {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "VolumeAttachment",
        "spec": {
            "attacher": secret(),
            "nodeName": secret(),
            "source": {"persistentVolumeName": secret()},
        },
    },
    {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "spec": {"resourceClaims": [{"name": secret(), "resourceClaimTemplateName": secret()}]},
    },
    {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "spec": {
            "driver": "gpu.example.com",
            "pool": {"name": secret()},
            "nodeName": secret(),
            "devices": [{"name": secret(), "taints": [{"key": secret(), "value": secret()}]}],
        },
    },
    {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "zones": [{"name": secret(), "type": "Node", "resources": [{"name": f"{MARK}.io/card"}]}],
        "attributes": [{"name": secret(), "value": secret()}],
    },
    {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"bindery-usage-{MARK}", "namespace": secret()},
        "data": {
            "usage.json": f'{{"version":1,"term":1,"queues":["{secret()}"],"resources":["cpu"],'
            '"slices":[]}'
        },
    },
]


def without_names(*objects: dict[str, Any], **configuration: Any) -> Hidden:
    """Return a snapshot of `objects` without names."""
    return hidden(objects, SchedulerConfiguration(**configuration))


def labelled(name: str, **labels: str) -> dict[str, Any]:
    """Return a node."""
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}


def test_no_name_is_in_the_text() -> None:
    configuration = SchedulerConfiguration(
        scheduler_name=secret(),
        node_pool=MARK,
        plugins=(PluginConfiguration(name="predicates", arguments={}),),
        gpu_resources=(f"{MARK}.io/*",),
        gpu_device_classes=(secret(),),
        leader_election=LeaderElection(namespace=secret()),
        usage=UsageConfiguration(source="record"),
    )
    objects = [{"metadata": meta(), **item} for item in OBJECTS]

    text, words = hidden_snapshot_text(objects, configuration, NOW)

    assert MARK not in text
    assert any(MARK in word for word in words.values())


def test_a_word_has_one_pseudonym_in_all_places() -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "spec": {"nodeName": "gpu-0"}}

    found = without_names(labelled("gpu-0"), {**pod, "metadata": {"name": "train"}})
    node, bound = found.objects

    assert bound["spec"]["nodeName"] == node["metadata"]["name"]
    assert found.names[node["metadata"]["name"]] == "gpu-0"


def test_values_that_are_compared_as_numbers_stay() -> None:
    rule = {"key": "size", "operator": "Gt", "values": ["5"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}

    found = without_names(
        labelled("n", size="7", team="8"), {**pod, "spec": {"affinity": affinity}}
    )
    labels = found.objects[0]["metadata"]["labels"]

    assert "7" in labels.values()
    assert "8" not in labels.values()


@pytest.mark.parametrize("lacking", [0, 1])
def test_a_fingerprint_is_that_of_the_pseudonyms(lacking: int) -> None:
    pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "team"},
            "spec": {"nodeName": "gpu-0"},
            "status": {"phase": "Running", "startTime": f"2026-01-01T00:00:0{second}Z"},
        }
        for second, name in enumerate(["old", "new"])
    ]
    signed = [("team", "old"), ("team", "new")][: 2 - lacking]
    report: dict[str, Any] = {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": "gpu-0"},
        "attributes": [{"name": podfingerprint.ATTRIBUTE, "value": podfingerprint.sign(signed)}],
    }

    *hidden_pods, hidden_report = without_names(*pods, report).objects

    named = [(pod["metadata"]["namespace"], pod["metadata"]["name"]) for pod in hidden_pods]
    assert hidden_report["attributes"][0]["value"] == podfingerprint.sign(named[: 2 - lacking])


def test_patterns_of_gpu_resources_match_the_same_resources() -> None:
    node = labelled("n")
    node["status"] = {"allocatable": {"acme.com/card": "8", "acme.com/disk": "1"}}

    found = without_names(node, gpu_resources=("acme.com/c*",))

    (resource,) = found.scheduler["gpuResources"]
    assert found.objects[0]["status"]["allocatable"][resource] == "8"
    msgspec.json.encode(found.objects)


def test_the_leak_test_has_all_kinds() -> None:
    assert {item["kind"] for item in OBJECTS} == {each.kind for each in RESOURCES.values()}


def test_words_that_a_kind_declares_stay() -> None:
    queue = {
        "apiVersion": GROUP,
        "kind": "Queue",
        "metadata": {"name": "q"},
        "spec": {"exclusiveDomains": "Forbid", "state": "Closed"},
    }

    (hidden_queue,) = without_names(queue).objects

    assert hidden_queue["spec"] == queue["spec"]
