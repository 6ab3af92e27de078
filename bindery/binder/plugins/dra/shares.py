"""Pods that use a claim shared by a PodGroup: the claim's reservation does not list pods.

Used by `plugin` before it removes a reservation. Bound pods are read from the API server; pods that
are being bound are stored here, because only one binder works at a time.
"""

from collections import defaultdict

from bindery.api.states import ENDED_POD_PHASES
from bindery.binder.outcome.ports import PodView
from bindery.kube.client import Client
from bindery.kube.objects.claims import ClaimHandover
from bindery.kube.objects.resources import PODS


class Shares:
    """The pods in progress that use shared claims."""

    def __init__(self) -> None:
        self._pods: defaultdict[str, set[str]] = defaultdict(set)
        """Claim UID -> pod UIDs."""

    def enter(self, planned: ClaimHandover, pod: PodView) -> None:
        """Record that `pod` is about to use the claim."""
        if planned.consumer is not None:
            self._pods[planned.uid].add(pod.uid)

    def leave(self, planned: ClaimHandover, pod: PodView) -> None:
        """Record that `pod` is bound, or will not be bound."""
        pods = self._pods.get(planned.uid)
        if pods is not None:
            pods.discard(pod.uid)
            if not pods:
                del self._pods[planned.uid]

    async def is_used(self, client: Client, planned: ClaimHandover, pod: PodView) -> bool:
        """Return whether other pods of the PodGroup use the claim or are about to use it."""
        if planned.consumer is None:
            return False
        if self._pods.get(planned.uid):
            return True
        name = planned.consumer.name
        return any(
            each.metadata.uid != pod.uid
            and each.spec.node_name
            and each.spec.scheduling_group is not None
            and each.spec.scheduling_group.pod_group_name == name
            and each.status.phase not in ENDED_POD_PHASES
            for each in await client.list(PODS, namespace=pod.namespace)
        )
