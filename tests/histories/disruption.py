"""Disruption budgets of gangs, and the controller that counts for them.

Kubernetes' disruption controller answers for `minAvailable` as this does: the covered pods that are
ready and not being evicted, less the needed ones.
"""

from collections.abc import Mapping
from typing import Any, Final

from bindery.kube.client import Client
from bindery.kube.errors import KubeError
from bindery.kube.objects.budgets import DISRUPTION_BUDGETS, DisruptionBudget
from bindery.kube.objects.resources import PODS
from bindery.kube.objects.watched import Pod
from tests.histories.apiserver.server import ModelApiServer
from tests.histories.plan import GangPlan
from tests.histories.reading import all_of

GANG_LABEL: Final = "gang"
"""Label of pods of gangs: the name of their gang."""


def budget(gang: GangPlan, namespace: str) -> dict[str, Any]:
    """Return the budget of a gang that has one."""
    selector = {"matchLabels": {GANG_LABEL: gang.name}}
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": gang.name, "namespace": namespace},
        "spec": {"minAvailable": gang.keeps, "selector": selector},
    }


async def count_for_budgets(server: ModelApiServer, client: Client) -> None:
    """Write the counts of all budgets that have changed, once."""
    pods = all_of(server, PODS)
    for found in all_of(server, DISRUPTION_BUDGETS):
        meta = found.metadata
        stored = server.find("poddisruptionbudgets", meta.namespace, meta.name)
        if stored is None:
            continue
        status = _status(stored, _covered(found, pods))
        if any(stored["status"].get(name) != value for name, value in status.items()):
            version = {"resourceVersion": meta.resource_version}
            try:
                await client.patch(
                    DISRUPTION_BUDGETS,
                    meta.name,
                    {"metadata": version, "status": status},
                    namespace=meta.namespace,
                    subresource="status",
                )
            except KubeError:
                continue  # an eviction was faster, and is counted after the next change


def _covered(found: DisruptionBudget, pods: list[Pod]) -> list[Pod]:
    return [p for p in pods if found.covers(p.metadata.namespace, p.metadata.labels)]


def _status(stored: Mapping[str, Any], pods: list[Pod]) -> dict[str, Any]:
    evicted = stored["status"].get("disruptedPods") or {}
    names = {pod.metadata.name for pod in pods if pod.metadata.deletion_timestamp is None}
    gone = {name: None for name in evicted if name not in names}
    healthy = sum(
        is_ready(pod)
        and pod.metadata.deletion_timestamp is None
        and pod.metadata.name not in evicted
        for pod in pods
    )
    needed = stored["spec"]["minAvailable"]
    status = {
        "expectedPods": len(pods),
        "currentHealthy": healthy,
        "desiredHealthy": needed,
        "disruptionsAllowed": max(0, healthy - needed),
        "observedGeneration": stored["metadata"]["generation"],
    }
    return {**status, "disruptedPods": gone} if gone else status


def is_ready(pod: Pod) -> bool:
    """Whether a pod has the condition Ready."""
    conditions = pod.status.conditions or ()
    return any(each.type == "Ready" and each.status == "True" for each in conditions)
