"""Granted shares of GPUs: whether a pod on a node really has the share in its annotations.

Used by tasks.py for every pod. A pod's owner can write any annotation, so a share needs a proof
that the owner cannot write: a BindRequest that this process saw, a reservation pod on the node for
each of its groups, or the binder's record if an admission policy protects records. A proven share
holds until the pod is gone. Invariant: a pod without a proof uses no part of a device.
"""

from collections import Counter
from collections.abc import Mapping

import msgspec

from bindery.api import gpushare
from bindery.api.gpushare import Grant
from bindery.kube.objects.watched import Pod
from bindery.scheduler.cache.holds import Hold, Holds
from bindery.scheduler.model.jobs import Uid

_Place = tuple[str, str]
"""Node name and GPU group."""


class Grants:
    """Replaces the shares in pod objects with the granted shares.

    `trusts_records`: whether only the binder can write the records on pods.
    """

    def __init__(self, holds: Holds, *, trusts_records: bool) -> None:
        self._holds = holds
        self._trusts_records = trusts_records
        self._known: dict[Uid, Grant] = {}
        """Pod on a node -> its proven grant."""
        self._doubted: dict[Uid, Pod] = {}
        """Pods on nodes with shares without proof."""
        self._reserved: Counter[_Place] = Counter()
        """Number of reservation pods of each group on each node."""
        self._places: dict[Uid, _Place] = {}
        """Reservation pod -> its node and group."""

    def as_granted(self, pod: Pod) -> Pod:
        """Return `pod` with its granted share and groups, or without a share."""
        uid, meta = Uid(pod.metadata.uid), pod.metadata
        if gpushare.is_reservation(meta.namespace, meta.labels):
            return pod
        if not pod.spec.node_name:
            # The share of the plan counts, even if the owner changed the annotations since.
            hold = self._holds.get(uid)
            share = _handed_over(hold) if hold is not None else {}
            return _rewritten(pod, share, meta.labels) if share else pod
        self._doubted.pop(uid, None)
        grant = self._known.get(uid) or self._believed(pod, uid)
        if grant is not None:
            self._known[uid] = grant
            labels = gpushare.group_labels(grant.groups) if grant.groups else {}
            return _rewritten(pod, gpushare.as_annotations(grant.share), labels)
        if gpushare.asks_for_share(meta.annotations):
            self._doubted[uid] = pod
            return _rewritten(pod, {}, {})
        return pod

    def reservation_seen(self, pod: Pod) -> list[Pod]:
        """Add a reservation pod; return the pods whose shares are proven by it."""
        uid, groups = Uid(pod.metadata.uid), gpushare.groups(pod.metadata.labels)
        self._reservation_gone(uid)  # this may be an update of a known one
        if not groups or not pod.spec.node_name:
            return []
        place = self._places[uid] = (pod.spec.node_name, groups[0])
        self._reserved[place] += 1
        doubted = list(self._doubted.items())
        return [user for uid, user in doubted if self._believed(user, uid) is not None]

    def doubted(self, uid: Uid) -> Pod | None:
        """Return the pod `uid` if it is on a node and its share is not proven; else None."""
        return self._doubted.get(uid)

    def forget(self, uid: Uid) -> None:
        """Forget a pod that was deleted or has ended."""
        self._known.pop(uid, None)
        self._doubted.pop(uid, None)
        self._reservation_gone(uid)

    def _reservation_gone(self, uid: Uid) -> None:
        place = self._places.pop(uid, None)
        if place is not None:
            self._reserved[place] -= 1
            if not self._reserved[place]:
                del self._reserved[place]

    def _believed(self, pod: Pod, uid: Uid) -> Grant | None:
        """Return the proven grant of `pod`, which is on a node; None without a proof."""
        meta = pod.metadata
        said = gpushare.read(meta.annotations)
        hold = self._holds.get(uid) or self._holds.settled.get(uid)
        if hold is not None and hold.gpu_groups and hold.node_name == pod.spec.node_name:
            share = gpushare.read(_handed_over(hold)) or said
            return Grant(share, hold.gpu_groups) if share is not None else None
        recorded = gpushare.read_record(meta.annotations, uid)
        if recorded is not None and self._trusts_records:
            return recorded
        # The owner may have written the record or the annotations: reservation pods must agree.
        if recorded is None and said is not None:
            recorded = Grant(said, gpushare.groups(meta.labels))
        if recorded is None or not recorded.groups:
            return None
        places = ((pod.spec.node_name, group) for group in recorded.groups)
        return recorded if all(place in self._reserved for place in places) else None


def _handed_over(hold: Hold) -> Mapping[str, str]:
    """Return the share that the request grants, as annotations; empty if it grants none."""
    data = hold.data.get(gpushare.PLUGIN)
    share = data.get("share") if isinstance(data, dict) else None
    if not isinstance(share, dict):  # users may create requests with any content
        return {}
    return {str(key): str(value) for key, value in share.items()}


def _rewritten(pod: Pod, share: Mapping[str, str], labels: Mapping[str, str]) -> Pod:
    """Return `pod` with its share annotations and GPU group labels replaced."""
    meta = pod.metadata
    others = {k: v for k, v in meta.annotations.items() if k not in gpushare.ASKING}
    kept = {k: v for k, v in meta.labels.items() if not gpushare.is_group_label(k)}
    metadata = msgspec.structs.replace(
        meta, annotations={**others, **share}, labels={**kept, **labels}
    )
    return msgspec.structs.replace(pod, metadata=metadata)
