"""Upstream's PodGroups on a control plane of their own: what the tests create and wait for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bindery.api.names import MADE_BY_LABEL, NODE_POOL_LABEL
from bindery.kube.errors import NotFoundError
from bindery.kube.objects.podgroups import PodGroup
from bindery.kube.objects.resources import POD_GROUPS, PODS, Resource
from bindery.kube.objects.watched import Pod
from tests.administrator import Plain
from tests.e2e.support import Corner, wait_for

GATES = (
    "GenericWorkload",
    "GangScheduling",
    "WorkloadAwarePreemption",
    "TopologyAwareWorkloadScheduling",
    "DRAWorkloadResourceClaims",
    "WorkloadWithJob",
)
JOBS = Resource("batch", "v1", "jobs", "Job", True, Plain)


def gang(count: int, **further: Any) -> dict[str, Any]:
    return {"schedulingPolicy": {"gang": {"minCount": count}}, **further}


def basic(**further: Any) -> dict[str, Any]:
    return {"schedulingPolicy": {"basic": {}}, **further}


@dataclass(frozen=True)
class Upstream:
    """Upstream's groups in one test's corner of the cluster."""

    corner: Corner
    version: str

    def kind(self, kind: str = "PodGroup", version: str = "") -> "Resource[Plain]":
        group = "scheduling.k8s.io"
        return Resource(group, version or self.version, f"{kind.lower()}s", kind, True, Plain)

    async def create(self, name: str, spec: Mapping[str, Any]) -> Plain:
        """Create a PodGroup."""
        return await self.make(self.kind(), name, spec)

    async def make(self, kind: "Resource[Plain]", name: str, spec: Mapping[str, Any]) -> Plain:
        body = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {"name": name, "namespace": self.corner.namespace},
            "spec": spec,
        }
        return await self.corner.client.create(kind, body, self.corner.namespace)

    async def get(self, name: str, kind: "Resource[Plain] | None" = None) -> Plain:
        return await self.corner.client.get(kind or self.kind(), name, self.corner.namespace)

    async def delete(self, name: str) -> None:
        """Delete a PodGroup as KubeRay does: without waiting for its pods to end."""
        client, namespace = self.corner.client, self.corner.namespace
        await client.delete(self.kind(), name, namespace)
        try:
            await client.patch(
                self.kind(), name, {"metadata": {"finalizers": None}}, namespace=namespace
            )
        except NotFoundError:
            return

    async def submit(self, group: str, *names: str, cpu: str = "1", **spec: Any) -> None:
        """Create pods of a PodGroup, one after the other."""
        for name in names:
            container = {
                "name": "worker",
                "image": "worker",
                "resources": {"requests": {"cpu": cpu}},
            }
            body = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": name,
                    "namespace": self.corner.namespace,
                    "labels": {NODE_POOL_LABEL: self.corner.pool},
                },
                "spec": {
                    "schedulerName": "bindery",
                    "schedulingGroup": {"podGroupName": group},
                    "restartPolicy": "Never",
                    "terminationGracePeriodSeconds": 0,
                    "containers": [container],
                    **spec,
                },
            }
            await self.corner.client.create(PODS, body, self.corner.namespace)

    async def create_job(self, name: str, **spec: Any) -> str:
        """Create an Indexed Job of three pods with one CPU each; return the name of its PodGroup.

        `spec`: further fields of the Job.
        """
        corner = self.corner
        container = {"name": "w", "image": "w", "resources": {"requests": {"cpu": "1"}}}
        pod = {"schedulerName": "bindery", "restartPolicy": "Never", "containers": [container]}
        template = {"metadata": {"labels": {NODE_POOL_LABEL: corner.pool}}, "spec": pod}
        counts = {"completionMode": "Indexed", "completions": 3, "parallelism": 3}
        await self.make(JOBS, name, {**counts, **spec, "template": template})

        async def members() -> list[str]:
            pods = await corner.client.list(PODS, namespace=corner.namespace)
            links = (pod.spec.scheduling_group for pod in pods)
            found = [link.pod_group_name for link in links if link is not None]
            return found if len(found) == 3 else []

        (group,) = set(await wait_for(members, "the Job's pods are in a PodGroup"))
        return group

    async def pods(self, group: str) -> list[Pod]:
        every = await self.corner.client.list(PODS, namespace=self.corner.namespace)
        return [
            pod
            for pod in every
            if pod.spec.scheduling_group is not None
            and pod.spec.scheduling_group.pod_group_name == group
        ]

    async def bound(self, group: str) -> list[str]:
        return sorted(p.metadata.name for p in await self.pods(group) if p.spec.node_name)

    async def wait_bound(self, group: str, count: int) -> None:
        async def bound() -> bool:
            return len(await self.bound(group)) == count

        await wait_for(bound, f"{count} pods of {group} are bound")

    async def ours(self) -> list[PodGroup]:
        """Return the PodGroups of ours that the grouper has written."""
        label = f"{MADE_BY_LABEL}=grouper"
        return await self.corner.client.list(
            POD_GROUPS, namespace=self.corner.namespace, label_selector=label
        )

    async def conditions(
        self, name: str, kind: "Resource[Plain] | None" = None
    ) -> dict[str, dict[str, Any]]:
        status = (await self.get(name, kind)).status or {}
        return {each["type"]: each for each in status.get("conditions") or ()}

    async def wait_said(
        self,
        name: str,
        condition: str,
        answer: Sequence[str],
        kind: "Resource[Plain] | None" = None,
    ) -> dict[str, Any]:
        """Wait until a group has `condition` with status and reason as in `answer`."""

        async def said() -> dict[str, Any] | None:
            found = (await self.conditions(name, kind)).get(condition)
            is_so = found is not None and [found["status"], found["reason"]] == list(answer)
            return found if is_so else None

        found = await wait_for(said, f"{name} says {condition} {answer}")
        assert found is not None
        return found
