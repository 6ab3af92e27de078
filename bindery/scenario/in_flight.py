"""Requests in flight: the BindRequests with which a scenario begins.

Called by `cluster`. Pure. Invariant: a request names its pods by the UIDs of the scenario.
"""

from bindery.api.bindrequest import Phase
from bindery.api.names import NODE_POOL_LABEL, POD_NAME_LABEL, SELECTED_NODE_LABEL
from bindery.api.times import timestamp
from bindery.kube.objects.bindrequests import (
    CommittedStatement,
    PodBinding,
    StatementSpec,
    StatementStatus,
    UnboundPod,
)
from bindery.kube.objects.watched import Meta
from bindery.scenario.events import InFlightRequest
from bindery.scenario.objects import object_uid


def request_object(
    entry: InFlightRequest, namespace: str, pods: list[tuple[str, str]], now: float
) -> CommittedStatement:
    """Return the BindRequest `entry` for `pods`, each a name and a UID."""
    name, at = f"{pods[0][0]}-in-flight", timestamp(now - entry.age)
    labels = {NODE_POOL_LABEL: entry.node_pool} if entry.node_pool else {}
    if len(pods) == 1:
        labels |= {POD_NAME_LABEL: pods[0][0], SELECTED_NODE_LABEL: entry.node}
    unbound = [
        UnboundPod(pod_name=name, pod_uid=uid, node=entry.node, reason="BindFailed")
        for name, uid in pods
        if entry.phase is Phase.FAILED
    ]
    return CommittedStatement(
        metadata=Meta(
            name=name,
            namespace=namespace,
            uid=object_uid("bindrequest", namespace, name),
            creation_timestamp=at,
            labels={**labels, **entry.labels},
        ),
        spec=StatementSpec(
            pods=[
                PodBinding(pod_name=name, pod_uid=uid, selected_node=entry.node)
                for name, uid in pods
            ],
            id=name,
        ),
        backoff_limit=entry.backoff_limit,
        status=StatementStatus(
            phase=entry.phase.value,
            failed_attempts=entry.failed_attempts,
            completion_time=at if entry.phase.is_final else None,
            unbound_pods=unbound,
        ),
    )
