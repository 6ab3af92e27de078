"""Handwritten objects, as controllers that do not run here would create them from the examples.

`made` yields the objects of one example in steps: a later step comes when the pods of the earlier
steps are bound. Names, labels and owners are as the controllers write them. Objects of Kubernetes'
own controllers, JobSet and LeaderWorkerSet are not here: these controllers run.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Body = dict[str, Any]


@dataclass(frozen=True)
class Step:
    """Objects that are created together, each with its owner: the index of an object before it.

    -1 is the example itself.
    """

    objects: list[tuple[int, Body]] = field(default_factory=list)


def made(example: Body) -> list[Step] | None:
    """Return what its controller creates of `example`; None if that controller runs here."""
    maker = _MAKERS.get(example["kind"])
    if example["apiVersion"] == "batch.volcano.sh/v1alpha1":
        maker = _volcano_job
    return None if maker is None else [Step(list(step)) for step in maker(example)]


def child(kind: str, name: str, template: Mapping[str, Any], version: str = "v1") -> Body:
    """Return an object from the metadata and the spec of `template`."""
    metadata = {"labels": {}, **(template.get("metadata") or {}), "name": name}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": template["spec"]}


def pods(
    name: str, count: int, template: Mapping[str, Any], labels: Mapping[str, str], index: str = ""
) -> list[tuple[int, Body]]:
    """Return pods of the example itself; `index`: the label with the number of a pod."""
    found = []
    for number in range(count):
        body = child("Pod", f"{name}-{number}", template)
        own = {**labels, **({index: str(number)} if index else {})}
        body["metadata"]["labels"] = {**body["metadata"]["labels"], **own}
        found.append((-1, body))
    return found


Steps = Iterator[list[tuple[int, Body]]]
_OPERATOR = "training.kubeflow.org"


def _kubeflow(example: Body) -> Steps:
    """The training operator: all roles at once."""
    name, spec = example["metadata"]["name"], example["spec"]
    (roles,) = (value for key, value in spec.items() if key.endswith("ReplicaSpecs"))
    found: list[tuple[int, Body]] = []
    for role, each in roles.items():
        labels = {
            f"{_OPERATOR}/job-name": name,
            f"{_OPERATOR}/replica-type": role.lower(),
        }
        made_pods = pods(f"{name}-{role.lower()}", each["replicas"], each["template"], labels)
        for number, (_, body) in enumerate(made_pods):
            body["metadata"]["labels"][f"{_OPERATOR}/replica-index"] = str(number)
        found += made_pods
    yield found


def _mpi_job(example: Body) -> Steps:
    """The MPI operator: the launcher's Job when the workers are ready."""
    name, roles = example["metadata"]["name"], example["spec"]["mpiReplicaSpecs"]
    labels = {f"{_OPERATOR}/job-name": name, f"{_OPERATOR}/job-role": "worker"}
    worker, launcher = roles["Worker"], roles["Launcher"]
    index = f"{_OPERATOR}/replica-index"
    yield pods(f"{name}-worker", worker["replicas"], worker["template"], labels, index)
    template = _labelled(launcher["template"], {**labels, f"{_OPERATOR}/job-role": "launcher"})
    template["spec"]["restartPolicy"] = "Never"
    yield [(-1, child("Job", f"{name}-launcher", {"spec": {"template": template}}, "batch/v1"))]


def _labelled(template: Mapping[str, Any], labels: Mapping[str, str]) -> Body:
    metadata = template.get("metadata") or {}
    labels = {**(metadata.get("labels") or {}), **labels}
    return {"metadata": {**metadata, "labels": labels}, "spec": dict(template["spec"])}


def _ray_pods(name: str, spec: Mapping[str, Any], owner: int) -> list[tuple[int, Body]]:
    head = child("Pod", f"{name}-head", spec["headGroupSpec"]["template"])
    head["metadata"]["labels"] = {"ray.io/group": "headgroup", "ray.io/node-type": "head"}
    found = [(owner, head)]
    for group in spec.get("workerGroupSpecs", ()):
        labels = {"ray.io/group": group["groupName"], "ray.io/node-type": "worker"}
        workers = pods(f"{name}-{group['groupName']}", group["replicas"], group["template"], labels)
        found += [(owner, body) for _, body in workers]
    return found


def _ray_cluster(example: Body) -> Steps:
    yield _ray_pods(example["metadata"]["name"], example["spec"], -1)


def _ray_service(example: Body) -> Steps:
    name, spec = example["metadata"]["name"], example["spec"]["rayClusterConfig"]
    cluster = child("RayCluster", name, {"spec": spec}, "ray.io/v1")
    yield [(-1, cluster), *_ray_pods(name, spec, 0)]


def _ray_job(example: Body) -> Steps:
    name, spec = example["metadata"]["name"], example["spec"]
    cluster = child("RayCluster", name, {"spec": spec["rayClusterSpec"]}, "ray.io/v1")
    yield [(-1, cluster), *_ray_pods(name, spec["rayClusterSpec"], 0)]
    template = {"spec": {"template": spec["submitterPodTemplate"]}}
    yield [(-1, child("Job", name, template, "batch/v1"))]


