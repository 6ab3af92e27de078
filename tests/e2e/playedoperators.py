"""The objects of the MPI operator, KubeRay and Kubeflow Trainer, created by the tests instead.

These controllers do not run here; their published definitions are installed. The names, labels and
owner references are as the controllers write them. Jobs and JobSets among the objects are served by
their own controllers.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bindery.api import names
from bindery.kube.objects.resources import PODS, Resource
from bindery.kube.objects.watched import Pod
from tests.administrator import Plain
from tests.e2e.workloads import JOBS, Maker

MPI_JOBS = Resource("kubeflow.org", "v2beta1", "mpijobs", "MPIJob", True, Plain)
RAY_JOBS = Resource("ray.io", "v1", "rayjobs", "RayJob", True, Plain)
RAY_CLUSTERS = Resource("ray.io", "v1", "rayclusters", "RayCluster", True, Plain)
TRAIN_JOBS = Resource("trainer.kubeflow.org", "v1alpha1", "trainjobs", "TrainJob", True, Plain)
JOB_SETS = Resource("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet", True, Plain)
CPU = "2"
"""Of each pod here: a whole node."""


def controlled(body: dict[str, Any], kind: Resource[Plain], owner: Plain) -> dict[str, Any]:
    """Return `body` with `owner` as its controller."""
    reference = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": owner.metadata.name,
        "uid": owner.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {**body, "metadata": {**body["metadata"], "ownerReferences": [reference]}}


@dataclass(frozen=True)
class _Operator:
    maker: Maker

    def _template(self, role: str) -> dict[str, Any]:
        return self.maker.template(role, cpu=CPU)

    async def _pod(
        self, name: str, role: str, labels: Mapping[str, str], kind: Resource[Plain], owner: Plain
    ) -> Pod:
        template = self._template(role)
        metadata = {"name": name, "labels": {**template["metadata"]["labels"], **labels}}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
        corner = self.maker.corner
        return await corner.client.create(PODS, controlled(body, kind, owner), corner.namespace)

    async def _job(
        self, name: str, template: dict[str, Any], kind: Resource[Plain], owner: Plain
    ) -> Plain:
        template["spec"]["restartPolicy"] = "Never"
        body = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name},
            "spec": {"template": template},
        }
        return await self.maker.create(JOBS, controlled(body, kind, owner))


@dataclass(frozen=True)
class MpiOperator(_Operator):
    """Creates the workers at once, and the launcher's Job when they are ready."""

    name: str = "mpi"

    async def start(self, workers: int) -> Plain:
        spec = {
            "launcherCreationPolicy": "WaitForWorkersReady",
            "mpiReplicaSpecs": {
                "Launcher": {"replicas": 1, "template": self._template("later")},
                "Worker": {"replicas": workers, "template": self._template("first")},
            },
        }
        body = {
            "apiVersion": MPI_JOBS.api_version,
            "kind": "MPIJob",
            "metadata": {"name": self.name},
            "spec": spec,
        }
        job = await self.maker.create(MPI_JOBS, body)
        for index in range(workers):
            labels = {**self._labels("worker"), "training.kubeflow.org/replica-index": str(index)}
            await self._pod(f"{self.name}-worker-{index}", "first", labels, MPI_JOBS, job)
        return job

    async def go_on(self, job: Plain) -> None:
        template = self._template("later")
        template["metadata"]["labels"] |= self._labels("launcher")
        await self._job(f"{self.name}-launcher", template, MPI_JOBS, job)

    def _labels(self, role: str) -> dict[str, str]:
        return {
            "training.kubeflow.org/operator-name": "mpi-operator",
            "training.kubeflow.org/job-name": self.name,
            "training.kubeflow.org/job-role": role,
        }


@dataclass(frozen=True)
class KubeRay(_Operator):
    """Creates the cluster's pods, and the Job that submits the program when they are ready."""

    name: str = "fit"

    async def start(self, workers: int) -> Plain:
        cluster = {
            "headGroupSpec": {"rayStartParams": {}, "template": self._template("first")},
            "workerGroupSpecs": [
                {
                    "groupName": "gpu",
                    "replicas": workers - 1,
                    "minReplicas": workers - 1,
                    "maxReplicas": workers + 1,
                    "rayStartParams": {},
                    "template": self._template("first"),
                }
            ],
        }
        submitter = self._template("later")
        submitter["spec"]["restartPolicy"] = "Never"
        body = {
            "apiVersion": RAY_JOBS.api_version,
            "kind": "RayJob",
            "metadata": {"name": self.name},
            "spec": {
                "entrypoint": "python fit.py",
                "rayClusterSpec": cluster,
                "submitterPodTemplate": submitter,
            },
        }
        job = await self.maker.create(RAY_JOBS, body)
        made = {
            "apiVersion": RAY_CLUSTERS.api_version,
            "kind": "RayCluster",
            "metadata": {"name": f"{self.name}-x7k2p"},
            "spec": cluster,
        }
        owner = await self.maker.create(RAY_CLUSTERS, controlled(made, RAY_JOBS, job))
        await self._node(owner, "head", 0)
        for index in range(workers - 1):
            await self._node(owner, "worker", index)
        return job

    async def go_on(self, job: Plain) -> None:
        await self._job(self.name, self._template("later"), RAY_JOBS, job)

    async def scale_up(self) -> None:
        """Add a worker, as the autoscaler asks for."""
        corner = self.maker.corner
        owner = await corner.client.get(RAY_CLUSTERS, f"{self.name}-x7k2p", corner.namespace)
        await self._node(owner, "worker", 9, app="added")

    async def _node(self, owner: Plain, kind: str, index: int, *, app: str = "first") -> None:
        labels = {
            "ray.io/cluster": owner.metadata.name,
            "ray.io/node-type": kind,
            "ray.io/group": "headgroup" if kind == "head" else "gpu",
            "ray.io/is-ray-node": "yes",
        }
        name = f"{owner.metadata.name}-{kind}-{index}"
        await self._pod(name, app, labels, RAY_CLUSTERS, owner)


async def train_job(maker: Maker, name: str, queue: str, runtime: dict[str, Any]) -> None:
    """Create a TrainJob, and the JobSet `runtime` that Kubeflow Trainer makes of it."""
    body = {
        "apiVersion": TRAIN_JOBS.api_version,
        "kind": "TrainJob",
        "metadata": {"name": name, "labels": {names.QUEUE_LABEL: queue}},
        "spec": {"runtimeRef": {"name": "torchtune"}, "trainer": {"numNodes": 2}},
    }
    owner = await maker.create(TRAIN_JOBS, body)
    await maker.create(JOB_SETS, controlled(runtime, TRAIN_JOBS, owner))
