"""Frees the failed pods of Jobs in namespaces that are being deleted.

Run by `term`. The controller of a Job with `backoffLimitPerIndex` keeps its finalizer on a failed
pod until the replacement exists. A namespace that is being deleted accepts no replacement, and its
Jobs are deleted only after its pods, so the deletion would never end (Kubernetes 1.36, 1.37). The
Job is about to be deleted, so it no longer needs to count the pod.
"""

import asyncio
from typing import Any, Final

import structlog

from bindery.api.names import SCHEDULER_NAME
from bindery.api.times import seconds
from bindery.kube.client import Client
from bindery.kube.errors import KubeError, NotFoundError
from bindery.kube.http.outages import log_failure
from bindery.kube.objects.resources import NAMESPACES, PODS
from bindery.kube.objects.watched import KubeObject

_log: Final = structlog.get_logger(__name__)

FINALIZER: Final = "batch.kubernetes.io/job-tracking"
_PERIOD_S: Final = 15.0
_PATIENCE_S: Final = 15.0
"""Seconds that the Job controller has for its own work after the pod should have ended."""
_ENDING: Final = "status.phase=Terminating"
_FAILED: Final = f"spec.schedulerName={SCHEDULER_NAME},status.phase=Failed"
_FAILED_PODS: Final = PODS.decoded_as(KubeObject)


def is_stuck(pod: KubeObject, now_s: float) -> bool:
    """Return whether only the Job controller's finalizer keeps `pod`, for `_PATIENCE_S`.

    `pod` is a failed pod in a namespace that is being deleted; `now_s` is in seconds since the
    epoch.
    """
    deleted_s = seconds(pod.metadata.deletion_timestamp)
    is_of_job = any(
        each.controller and each.kind == "Job" for each in pod.metadata.owner_references
    )
    return (
        is_of_job
        and FINALIZER in pod.metadata.finalizers
        and deleted_s is not None
        # The timestamp is the end of the grace period.
        and now_s - deleted_s > _PATIENCE_S
    )


class EndingNamespaces:
    """Looks for pods kept by this finalizer, at intervals."""

    def __init__(self, client: Client) -> None:
        """Create without starting."""
        self._client, self._clock = client, client.environment.now_s

    async def run(self) -> None:
        """Free pods until cancelled; a round without ending namespaces is one request."""
        while True:
            try:
                for namespace in await self._client.list(NAMESPACES, field_selector=_ENDING):
                    await self._free_pods(namespace.metadata.name)
            except KubeError as error:
                log_failure(_log, "pods of ending namespaces could not be freed", error)
            await asyncio.sleep(_PERIOD_S)

    async def _free_pods(self, namespace: str) -> None:
        pods = await self._client.list(_FAILED_PODS, namespace=namespace, field_selector=_FAILED)
        for pod in pods:
            if is_stuck(pod, self._clock()):
                await self._free(pod.metadata.namespace, pod.metadata.name, pod.metadata.uid)

    async def _free(self, namespace: str, name: str, uid: str) -> None:
        def without_finalizer(pod: KubeObject) -> dict[str, Any] | None:
            if pod.metadata.uid != uid or not is_stuck(pod, self._clock()):
                return None
            kept = [each for each in pod.metadata.finalizers if each != FINALIZER]
            return {"metadata": {"finalizers": kept}}

        try:
            await self._client.update(_FAILED_PODS, name, namespace, without_finalizer)
        except NotFoundError:  # the Job controller was faster
            return
        _log.info("freed a pod of a namespace that is being deleted", pod=name, namespace=namespace)
