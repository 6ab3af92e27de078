"""Which shares of GPUs are believed: what a pod on a node was granted, whatever its owner writes.

Used by tasks.py for every pod. A share takes part of a device only with a reason that its owner
cannot write: this process saw the BindRequest; or a reservation pod of each of its groups is on the
node; or, where an admission policy guards it, the binder's record. What was believed once holds
until the pod is gone. The one invariant: a pod without such a reason takes nothing.
"""

from collections import Counter
from collections.abc import Mapping

import msgspec

from bindery.api import gpushare
from bindery.api.gpushare import Grant
from bindery.kube.objects import Pod
from bindery.scheduler.cache.holds import Hold, Holds
from bindery.scheduler.model.jobs import Uid

_Place = tuple[str, str]
"""Node name and GPU group."""


class Grants:
    """Reads pods as they were granted their shares.

    `trusts_records`: whether only the binder can have written what pods have recorded.
    """

    def __init__(self, holds: Holds, *, trusts_records: bool) -> None:
        self._holds = holds
        self._trusts_records = trusts_records
        self._known: dict[Uid, Grant] = {}
        """Pod on a node -> what is believed of it."""
        self._doubted: dict[Uid, Pod] = {}
        """Pods on nodes whose shares are not believed."""
        self._reserved: Counter[_Place] = Counter()
        """How many reservation pods stand for a group on a node."""
        self._places: dict[Uid, _Place] = {}
        """Reservation pod -> what it stands for."""

    def as_granted(self, pod: Pod) -> Pod:
        """Return `pod` with the share and the groups that it was granted, or with none."""
        uid, meta = Uid(pod.metadata.uid), pod.metadata
        if gpushare.is_reservation(meta.namespace, meta.labels):
            return pod
        if not pod.spec.node_name:
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
        """Take in a reservation pod; return the pods that are believed because of it."""
        uid, groups = Uid(pod.metadata.uid), gpushare.groups(pod.metadata.labels)
        self._reservation_gone(uid)
        if not groups or not pod.spec.node_name:
            return []
        place = self._places[uid] = (pod.spec.node_name, groups[0])
        self._reserved[place] += 1
        doubted = list(self._doubted.items())
        return [user for uid, user in doubted if self._believed(user, uid) is not None]

    def doubted(self, uid: Uid) -> Pod | None:
        """Return the pod if it is on a node and its share is not believed."""
        return self._doubted.get(uid)

    def forget(self, uid: Uid) -> None:
        """Forget a pod that is gone, or has ended."""
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
        """Return what there is reason to believe of `pod`, which is on a node."""
        meta = pod.metadata
        said = gpushare.read(meta.annotations)
        hold = self._holds.get(uid) or self._holds.settled.get(uid)
        if hold is not None and hold.gpu_groups and hold.node_name == pod.spec.node_name:
            share = gpushare.read(_handed_over(hold)) or said
            return Grant(share, hold.gpu_groups) if share is not None else None
        recorded = gpushare.read_record(meta.annotations, uid)
        if recorded is not None and self._trusts_records:
            return recorded
        if recorded is None and said is not None:
            recorded = Grant(said, gpushare.groups(meta.labels))
        if recorded is None or not recorded.groups:
            return None
        places = ((pod.spec.node_name, group) for group in recorded.groups)
        return recorded if all(place in self._reserved for place in places) else None


def _handed_over(hold: Hold) -> Mapping[str, str]:
    """Return the share that the request grants, as annotations; empty where it does not say."""
    data = hold.data.get(gpushare.PLUGIN)
    share = data.get("share") if isinstance(data, dict) else None
    if not isinstance(share, dict):  # a request may come from anybody
        return {}
    return {str(key): str(value) for key, value in share.items()}


def _rewritten(pod: Pod, share: Mapping[str, str], labels: Mapping[str, str]) -> Pod:
    """Return `pod` with other annotations about its share, and other labels of GPU groups."""
    meta = pod.metadata
    others = {k: v for k, v in meta.annotations.items() if k not in gpushare.ASKING}
    kept = {k: v for k, v in meta.labels.items() if not gpushare.is_group_label(k)}
    metadata = msgspec.structs.replace(
        meta, annotations={**others, **share}, labels={**kept, **labels}
    )
    return msgspec.structs.replace(pod, metadata=metadata)
