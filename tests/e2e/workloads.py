"""Workloads as people write them, without a PodGroup: manifests, and what becomes of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from bindery.api import names
from bindery.kube.objects.resources import PODS, Resource
from bindery.kube.objects.watched import KubeObject, Pod
from tests.administrator import Plain
from tests.e2e.support import Corner, wait_for

JOBS = Resource("batch", "v1", "jobs", "Job", True, Plain)
CRON_JOBS = Resource("batch", "v1", "cronjobs", "CronJob", True, Plain)
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment", True, Plain)
STATEFUL_SETS = Resource("apps", "v1", "statefulsets", "StatefulSet", True, Plain)


class Written(KubeObject, frozen=True, kw_only=True):
    """A PodGroup with its whole spec."""

    spec: dict[str, Any] = msgspec.field(default_factory=dict)


GROUPS = Resource(names.GROUP, names.VERSION, "podgroups", "PodGroup", True, Written)


@dataclass(frozen=True)
class Maker:
    """Makes manifests for one corner of the cluster."""

    corner: Corner

    def template(
        self, name: str, *, cpu: str = "1", annotations: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """Return a pod template of the corner's scheduler."""
        labels = {"app": name, names.NODE_POOL_LABEL: self.corner.pool}
        container = {
            "name": "worker",
            "image": "worker",
            "resources": {"requests": {"cpu": cpu}},
        }
        return {
            "metadata": {"labels": labels, "annotations": dict(annotations or {})},
            "spec": {
                "schedulerName": "bindery",
                "terminationGracePeriodSeconds": 0,
                "containers": [container],
            },
        }

    def job(self, name: str, size: int, **template: Any) -> dict[str, Any]:
        """Return a Job with `size` pods."""
        made = self.template(name, **template)
        made["spec"]["restartPolicy"] = "Never"
        spec = {"completions": size, "parallelism": size, "completionMode": "Indexed"}
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name},
            "spec": {**spec, "template": made},
        }

    def cron_job(self, name: str, size: int) -> dict[str, Any]:
        """Return a CronJob that starts no Job by itself."""
        job = self.job(name, size)
        spec = {"schedule": "* * * * *", "suspend": True, "jobTemplate": {"spec": job["spec"]}}
        return {
            "apiVersion": "batch/v1",
            "kind": "CronJob",
            "metadata": {"name": name},
            "spec": spec,
        }

    def server(self, kind: str, name: str, size: int, **template: Any) -> dict[str, Any]:
        """Return a Deployment or StatefulSet with `size` pods."""
        spec = {
            "replicas": size,
            "selector": {"matchLabels": {"app": name}},
            "template": self.template(name, **template),
        }
        if kind == "StatefulSet":
            spec |= {"serviceName": name, "podManagementPolicy": "Parallel"}
        return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}

    async def create(self, resource: Resource[Plain], body: dict[str, Any]) -> Plain:
        """Create one of them."""
        return await self.corner.client.create(resource, body, self.corner.namespace)

    async def pods(self, app: str) -> list[Pod]:
        """Return the pods that were made from the template of this name."""
        return await self.corner.client.list(
            PODS, namespace=self.corner.namespace, label_selector=f"app={app}"
        )

    async def groups(self) -> list[Written]:
        """Return the PodGroups that the grouper has made here."""
        label = f"{names.MADE_BY_LABEL}={names.MADE_BY_GROUPER}"
        found = await self.corner.client.list(
            GROUPS, namespace=self.corner.namespace, label_selector=label
        )
        return sorted(found, key=lambda group: group.metadata.name)

    async def wait_groups(self, count: int) -> list[Written]:
        """Wait until there are so many PodGroups."""

        found: list[Written] = []

        async def enough() -> bool:
            nonlocal found
            found = await self.groups()
            return len(found) == count

        await wait_for(enough, f"there are {count} PodGroups")
        return found

    async def wait_bound(self, app: str, count: int) -> list[Pod]:
        """Wait until so many pods of a template are bound."""

        async def bound() -> list[Pod] | None:
            found = [pod for pod in await self.pods(app) if pod.spec.node_name]
            return found if len(found) == count else None

        found = await wait_for(bound, f"{count} pods of {app} are bound")
        assert found is not None
        return found
