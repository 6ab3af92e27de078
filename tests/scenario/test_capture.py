"""`bindery snapshot`: a cluster becomes a scenario that behaves as the cluster would."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from bindery.api.gpushare import RECORD_ANNOTATION
from bindery.api.names import CHARGED_GROUP_ANNOTATION, SCHEDULER_NAME
from bindery.kube.objects.podspec import ResourceRequirements
from bindery.kube.objects.snapshot import ClusterSnapshot
from bindery.kube.objects.watched import Meta, Namespace, Pod
from bindery.scenario.capture import capture
from bindery.scenario.format import Scenario
from bindery.scenario.runner import run
from bindery.scheduler.model.resources import pod_amounts
from tests.inlinescenarios import scenario_of, snapshot_of
from tests.ownscenarios import FOLDER, scenarios_of
from tests.scenario.snapshots import both_plans, places, read_back

FOLDERS = [
    FOLDER / name for name in ("pod-affinity", "topology-spread", "host-ports", "topology", "numa")
]
# What a cluster's objects say; past usage is the scheduler's own knowledge.
SEEN_AT_ONCE = [
    item
    for item in scenarios_of(
        *FOLDER.glob("*.yaml"), *(p for f in FOLDERS for p in f.glob("*.yaml"))
    )
    if not item.events and not item.faults
    if not any(queue.usage for queue in item.queues)
]


@pytest.mark.parametrize("scenario", SEEN_AT_ONCE, ids=lambda scenario: scenario.name)
def test_a_snapshot_is_planned_as_its_cluster_is(scenario: Scenario, tmp_path: Path) -> None:
    original, replayed = both_plans(scenario, tmp_path)

    assert places(original) == places(replayed)
    assert original.allocated == replayed.allocated


WITH_OTHERS = [
    item for item in SEEN_AT_ONCE if any(p.scheduler_name for job in item.jobs for p in job.pods)
]


@pytest.mark.parametrize("scenario", WITH_OTHERS, ids=lambda scenario: scenario.name)
def test_rules_of_pods_of_other_schedulers_hold_in_a_snapshot(
    scenario: Scenario, tmp_path: Path
) -> None:
    seen = snapshot_of(scenario)
    without_groups = replace(seen, pods=tuple(map(_without_group, seen.pods)))

    captured = read_back(without_groups, scenario, tmp_path)

    once = {"rounds": 1, "settle": 0, "expect": type(scenario.expect)()}
    ours = {
        f"{job.name}-{index}"
        for job in scenario.jobs
        for index, pod in enumerate(each for each in job.pods for _ in range(each.count))
        if not pod.scheduler_name
    }
    original, replayed = (
        places(run(item.model_copy(update={**once, "config": scenario.config})).seen)
        for item in (scenario, captured)
    )
    assert {name: original[name] for name in ours} == {name: replayed[name] for name in ours}


def test_pods_of_other_schedulers_that_decide_nothing_are_only_room() -> None:
    scenario = scenario_of(
        """
        nodes: [{name: n0, gpus: 4}, {name: n1, gpus: 4}]
        jobs:
        - name: theirs
          pods:
          - {count: 3, gpus: 1, state: Running, node: n0, schedulerName: default-scheduler,
             labels: {app: web}}
          - {gpus: 1, state: Running, node: n1, schedulerName: default-scheduler,
             labels: {app: db}}
        - name: a
          pods:
          - gpus: 1
            affinity:
              podAntiAffinity:
                requiredDuringSchedulingIgnoredDuringExecution:
                - {topologyKey: kubernetes.io/hostname,
                   labelSelector: {matchLabels: {app: db}}}
        """
    )
    seen = snapshot_of(scenario)
    without_groups = replace(seen, pods=tuple(map(_without_group, seen.pods)))

    data = capture(without_groups, scenario.now)

    assert {node["name"]: node["gpus"] for node in data["nodes"]} == {"n0": 1, "n1": 4}
    (others,) = [job for job in data["jobs"] if job["name"].startswith("others-")]
    assert [(pod["node"], pod["labels"]) for pod in others["pods"]] == [("n1", {"app": "db"})]


def _without_group(pod: Pod) -> Pod:
    """Return a pod of another scheduler as such pods are: in no gang."""
    if pod.spec.scheduler_name == SCHEDULER_NAME:
        return pod
    meta = msgspec.structs.replace(pod.metadata, annotations={})
    return msgspec.structs.replace(pod, metadata=meta)


def test_equal_nodes_are_one_entry_and_others_stand_alone(tmp_path: Path) -> None:
    scenario = scenario_of(
        """
        nodes:
        - {name: "gpu-{i}", count: 12, gpus: 8, gpuModel: H100, gpuMemory: 81920}
        - {name: cpu-1, cpu: "4"}
        - {name: cpu-2, cpu: "4"}
        """
    )

    nodes = capture(snapshot_of(scenario), scenario.now)["nodes"]

    assert nodes[0] == {
        "name": "gpu-{i}",
        "count": 12,
        "cpu": "20",
        "memory": "20000000000",
        "pods": 110,
        "gpus": 8,
        "gpuModel": "H100",
        "gpuMemory": 81920,
    }
    assert [node["name"] for node in nodes[1:]] == ["cpu-1", "cpu-2"]


def test_the_requests_of_a_pod_itself_are_captured_in_place_of_those_of_its_containers(
    tmp_path: Path,
) -> None:
    scenario = scenario_of(
        """
        nodes: [{name: n, cpu: 8, memory: 8Gi}]
        jobs:
        - name: w
          pods:
          - {cpu: 1, memory: 1Gi, initContainers: [{cpu: 6}, {cpu: 1, restartPolicy: Always}]}
        """
    )
    seen = snapshot_of(scenario)
    of_pod = ResourceRequirements(requests={"cpu": "3"}, limits={"cpu": "3"})
    (pod,) = seen.pods
    spec = msgspec.structs.replace(pod.spec, resources=of_pod)
    seen = replace(seen, pods=(msgspec.structs.replace(pod, spec=spec),))

    (again,) = snapshot_of(read_back(seen, scenario, tmp_path)).pods

    assert pod_amounts(again.spec) == pod_amounts(spec)
    assert pod_amounts(spec)["cpu"] == 3000


def test_what_others_use_is_taken_off_the_nodes() -> None:
    scenario = scenario_of(
        """
        nodes: [{name: node0, gpus: 4, cpu: "4"}]
        jobs: [{name: a, pods: [{gpus: 1, cpu: 1500m, state: Running, node: node0}]}]
        """
    )
    seen = snapshot_of(scenario)
    others = tuple(_of_another_scheduler(pod) for pod in seen.pods)

    data = capture(ClusterSnapshot(others, seen.nodes, (), seen.queues), scenario.now)

    assert "jobs" not in data
    (node,) = data["nodes"]
    assert (node["gpus"], node["cpu"], node["pods"]) == (3, "2500m", 109)


def test_pods_stay_in_the_queue_that_they_are_charged_to(tmp_path: Path) -> None:
    """Their PodGroup names another queue since; the snapshot's replay counts as the cluster did."""
    scenario = scenario_of(
        """
        nodes: [{name: n, gpus: 8}]
        queues: [{name: old, gpu: {limit: 4}}, {name: new}]
        jobs:
        - name: runs
          queue: new
          pods:
          - {count: 4, gpus: 1, state: Running, node: n, chargedQueue: old}
          - {count: 1, gpus: 1, state: Running, node: n}
        - {name: waits, queue: old, pods: [{gpus: 1}]}
        """
    )
    seen = snapshot_of(scenario)

    data = capture(seen, scenario.now)
    replayed = run(read_back(seen, scenario, tmp_path)).seen

    (runs,) = (job for job in data["jobs"] if job["name"] == "runs")
    assert [pod.get("chargedQueue", "") for pod in runs["pods"]] == ["old", ""]
    assert {name: held["gpu"] for name, held in replayed.allocated.items()} == {"old": 4, "new": 1}
    assert replayed.pods["waits-0"].reason.startswith("OverLimit")


