"""Which pods use a claim that a PodGroup shares: its reservation does not name them.

Used by `plugin` before it takes a reservation back. Pods that are bound are asked of the API
server; those that are being bound are known here, by the only binder at work.
"""

from collections import defaultdict

from bindery.api.states import ENDED_POD_PHASES
from bindery.binder.outcome.ports import PodView
from bindery.kube.client import Client
from bindery.kube.objects.claims import ClaimHandover
from bindery.kube.objects.resources import PODS


class Shares:
    """The pods on their way that use shared claims."""

    def __init__(self) -> None:
        self._pods: defaultdict[str, set[str]] = defaultdict(set)
        """Claim UID -> pod UIDs."""

    def enter(self, planned: ClaimHandover, pod: PodView) -> None:
        """Note that `pod` is about to use the claim."""
        if planned.consumer is not None:
            self._pods[planned.uid].add(pod.uid)

    def leave(self, planned: ClaimHandover, pod: PodView) -> None:
        """Note that `pod` is bound, or is not going to be."""
        pods = self._pods.get(planned.uid)
        if pods is not None:
            pods.discard(pod.uid)
            if not pods:
                del self._pods[planned.uid]

    async def is_used(self, client: Client, planned: ClaimHandover, pod: PodView) -> bool:
        """Return whether other pods of the PodGroup use the claim, or are about to."""
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
