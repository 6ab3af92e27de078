"""The scheduler plugin volumes: finds nodes and volumes for the claims of a pod.

Claims are matched and provisioned as by kube-scheduler (volumebinding, volumezone,
volumerestrictions and nodevolumelimits of Kubernetes 1.34). The binder plugin of the same name
writes the choice and waits. Unlike kube-scheduler, volumes that are chosen but not yet made count
against CSIStorageCapacity.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from bindery.kube.objects.resources import PODS, Resource
from bindery.kube.objects.storage import RESOURCES, PersistentVolumeClaim
from bindery.kube.objects.watched import KubeObject, Pod
from bindery.kube.watches.store import Change, Key
from bindery.scheduler.ledgers.base import Ledger
from bindery.scheduler.model.jobs import NO_ROW, Task
from bindery.scheduler.model.reasons import JobReason
from bindery.scheduler.model.shapes import Need, Shape
from bindery.scheduler.model.state import PlanState
from bindery.scheduler.model.verdicts import NodeFailure, Refusal
from bindery.scheduler.plugins.view import SessionView
from bindery.scheduler.plugins.volumes import foresight
from bindery.scheduler.plugins.volumes.catalog import Catalog, PodVolumes, class_name, is_bound
from bindery.scheduler.plugins.volumes.ledger import NOT_READ_YET, VolumeLedger
from bindery.scheduler.plugins.volumes.nodeindex import NodeIndex


class Volumes:
    """Plans volumes. Keeps the catalog between sessions, and makes a ledger for each session."""

    name = "volumes"

    def __init__(self) -> None:
        self._catalog = Catalog()
        self._index: NodeIndex | None = None

    # -- objects ---------------------------------------------------------------------------------

    def watched_resources(self) -> Sequence[Resource[Any]]:
        """Return the kinds of storage, and pods."""
        return (*RESOURCES, PODS)

    def observe(self, change: Change[KubeObject]) -> bool:
        """Process a change; return False, because this plugin has no `node_failures`."""
        self._catalog.observe(change)
        return False

    def supported_needs(self) -> Collection[Need]:
        """Return the need for volumes."""
        return (Need.VOLUMES,)

    # -- planning --------------------------------------------------------------------------------

    def ledger(self, session: SessionView, state: PlanState) -> Ledger:
        """Return the ledger for `session`, including the choices at the binder."""
        nodes = state.nodes
        # Labels change less often than cycles run, and an index over all nodes is costly.
        if self._index is None or self._index.version != nodes.version:
            self._index = NodeIndex(nodes)
        ledger = VolumeLedger(self._catalog, nodes, self._index)
        for uid, node_name, data in session.handed_over(self.name):
            pod = self._catalog.pods.get(uid)
            if pod is not None:
                row = nodes.rows.get(node_name, NO_ROW)
                ledger.expect(uid, row, _chosen(pod, data))
        return ledger

    def invalid_task(self, session: SessionView, task: Task) -> Refusal | None:
        """Refuse a task with unusable claims."""
        if Need.VOLUMES not in task.shape.needs:
            return None
        pod = self._catalog.pods.get(task.uid)
        if pod is None:
            return Refusal(JobReason.VOLUMES_UNKNOWN, NOT_READ_YET)
        problems = (self._problem(pod, key) for key in pod.claims)
        text = next((problem for problem in problems if problem is not None), None)
        if text is None:
            text = session.ledger(VolumeLedger).single_user(pod)
        return None if text is None else Refusal(JobReason.VOLUMES_NOT_READY, text)

    def filters_tasks_of(self, shape: Shape) -> bool:
        """Return whether pods of `shape` have volumes that are planned."""
        return Need.VOLUMES in shape.needs

    def task_node_failures(self, session: SessionView, task: Task) -> Iterator[NodeFailure]:
        """Yield the reasons against nodes for the volumes of `task`."""
        pod = self._catalog.pods.get(task.uid)
        if pod is None or any(self._problem(pod, k) for k in pod.claims):
            return  # `invalid_task` has refused the task
        yield from session.ledger(VolumeLedger).against(pod)

    def bind_data(self, session: SessionView, task: Task, row: int) -> Mapping[str, Any] | None:  # noqa: ARG002
        """Return the name and UID of each claim of `task`, and `volume` for unbound claims.

        `volume` is the name of the chosen volume, or empty if one must be provisioned.
        """
        pod = self._catalog.pods.get(task.uid)
        if Need.VOLUMES not in task.shape.needs or pod is None:
            return None
        ledger = session.ledger(VolumeLedger)
        return {"claims": [self._entry(ledger, key) for key in pod.claims]}

    def bind_effects(
        self,
        pod: Pod,
        node_name: str,  # noqa: ARG002
        data: Mapping[str, Any],
    ) -> Iterable[KubeObject]:
        """Return the claims and volumes of `pod`, bound as by the binder."""
        for entry in data.get("claims", ()):
            claim = self._catalog.claims.get((pod.metadata.namespace, entry["name"]))
            if claim is not None and "volume" in entry:
                volume = self._catalog.volumes.get(entry["volume"])
                yield from foresight.bound(claim, volume, self._catalog)

    # -- inside ----------------------------------------------------------------------------------

    def _entry(self, ledger: VolumeLedger, key: Key) -> dict[str, str]:
        entry = {"name": key[1], "uid": self._catalog.claims[key].metadata.uid}
        choice = ledger.choice(key)
        return entry if choice is None else {**entry, "volume": choice.volume}

    def _problem(self, pod: PodVolumes, key: Key) -> str | None:
        """Return why a claim of `pod` cannot be used on any node, in kube-scheduler's words."""
        claim, name = self._catalog.claims.get(key), key[1]
        if claim is None:
            if key in pod.own:
                return (
                    "waiting for ephemeral volume controller to create the "
                    f'persistentvolumeclaim "{name}"'
                )
            return f'persistentvolumeclaim "{name}" not found'
        if claim.unreadable:
            return f'persistentvolumeclaim "{name}" cannot be read: {claim.unreadable}'
        # The name of an ephemeral claim is predictable, so a stranger's claim may have it.
        owners = {reference.uid for reference in claim.metadata.owner_references}
        if key in pod.own and pod.uid not in owners:
            return f'persistentvolumeclaim "{name}" was not created for pod {pod.name}'
        if claim.metadata.deletion_timestamp is not None:
            return f'persistentvolumeclaim "{name}" is being deleted'
        return self._unbound(claim)

    def _unbound(self, claim: PersistentVolumeClaim) -> str | None:
        name, volume = claim.metadata.name, claim.spec.volume_name
        if claim.status.phase == "Lost":
            return (
                f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{volume}"'
            )
        if is_bound(claim):
            return self._lost_volume(claim)
        wanted = class_name(claim)
        if wanted and self._catalog.storage_class(claim) is None:
            return f'storageclass "{wanted}" of persistentvolumeclaim "{name}" not found'
        # With immediate binding, the volume controller binds the claim and not the scheduler.
        if not self._catalog.waits_for_consumer(claim):
            return f'pod has unbound immediate PersistentVolumeClaims: "{name}"'
        return None

    def _lost_volume(self, claim: PersistentVolumeClaim) -> str | None:
        """Return why the volume of a bound claim cannot be used; it may be gone since."""
        volume = claim.spec.volume_name
        found = self._catalog.volumes.get(volume)
        if found is None:
            return (
                f'persistentvolumeclaim "{claim.metadata.name}" bound to non-existent '
                f'persistentvolume "{volume}"'
            )
        if found.unreadable:
            return f'persistentvolume "{volume}" cannot be read: {found.unreadable}'
        return None


class _Entry(msgspec.Struct, frozen=True):
    name: str
    uid: str
    volume: str | None = None


def _chosen(pod: PodVolumes, data: Mapping[str, Any]) -> dict[Key, tuple[str, str]]:
    """Return the choices in `data` from `bind_data`: claim -> its UID, and the volume or "".

    Anybody who may create BindRequests can write `data`: invalid data has no choices.
    """
    try:
        entries = msgspec.convert(data.get("claims", []), list[_Entry])
    except msgspec.ValidationError:
        return {}
    return {
        (pod.namespace, entry.name): (entry.uid, entry.volume)
        for entry in entries
        if entry.volume is not None
    }