def _spark(example: Body) -> Steps:
    """The operator creates the driver, and the driver its executors."""
    yield from _spark_pods(example["metadata"]["name"], example["spec"], -1)


def _spark_pods(name: str, spec: Mapping[str, Any], owner: int) -> Steps:
    labels = {"spark-app-name": name, "spark-role": "driver"}
    (_, driver), *_ = pods(f"{name}-driver", 1, _spark_template(spec["driver"]), labels)
    yield [(owner, driver)]
    labels["spark-role"] = "executor"
    executor = spec["executor"]
    template = _spark_template(executor)
    template["metadata"] = {"annotations": executor.get("annotations", {})}
    executors = pods(f"{name}-exec", executor["instances"], template, labels)
    yield [(owner + 1, body) for _, body in executors]


def _spark_template(role: Mapping[str, Any]) -> Body:
    """Return the template with Spark's own resources: cores, and memory with its overhead."""
    overhead = max(384, int(role["memory"].removesuffix("g")) * 1024 // 10 + 1)
    memory = f"{int(role['memory'].removesuffix('g')) * 1024 + overhead}Mi"
    own = {"requests": {"cpu": str(role["cores"]), "memory": memory}}
    spec = role["template"]["spec"]
    containers = [{"image": "spark", "resources": own, **each} for each in spec["containers"]]
    return {"spec": {**spec, "containers": containers}}


def _scheduled_spark(example: Body) -> Steps:
    name, spec = example["metadata"]["name"], example["spec"]["template"]
    application = child("SparkApplication", name, {"spec": spec}, example["apiVersion"])
    driver, executors = _spark_pods(name, spec, 0)
    yield [(-1, application), *driver]
    yield executors


def _app_wrapper(example: Body) -> Steps:
    """AppWrapper creates its components as they are."""
    (template,) = (each["template"] for each in example["spec"]["components"])
    (inner,) = _kubeflow(template)
    yield [(-1, template), *((0, body) for _, body in inner)]


def _cron_job(example: Body) -> Steps:
    template = {"metadata": {}, **example["spec"]["jobTemplate"]}
    yield [(-1, child("Job", example["metadata"]["name"], template, "batch/v1"))]


def _train_job(example: Body) -> Steps:
    """Kubeflow Trainer: the JobSet of the runtime, with what the TrainJob asks for."""
    trainer = example["spec"]["trainer"]
    jobs = []
    for name, count in (("dataset-initializer", 1), ("node", trainer["numNodes"])):
        container: Body = {"name": name, "image": "x"}
        if name == "node":
            container["resources"] = trainer["resourcesPerNode"]
        spec = {"schedulerName": "bindery", "restartPolicy": "Never", "containers": [container]}
        job = {"parallelism": count, "completions": count, "template": {"spec": spec}}
        jobs.append({"name": name, "replicas": 1, "template": {"spec": job}})
    jobs[1]["dependsOn"] = [{"name": "dataset-initializer", "status": "Complete"}]
    body = {"spec": {"replicatedJobs": jobs}}
    yield [(-1, child("JobSet", example["metadata"]["name"], body, "jobset.x-k8s.io/v1alpha2"))]


def _workflow(example: Body) -> Steps:
    yield [(-1, _step(example["metadata"]["name"], example["spec"]))]


def _step(name: str, spec: Mapping[str, Any]) -> Body:
    container = {"name": "main", **spec["templates"][0]["container"]}
    inner = {"schedulerName": spec["schedulerName"], "containers": [container]}
    return child("Pod", name, {"spec": inner})


def _cron_workflow(example: Body) -> Steps:
    name, spec = example["metadata"]["name"], example["spec"]["workflowSpec"]
    workflow = child("Workflow", name, {"spec": spec}, example["apiVersion"])
    yield [(-1, workflow), (0, _step(name, spec))]


def _task_run(example: Body) -> Steps:
    yield [(-1, _task(example["metadata"]["name"], example["spec"]))]


def _task(name: str, spec: Mapping[str, Any]) -> Body:
    inner = {**spec["podTemplate"], "containers": spec["taskSpec"]["steps"]}
    return child("Pod", f"{name}-pod", {"spec": inner})


def _pipeline_run(example: Body) -> Steps:
    (task,) = example["spec"]["pipelineSpec"]["tasks"]
    name = f"{example['metadata']['name']}-{task['name']}"
    spec = {
        "podTemplate": example["spec"]["taskRunTemplate"]["podTemplate"],
        "taskSpec": task["taskSpec"],
    }
    run = child("TaskRun", name, {"spec": spec}, example["apiVersion"])
    yield [(-1, run), (0, _task(name, spec))]


def _notebook(example: Body) -> Steps:
    yield pods(example["metadata"]["name"], 1, example["spec"]["template"], {})


def _virtual_machine(example: Body) -> Steps:
    name, template = example["metadata"]["name"], example["spec"]["template"]
    instance = child("VirtualMachineInstance", name, template, example["apiVersion"])
    container = {"name": "compute", "image": "virt-launcher"}
    container |= {"resources": template["spec"]["domain"]["resources"]}
    spec = {"schedulerName": template["spec"]["schedulerName"], "containers": [container]}
    yield [(-1, instance), (0, child("Pod", f"virt-launcher-{name}", {"spec": spec}))]


def _inference_service(example: Body) -> Steps:
    """KServe in its raw mode: a Deployment, which Kubernetes' own controller serves."""
    name = f"{example['metadata']['name']}-predictor"
    resources = {"requests": {"cpu": "1", "memory": "2Gi"}, "limits": {"cpu": "1", "memory": "2Gi"}}
    container = {"name": "kserve-container", "image": "sklearn", "resources": resources}
    labels = {**example["metadata"]["labels"], "app": name}
    spec = {"schedulerName": "bindery", "containers": [container]}
    template = {"metadata": {"labels": labels}, "spec": spec}
    body = {"selector": {"matchLabels": {"app": name}}, "template": template}
    yield [(-1, child("Deployment", name, {"spec": body}, "apps/v1"))]


def _knative_service(example: Body) -> Steps:
    name, template = example["metadata"]["name"], example["spec"]["template"]
    revision = child("Revision", f"{name}-00001", template, example["apiVersion"])
    scale = int(template["metadata"]["annotations"]["autoscaling.knative.dev/min-scale"])
    containers = [{"name": "user-container", **each} for each in template["spec"]["containers"]]
    spec = {**template["spec"], "containers": containers}
    found = pods(f"{name}-00001", scale, {"spec": spec}, {})
    yield [(-1, revision), *((0, body) for _, body in found)]


def _pod_clique_set(example: Body) -> Steps:
    """Grove: a PodGang, and the pods of each clique, which name it."""
    (clique,) = example["spec"]["template"]["cliques"]
    gang = f"{example['metadata']['name']}-0"
    name, spec = f"{gang}-{clique['name']}", clique["spec"]
    groups = [{"name": name, "minReplicas": spec["minAvailable"], "podReferences": []}]
    pod_gang = {"spec": {"podgroups": groups}}
    labels = {"grove.io/podgang": gang, "grove.io/podclique": name}
    found = pods(name, spec["replicas"], {"spec": spec["podSpec"]}, labels)
    yield [
        (
            -1,
            child("PodGang", gang, pod_gang, "scheduler.grove.io/v1alpha1"),
        ),
        (-1, child("PodClique", name, {"spec": spec}, example["apiVersion"])),
        *((1, body) for _, body in found),
    ]


def _hyper_pod(example: Body) -> Steps:
    (role,) = example["spec"]["replicaSpecs"]
    yield pods(f"{example['metadata']['name']}-pod", role["replicas"], role["template"], {})


def _volcano_job(example: Body) -> Steps:
    name = example["metadata"]["name"]
    yield [
        each
        for task in example["spec"]["tasks"]
        for each in pods(
            f"{name}-{task['name']}",
            task["replicas"],
            task["template"],
            {"volcano.sh/job-name": name, "volcano.sh/task-spec": task["name"]},
        )
    ]


def _training(example: Body) -> Steps:
    """The kind of its own: the leader, then the pools."""
    spec = example["spec"]
    yield pods("big-leader", 1, spec["leader"]["template"], {"example.com/role": "leader"})
    yield [
        each
        for pool in spec["pools"]
        for each in pods(
            f"big-{pool['name']}",
            pool["size"],
            pool["template"],
            {"example.com/role": "worker", "example.com/pool": pool["name"]},
        )
    ]


def _pipeline(example: Body) -> Steps:
    for stage in example["spec"]["stages"]:
        yield pods(f"pipeline-{stage['name']}", stage["size"], stage["template"], {})


_MAKERS = {
    **dict.fromkeys(("JAXJob", "PaddleJob", "PyTorchJob", "TFJob", "XGBoostJob"), _kubeflow),
    "AppWrapper": _app_wrapper,
    "CronJob": _cron_job,
    "CronWorkflow": _cron_workflow,
    "HyperPodPyTorchJob": _hyper_pod,
    "InferenceService": _inference_service,
    "MPIJob": _mpi_job,
    "Notebook": _notebook,
    "Pipeline": _pipeline,
    "PipelineRun": _pipeline_run,
    "PodCliqueSet": _pod_clique_set,
    "RayCluster": _ray_cluster,
    "RayJob": _ray_job,
    "RayService": _ray_service,
    "ScheduledSparkApplication": _scheduled_spark,
    "Service": _knative_service,
    "SparkApplication": _spark,
    "TaskRun": _task_run,
    "TrainJob": _train_job,
    "Training": _training,
    "VirtualMachine": _virtual_machine,
    "Workflow": _workflow,
}
"""By kind."""