def test_a_queue_that_the_gang_was_moved_to_counts(tmp_path: Path) -> None:
    scenario = scenario_of(
        """
        nodes: [{name: n, gpus: 8}]
        queues: [{name: old}, {name: new}]
        jobs:
        - name: runs
          queue: new
          pods: [{gpus: 1, state: Running, node: n, chargedQueue: old}]
        """
    )
    seen = snapshot_of(scenario)
    (group,), (pod,) = seen.groups, seen.pods
    recorded = {**pod.metadata.annotations, CHARGED_GROUP_ANNOTATION: group.metadata.uid}
    meta = msgspec.structs.replace(pod.metadata, annotations=recorded)
    status = msgspec.structs.replace(group.status, queue="new")
    moved = replace(
        seen,
        groups=(msgspec.structs.replace(group, status=status),),
        pods=(msgspec.structs.replace(pod, metadata=meta),),
    )

    replayed = run(read_back(moved, scenario, tmp_path)).seen

    assert {name: held.get("gpu") for name, held in replayed.allocated.items()} == {
        "old": 0,
        "new": 1,
    }


def test_pods_that_outlive_their_gang_are_named_with_their_queue() -> None:
    scenario = scenario_of(
        """
        nodes: [{name: n, gpus: 8}]
        queues: [{name: old}, {name: new}]
        jobs:
        - name: runs
          queue: new
          pods: [{gpus: 1, state: Running, node: n, chargedQueue: old}]
        """
    )

    needs = capture(replace(snapshot_of(scenario), groups=()), scenario.now)["needs"]

    assert needs == ["runs-0: charged to queue old, and its PodGroup does not exist"]


