"""The kinds whose children or pods do not follow from their row in the table.

Wrappers, which create workloads; and workloads whose controller names, counts or labels its pods in
a way of its own. Used by `expansion`.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from bindery.grouper.controllers.making import (
    Body,
    Find,
    Maker,
    NotKnownError,
    at,
    body,
    name_of,
    number,
    part,
    parts,
    pod,
    pods,
)
from bindery.grouper.table.facts import KubeObject

_JOB_SET: Final = "jobset.sigs.k8s.io"
_LWS: Final = "leaderworkerset.sigs.k8s.io"
_STEP: Final = "trainer.kubeflow.org/trainjob-ancestor-step"
_SCALES: Final = ("autoscaling.knative.dev/min-scale", "autoscaling.knative.dev/minScale")


def _child(api_version: str, kind: str, key: str, *, is_spec: bool = False) -> Maker:
    """Return the maker of one child, whose manifest, or spec, is the field `key` of the spec.

    `api_version`: "" for the version of the owner.
    """

    def make(item: KubeObject, _find: Find) -> Iterator[Body]:
        given = part(item, "spec", key)
        version = api_version or str(item.get("apiVersion", ""))
        yield body(version, kind, name_of(item), {"spec": given} if is_spec else given)

    return make


# ---- Kubernetes ---------------------------------------------------------------------------------


def _deployment(item: KubeObject, _find: Find) -> Iterator[Body]:
    spec = {"replicas": at(item, "spec", "replicas"), "template": at(item, "spec", "template")}
    yield body("apps/v1", "ReplicaSet", name_of(item), {"spec": spec})


def _replicas(item: KubeObject, _find: Find) -> Iterator[Body]:
    yield from pods(item, number(item, "spec", "replicas", default=1), at(item, "spec", "template"))


# ---- JobSet, Kubeflow Trainer, AppWrapper -------------------------------------------------------


def _job_set(item: KubeObject, _find: Find) -> Iterator[Body]:
    for each in parts(item, "spec", "replicatedJobs"):
        role = str(each.get("name", ""))
        for index in range(number(each, "replicas", default=1)):
            labels = {
                f"{_JOB_SET}/jobset-name": name_of(item),
                f"{_JOB_SET}/replicatedjob-name": role,
                f"{_JOB_SET}/job-index": str(index),
            }
            job = body("batch/v1", "Job", f"{name_of(item)}-{role}-{index}", part(each, "template"))
            job["spec"]["template"] = _labelled(part(job, "spec", "template"), labels)
            yield job


def _labelled(template: Mapping[str, Any], labels: Mapping[str, str]) -> dict[str, Any]:
    metadata = part(template, "metadata")
    found = {**part(metadata, "labels"), **labels}
    return {**template, "metadata": {**metadata, "labels": found}}


def _train_job(item: KubeObject, find: Find) -> Iterator[Body]:
    reference = part(item, "spec", "runtimeRef")
    kind, name = reference.get("kind", "ClusterTrainingRuntime"), reference.get("name", "")
    runtime = find(kind, name)
    if runtime is None:
        raise NotKnownError(f"its {kind} {name} is not in the files: add it")
    job_set = body(
        "jobset.x-k8s.io/v1alpha2", "JobSet", name_of(item), part(runtime, "spec", "template")
    )
    trainer = part(item, "spec", "trainer")
    nodes = number(runtime, "spec", "mlPolicy", "numNodes", default=1)
    nodes = number(trainer, "numNodes", default=nodes)
    job_set["spec"]["replicatedJobs"] = [
        _trained(each, nodes, trainer) if _is_trainer(each) else each
        for each in parts(job_set, "spec", "replicatedJobs")
    ]
    yield job_set


def _is_trainer(replicated: Mapping[str, Any]) -> bool:
    return part(replicated, "template", "metadata", "labels").get(_STEP) == "trainer"


def _trained(
    replicated: Mapping[str, Any], nodes: int, trainer: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a replicated job with the nodes and the resources that a TrainJob asks for."""
    job = part(replicated, "template")
    template = part(job, "spec", "template")
    resources = part(trainer, "resourcesPerNode")
    containers = [
        {**each, "resources": resources} if resources and each.get("name") == "node" else each
        for each in parts(template, "spec", "containers")
    ]
    inner = {**template, "spec": {**part(template, "spec"), "containers": containers}}
    spec = {**part(job, "spec"), "parallelism": nodes, "completions": nodes, "template": inner}
    return {**replicated, "template": {**job, "spec": spec}}


