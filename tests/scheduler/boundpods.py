"""Pods after their binding, with the records that the binder writes on them."""

from collections.abc import Sequence

import msgspec

from bindery.binder.outcome.bindingmetadata import recorded
from bindery.kube.objects import watched as kube
from bindery.kube.objects.bindrequests import CommittedStatement
from bindery.scheduler.commit.drafts import StatementDraft
from bindery.scheduler.commit.requests import as_stored


def request_of(draft: StatementDraft) -> CommittedStatement:
    """Return the Statement of `draft` as a watch shows it."""
    return as_stored(draft)


def records_of(draft: StatementDraft) -> dict[str, dict[str, str]]:
    """Return pod name -> annotations that the binder writes with the binding."""
    request = request_of(draft)
    return {each.pod_name: dict(recorded(request, each).annotations) for each in request.spec.pods}


def bound_pod(
    item: kube.Pod,
    node_name: str,
    records: dict[str, str],
    conditions: Sequence[kube.Condition] = (),
) -> kube.Pod:
    """Return `item` on its node, with the `records` of the binder."""
    metadata = msgspec.structs.replace(
        item.metadata, annotations={**item.metadata.annotations, **records}
    )
    spec = msgspec.structs.replace(item.spec, node_name=node_name)
    status = msgspec.structs.replace(item.status, phase="Running", conditions=list(conditions))
    return msgspec.structs.replace(item, metadata=metadata, spec=spec, status=status)