def test_rules_about_other_pods_and_ports_are_captured(tmp_path: Path) -> None:
    scenario = scenario_of(
        """
        nodes: [{name: node0, labels: {zone: a}}]
        jobs:
        - name: a
          pods:
          - cpu: 1
            labels: {app: web, index: "7"}
            hostPorts: [8080, {hostPort: 53, protocol: UDP, hostIP: 10.0.0.1}]
            topologySpreadConstraints:
            - {maxSkew: 2, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, labelSelector: {}}
            affinity:
              podAntiAffinity:
                requiredDuringSchedulingIgnoredDuringExecution:
                - topologyKey: zone
                  labelSelector: {matchLabels: {app: web}}
                  namespaceSelector: {}
        """
    )

    again = read_back(snapshot_of(scenario), scenario, tmp_path)

    (read,), (written,) = again.jobs[0].pods, scenario.jobs[0].pods
    assert read.labels == {"app": "web"}, "no rule refers to the index"
    assert read.host_ports == written.host_ports
    assert read.affinity == written.affinity
    assert read.topology_spread_constraints == written.topology_spread_constraints


def test_labels_of_namespaces_are_captured_if_a_rule_selects_them() -> None:
    term = "{topologyKey: zone, namespaceSelector: {matchLabels: {team: a}}, labelSelector: {}}"
    scenario = scenario_of(
        f"""
        nodes: [{{name: node0}}]
        jobs:
        - name: a
          pods:
          - affinity:
              podAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: [{term}]}}
        """
    )
    meta = Meta(name="data", labels={"team": "a", "kubernetes.io/metadata.name": "data"})
    seen = replace(snapshot_of(scenario), namespaces=(Namespace(metadata=meta),))
    without = replace(seen, pods=())

    assert capture(seen, scenario.now)["namespaces"] == {"data": {"team": "a"}}
    assert "namespaces" not in capture(without, scenario.now)