def _app_wrapper(item: KubeObject, _find: Find) -> Iterator[Body]:
    for each in parts(item, "spec", "components"):
        template = part(each, "template")
        name = name_of(template) or name_of(item)
        made = body(
            str(template.get("apiVersion", "")), str(template.get("kind", "")), name, template
        )
        yield pod(name, template) if made["kind"] == "Pod" else made


# ---- LeaderWorkerSet ----------------------------------------------------------------------------


def _leader_worker_set(item: KubeObject, _find: Find) -> Iterator[Body]:
    template = part(item, "spec", "leaderWorkerTemplate")
    size = number(template, "size", default=1)
    workers = template.get("workerTemplate")
    leader = template.get("leaderTemplate") or workers
    for group in range(number(item, "spec", "replicas", default=1)):
        for index in range(size):
            labels = {
                f"{_LWS}/name": name_of(item),
                f"{_LWS}/group-index": str(group),
                f"{_LWS}/worker-index": str(index),
                **_segment_labels(template, size, index),
            }
            name = f"{name_of(item)}-{group}" + (f"-{index}" if index else "")
            yield pod(name, workers if index else leader, labels)


def _segment_labels(template: Mapping[str, Any], size: int, index: int) -> dict[str, str]:
    """Return the label with the segment of the pod `index` of a group of `size`."""
    policy = part(template, "subGroupPolicy")
    segment = number(policy, "subGroupSize", default=0)
    if not segment:
        return {}
    if policy.get("subGroupPolicyType") == "LeaderExcluded" and not index:
        return {}
    is_extra = (size - 1) % segment == 0  # the leader is one more pod of the first segment
    position = max(0, index - 1) if is_extra else index
    return {f"{_LWS}/subgroup-index": str(position // segment)}


# ---- Ray, Spark ---------------------------------------------------------------------------------


def _ray_cluster(item: KubeObject, _find: Find) -> Iterator[Body]:
    head = {"ray.io/group": "headgroup", "ray.io/node-type": "head"}
    yield pod(f"{name_of(item)}-head", at(item, "spec", "headGroupSpec", "template"), head)
    for each in parts(item, "spec", "workerGroupSpecs"):
        if each.get("suspend"):
            continue
        role, hosts = str(each.get("groupName", "")), number(each, "numOfHosts", default=1)
        for replica in range(_ray_replicas(each)):
            for host in range(hosts):
                labels = {
                    "ray.io/group": role,
                    "ray.io/node-type": "worker",
                    "ray.io/worker-group-replica-index": str(replica),
                    "ray.io/replica-host-index": str(host),
                }
                index = replica * hosts + host
                yield pod(f"{name_of(item)}-{role}-{index}", each.get("template"), labels)


def _ray_replicas(group: Mapping[str, Any]) -> int:
    """Return the replicas of a worker group, which KubeRay keeps within the bounds."""
    least = number(group, "minReplicas", default=0)
    wanted = max(number(group, "replicas", default=least), least)
    most = number(group, "maxReplicas", default=wanted)
    return min(wanted, most) if most else wanted


def _ray_job(item: KubeObject, _find: Find) -> Iterator[Body]:
    if at(item, "spec", "rayClusterSpec"):
        spec = part(item, "spec", "rayClusterSpec")
        yield body("ray.io/v1", "RayCluster", name_of(item), {"spec": spec})
    if at(item, "spec", "submissionMode") not in (None, "K8sJobMode"):
        return
    template = part(item, "spec", "submitterPodTemplate") or _RAY_SUBMITTER
    template = _labelled(template, {"batch.kubernetes.io/job-name": name_of(item)})
    yield body("batch/v1", "Job", name_of(item), {"spec": {"template": template}})


_RAY_SUBMITTER: Final[Mapping[str, Any]] = {
    "spec": {
        "containers": [
            {
                "name": "ray-job-submitter",
                "resources": {"requests": {"cpu": "500m", "memory": "200Mi"}},
            }
        ]
    }
}
"""What KubeRay takes if the RayJob has no template."""


# ---- Servers ------------------------------------------------------------------------------------


def _knative(item: KubeObject, _find: Find) -> Iterator[Body]:
    version, template = str(item.get("apiVersion", "")), part(item, "spec", "template")
    yield body(version, "Revision", f"{name_of(item)}-00001", template)


def _revision(item: KubeObject, _find: Find) -> Iterator[Body]:
    annotations = part(item, "metadata", "annotations")
    scale = next((key for key in _SCALES if key in annotations), _SCALES[0])
    template = {"metadata": part(item, "metadata"), "spec": part(item, "spec")}
    yield from pods(item, number(annotations, scale, default=1), template)


def _inference_service(item: KubeObject, _find: Find) -> Iterator[Body]:
    for role in ("predictor", "transformer", "explainer"):
        server = part(item, "spec", role)
        if not server:
            continue
        model = part(server, "model")
        containers = parts(server, "containers") or [
            {"name": "kserve-container", "resources": model.get("resources") or _KSERVE}
        ]
        metadata = {key: part(item, "metadata", key) for key in ("labels", "annotations")}
        template = {"metadata": metadata, "spec": {**server, "containers": containers}}
        spec = {"replicas": server.get("minReplicas", 1), "template": template}
        yield body("apps/v1", "Deployment", f"{name_of(item)}-{role}", {"spec": spec})


_KSERVE: Final = {
    "requests": {"cpu": "1", "memory": "2Gi"},
    "limits": {"cpu": "1", "memory": "2Gi"},
}
"""The resources of KServe's own runtimes, where the model names none."""


def _virtual_machine(item: KubeObject, _find: Find) -> Iterator[Body]:
    if at(item, "spec", "runStrategy") == "Halted" or at(item, "spec", "running") is False:
        return
    version, template = str(item.get("apiVersion", "")), part(item, "spec", "template")
    yield body(version, "VirtualMachineInstance", name_of(item), template)


def _virtual_machine_instance(item: KubeObject, _find: Find) -> Iterator[Body]:
    spec = part(item, "spec")
    container = {"name": "compute", "resources": part(spec, "domain", "resources")}
    kept = ("schedulerName", "nodeSelector", "affinity", "tolerations", "priorityClassName")
    inner = {key: spec[key] for key in kept if key in spec}
    template = {"metadata": part(item, "metadata"), "spec": {**inner, "containers": [container]}}
    yield pod(f"virt-launcher-{name_of(item)}", template)


# ---- Workflows ----------------------------------------------------------------------------------


def _cron_workflow(item: KubeObject, _find: Find) -> Iterator[Body]:
    version = str(item.get("apiVersion", ""))
    template = {
        "metadata": part(item, "spec", "workflowMetadata"),
        "spec": part(item, "spec", "workflowSpec"),
    }
    yield body(version, "Workflow", name_of(item), template)


def _workflow(item: KubeObject, _find: Find) -> Iterator[Body]:
    spec = part(item, "spec")
    entry, steps = spec.get("entrypoint"), parts(spec, "templates")
    first: Mapping[str, Any] = next((each for each in steps if each.get("name") == entry), {})
    container = first.get("container") or first.get("script")
    if not container:
        raise NotKnownError("its first step is no container: add what it creates")
    kept = ("schedulerName", "nodeSelector", "affinity", "tolerations", "priorityClassName")
    inner = {key: each[key] for each in (spec, first) for key in kept if key in each}
    metadata = {
        key: {**part(spec, "podMetadata", key), **part(first, "metadata", key)}
        for key in ("labels", "annotations")
    }
    template = {"metadata": metadata, "spec": {**inner, "containers": [container]}}
    yield pod(name_of(item), template)


def _pipeline_run(item: KubeObject, _find: Find) -> Iterator[Body]:
    version, spec = str(item.get("apiVersion", "")), part(item, "spec")
    for task in parts(spec, "pipelineSpec", "tasks"):
        if task.get("runAfter"):
            continue  # it comes when others have ended
        template = {
            "metadata": {"labels": part(item, "metadata", "labels")},
            "spec": {
                "podTemplate": at(spec, "taskRunTemplate", "podTemplate"),
                "taskSpec": task.get("taskSpec"),
            },
        }
        yield body(version, "TaskRun", f"{name_of(item)}-{task.get('name', '')}", template)


def _task_run(item: KubeObject, _find: Find) -> Iterator[Body]:
    steps = [
        {**step, "resources": step.get("computeResources") or step.get("resources") or {}}
        for step in parts(item, "spec", "taskSpec", "steps")
    ]
    if not steps:
        raise NotKnownError("its steps are in another object: add its pod")
    spec = {**part(item, "spec", "podTemplate"), "containers": steps}
    yield pod(f"{name_of(item)}-pod", {"metadata": part(item, "metadata"), "spec": spec})


# ---- Grove, SageMaker, Volcano ------------------------------------------------------------------


def _pod_clique_set(item: KubeObject, _find: Find) -> Iterator[Body]:
    if parts(item, "spec", "template", "podCliqueScalingGroups"):
        raise NotKnownError("it has scaling groups: add its PodGangs and PodCliques")
    cliques = parts(item, "spec", "template", "cliques")
    for replica in range(number(item, "spec", "replicas", default=1)):
        gang = f"{name_of(item)}-{replica}"
        groups = [
            {
                "name": f"{gang}-{each.get('name', '')}",
                "minReplicas": at(each, "spec", "minAvailable")
                or number(each, "spec", "replicas", default=1),
            }
            for each in cliques
        ]
        yield body("scheduler.grove.io/v1alpha1", "PodGang", gang, {"spec": {"podgroups": groups}})
        for each in cliques:
            name = f"{gang}-{each.get('name', '')}"
            labels = {"grove.io/podgang": gang, "grove.io/podclique": name}
            metadata = {**part(each, "metadata"), "labels": {**part(each, "labels"), **labels}}
            version = str(item.get("apiVersion", ""))
            yield body(
                version, "PodClique", name, {"metadata": metadata, "spec": part(each, "spec")}
            )


def _pod_clique(item: KubeObject, _find: Find) -> Iterator[Body]:
    template = {"metadata": part(item, "metadata"), "spec": part(item, "spec", "podSpec")}
    yield from pods(item, number(item, "spec", "replicas", default=1), template)


def _hyper_pod(item: KubeObject, _find: Find) -> Iterator[Body]:
    for each in parts(item, "spec", "replicaSpecs"):
        for index in range(number(each, "replicas", default=1)):
            yield pod(f"{name_of(item)}-{each.get('name', '')}-{index}", each.get("template"))


MAKERS: Final[Mapping[tuple[str, str], Maker]] = {
    ("", "ReplicationController"): _replicas,
    ("apps", "Deployment"): _deployment,
    ("apps", "ReplicaSet"): _replicas,
    ("batch", "CronJob"): _child("batch/v1", "Job", "jobTemplate"),
    ("jobset.x-k8s.io", "JobSet"): _job_set,
    ("trainer.kubeflow.org", "TrainJob"): _train_job,
    ("workload.codeflare.dev", "AppWrapper"): _app_wrapper,
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): _leader_worker_set,
    ("ray.io", "RayCluster"): _ray_cluster,
    ("ray.io", "RayJob"): _ray_job,
    ("ray.io", "RayService"): _child("ray.io/v1", "RayCluster", "rayClusterConfig", is_spec=True),
    ("ray.io", "RayCronJob"): _child("ray.io/v1", "RayJob", "jobTemplate", is_spec=True),
    ("sparkoperator.k8s.io", "ScheduledSparkApplication"): _child(
        "", "SparkApplication", "template", is_spec=True
    ),
    ("serving.knative.dev", "Service"): _knative,
    ("serving.knative.dev", "Configuration"): _knative,
    ("serving.knative.dev", "Revision"): _revision,
    ("serving.kserve.io", "InferenceService"): _inference_service,
    ("kubevirt.io", "VirtualMachine"): _virtual_machine,
    ("kubevirt.io", "VirtualMachineInstance"): _virtual_machine_instance,
    ("argoproj.io", "CronWorkflow"): _cron_workflow,
    ("argoproj.io", "Workflow"): _workflow,
    ("tekton.dev", "PipelineRun"): _pipeline_run,
    ("tekton.dev", "TaskRun"): _task_run,
    ("grove.io", "PodCliqueSet"): _pod_clique_set,
    ("grove.io", "PodClique"): _pod_clique,
    ("sagemaker.amazonaws.com", "HyperPodPyTorchJob"): _hyper_pod,
    ("batch.volcano.sh", "CronJob"): _child("batch.volcano.sh/v1alpha1", "Job", "jobTemplate"),
}
"""By API group and kind."""