def test_shares_of_gpus_are_captured_with_those_who_share() -> None:
    scenario = scenario_of(
        """
        nodes: [{name: n, gpus: 2, gpuMemory: 40000}]
        jobs:
        - {name: a, pods: [{gpuFraction: 0.5, state: Running, node: n, gpu: ["0"]}]}
        - {name: b, pods: [{gpuMemory: 20000, state: Running, node: n, gpu: ["0"]}]}
        - {name: c, spreadDevices: true, pods: [{gpuFraction: 0.25, gpuDevices: 2}]}
        """
    )

    data = capture(snapshot_of(scenario), scenario.now)

    jobs = {job["name"]: job for job in data["jobs"]}
    assert jobs["a"]["pods"][0]["gpuFraction"] == 0.5
    assert jobs["b"]["pods"][0]["gpuMemory"] == 20000
    assert jobs["a"]["pods"][0]["gpu"] == jobs["b"]["pods"][0]["gpu"] == ["0"]
    assert (jobs["c"]["pods"][0]["gpuDevices"], jobs["c"]["spreadDevices"]) == (2, True)
    assert "needs" not in data


def test_a_share_that_nobody_has_granted_is_captured_as_none() -> None:
    scenario = scenario_of(
        """
        nodes: [{name: n, gpus: 2}]
        jobs: [{name: a, pods: [{gpuFraction: 0.5, state: Running, node: n, gpu: ["0"]}]}]
        """
    )
    seen = snapshot_of(scenario)
    forged = tuple(_without_record(pod) for pod in seen.pods)

    (job,) = capture(replace(seen, pods=forged), scenario.now)["jobs"]

    assert not {"gpu", "gpuFraction"} & job["pods"][0].keys()


def _without_record(pod: Pod) -> Pod:
    annotations = {k: v for k, v in pod.metadata.annotations.items() if k != RECORD_ANNOTATION}
    metadata = msgspec.structs.replace(pod.metadata, annotations=annotations)
    return msgspec.structs.replace(pod, metadata=metadata)


def _of_another_scheduler(pod: Pod) -> Pod:
    meta = msgspec.structs.replace(pod.metadata, annotations={})
    spec = msgspec.structs.replace(pod.spec, scheduler_name="default-scheduler")
    return msgspec.structs.replace(pod, metadata=meta, spec=spec)


def test_queues_of_namespaces_and_rules_of_queues_are_captured(tmp_path: Path) -> None:
    scenario = scenario_of(
        """
        namespaces: {vision: {scheduling.bindery.dev/queue: research, team: a}}
        nodes: [{name: node0, gpus: 4}]
        queues:
        - name: research
          namespaces: {selector: {matchLabels: {team: a}}}
          priorityClasses: {"*": {names: [vision]}}
          nonPreemptible: {}
        jobs:
        - {name: a, namespace: vision, pods: [{gpus: 1}]}
        - {name: pinned, namespace: vision, preemptible: false, pods: [{gpus: 1}]}
        - {name: stranger, queue: research, pods: [{gpus: 1}]}
        """
    )

    read = read_back(snapshot_of(scenario), scenario, tmp_path)

    assert [job.queue for job in read.jobs] == ["research"] * 3
    one, other = both_plans(scenario, tmp_path)
    assert places(one) == places(other)
    assert {name: pod.reason for name, pod in one.pods.items()} == {
        name: pod.reason for name, pod in other.pods.items()
    }


def test_users_of_fair_queues_are_captured(tmp_path: Path) -> None:
    scenario = scenario_of(
        """
        nodes: [{name: node0, gpus: 3}]
        queues: [{name: research, gpu: {weight: 1}, fairUsers: {label: example.com/user}}]
        jobs:
        - name: runs
          queue: research
          pods: [{gpus: 1, state: Running, node: node0, labels: {example.com/user: ann}}]
        - {name: a, queue: research, labels: {example.com/user: ann}, pods: [{gpus: 2}]}
        - {name: b, queue: research, labels: {example.com/user: bob}, pods: [{gpus: 2}]}
        - {name: c, labels: {example.com/user: ann}, pods: [{gpus: 1}]}
        """
    )

    read = read_back(snapshot_of(scenario), scenario, tmp_path)

    assert [job.labels.get("example.com/user") for job in read.jobs] == ["ann", "ann", "bob", None]
    one, other = both_plans(scenario, tmp_path)
    assert places(one) == places(other)
