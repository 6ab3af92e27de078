"""What must hold after every write of volumes, devices, cards and racks.

Read from the model's objects and log alone, and called by the `Judge` of a history.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from bindery.api.hami import names
from bindery.api.hami.lock import NodeLock, decode
from bindery.api.names import POD_GROUP_ANNOTATION, RACK_LABEL
from bindery.binder.plugins.volumes.writes import SELECTED_NODE
from bindery.kube.objects.claims import RESOURCE_CLAIMS, ResourceClaim
from bindery.kube.objects.resources import NODES, PODS, Resource
from bindery.kube.objects.storage import CLAIMS, VOLUMES
from bindery.kube.objects.watched import Pod
from tests.histories.apiserver.server import ModelApiServer
from tests.histories.apiserver.store import Change
from tests.histories.needs import bodies
from tests.histories.needs.cards import BY_TROUBLE, CARD, PREFIX, is_refused, lock_of
from tests.histories.needs.controller import NAMESPACE, is_alive
from tests.histories.needs.undone import given_up_by, left_of_given_up
from tests.histories.needs.volumes import claim_names
from tests.histories.plan import Plan
from tests.recounting import card_problems, gpu_problems

_BINDER: Final = "binder"
_EXPIRE_S: Final = 30.0
_CLOCKS_APART_S: Final = 11.0
"""By how much two clocks of a history differ at most, and the fraction of a second in a lock."""
_Device = tuple[str, str, str]
_On = Mapping[str, Mapping[str, Pod]]


class NeedsJudge:
    """Looks at writes. `on`: node -> UID -> pod that holds room there."""

    def __init__(self, server: ModelApiServer, plan: Plan, on: _On) -> None:
        self._server, self._plan, self._on = server, plan, on
        self._devices: dict[_Device, str] = {}
        """Allocated device -> UID of its claim."""
        self._lock_owners: dict[str, str] = {}
        """Node -> UID of the pod that its lock was written for."""
        self._racks: dict[str, str] = {}
        """Node -> its rack. Pods on a node that is gone are in none."""
        self._in_rack = _named(plan, lambda needs: needs.is_in_rack)
        self._exclusive = _named(plan, lambda needs: needs.is_exclusive)
        self._of_kind: dict[str, Callable[[Change], Iterator[str]]] = {
            "resourceclaims": self._resource_claim,
            "persistentvolumeclaims": self._volume_claim,
            "persistentvolumes": self._volume,
            "bindrequests": self._request,
            "nodes": self._node,
            "pods": self._pod,
        }

    def problems(self, change: Change) -> Iterator[str]:
        """Yield what is wrong with a write."""
        judge = self._of_kind.get(change.kind.plural)
        return judge(change) if judge is not None else iter(())

    def problems_of_room(self, node: str, pods: list[Pod]) -> list[str]:
        """Return what is wrong with the use of the GPUs or cards of a node."""
        if node.startswith(PREFIX):
            return card_problems(node, pods, CARD.memory_mib, CARD.count)
        return gpu_problems(node, pods, self._plan.gpus)

    def problems_of_bound(self, pod: Pod) -> Iterator[str]:
        """Yield what a pod that was just bound lacks."""
        yield from self._volumes_of(pod)
        yield from self._devices_of(pod)
        yield from self._lock_for(pod)
        yield from self._rack_of(pod)

    def _request(self, change: Change) -> Iterator[str]:
        given_up = given_up_by(self._server, change)
        yield from left_of_given_up(self._server, given_up)
        for node, uid in self._lock_owners.items():
            stored = self._find(NODES, node, "") if uid in given_up else None
            text = lock_of(stored.metadata.annotations) if stored is not None else ""
            lock = decode(text) if text else None
            holder = self._find(PODS, lock.name, lock.namespace) if lock is not None else None
            # A pod that is gone may have a successor: others remove its lock later.
            if holder is not None and holder.metadata.uid == uid and not holder.spec.node_name:
                yield f"{holder.metadata.name} was given up and holds the lock of {node}"

    # -- volumes ---------------------------------------------------------------------------------

    def _volume_claim(self, change: Change) -> Iterator[str]:
        claim = CLAIMS.decode(change.version.body)
        volume, name = claim.spec.volume_name, claim.metadata.name
        if change.after is None:
            return
        if change.before is not None and _is_binder(change):
            chosen = CLAIMS.decode(change.before.body).metadata.annotations.get(SELECTED_NODE)
            if claim.metadata.annotations.get(SELECTED_NODE, chosen) != chosen and chosen:
                yield f"{change.writer.caller} replaces the node {chosen} of claim {name}"
        if not volume:
            return
        for other in self._all_of(CLAIMS):
            if other.spec.volume_name == volume and other.metadata.name != name:
                yield f"volume {volume} is bound to {name} and to {other.metadata.name}"

    def _volume(self, change: Change) -> Iterator[str]:
        if change.before is None or change.after is None:
            return
        before = (change.before.object["spec"].get("claimRef") or {}).get("uid", "")
        after = (change.after.object["spec"].get("claimRef") or {}).get("uid", "")
        is_bound = (change.before.object.get("status") or {}).get("phase") == "Bound"
        if before != after and ((after and before) or (is_bound and _is_binder(change))):
            yield f"volume {change.key[1]} was taken from the claim that it belonged to"

    def _volumes_of(self, pod: Pod) -> Iterator[str]:
        for name in claim_names(pod):
            claim = self._find(CLAIMS, name, NAMESPACE)
            if claim is None or claim.metadata.deletion_timestamp is not None:
                continue  # people were faster than the binding
            who = f"{pod.metadata.name} was bound to {pod.spec.node_name}"
            if not claim.spec.volume_name:
                yield f"{who} before its claim {name} was bound"
                continue
            volume = self._find(VOLUMES, claim.spec.volume_name, "")
            held = volume.spec.node_affinity if volume is not None else None
            if held is None or held.required is None:
                continue
            hosts = {
                host
                for term in held.required.node_selector_terms
                for expression in term.match_expressions or ()
                for host in expression.values or ()
            }
            if pod.spec.node_name not in hosts:
                yield f"{who}, and the volume of its claim {name} is on {', '.join(hosts)}"

    # -- devices ---------------------------------------------------------------------------------

    def _resource_claim(self, change: Change) -> Iterator[str]:
        claim = RESOURCE_CLAIMS.decode(change.version.body)
        uid = claim.metadata.uid
        for device in [device for device, owner in self._devices.items() if owner == uid]:
            del self._devices[device]
        if change.after is None:
            return
        yield from self._taken_reservations(change, claim)
        for device in _devices(claim):
            if device in self._devices:
                yield f"device {device[2]} of {device[1]} is allocated to two claims"
            self._devices[device] = uid

    def _taken_reservations(self, change: Change, claim: ResourceClaim) -> Iterator[str]:
        """Yield the pods on nodes from which a binder takes a claim."""
        if change.before is None or not _is_binder(change):
            return
        kept = {user.uid for user in claim.status.reserved_for}
        for user in RESOURCE_CLAIMS.decode(change.before.body).status.reserved_for:
            pod = self._find(PODS, user.name, NAMESPACE) if user.uid not in kept else None
            if pod is None or pod.metadata.uid != user.uid or not pod.spec.node_name:
                continue
            if is_alive(pod) and pod.metadata.deletion_timestamp is None:
                text = f"takes claim {claim.metadata.name} from {user.name}, which is bound"
                yield f"{change.writer.caller} {text}"

    def _devices_of(self, pod: Pod) -> Iterator[str]:
        made = {
            each.name: each.resource_claim_name for each in pod.status.resource_claim_statuses or ()
        }
        claims = [
            entry.resource_claim_name or made.get(entry.name) or ""
            for entry in pod.spec.resource_claims or ()
        ]
        extended = pod.status.extended_resource_claim_status
        if extended is not None:
            claims.append(extended.resource_claim_name)
        elif _limits(pod, bodies.EXTENDED_RESOURCE):
            yield f"{pod.metadata.name} was bound without a claim for its extended resource"
        for name in claims:
            yield from self._devices_in(pod, name)

    def _devices_in(self, pod: Pod, name: str) -> Iterator[str]:
        who = f"{pod.metadata.name} was bound to {pod.spec.node_name}, and its claim {name}"
        claim = self._find(RESOURCE_CLAIMS, name, NAMESPACE)
        if claim is None:
            yield f"{who} does not exist"
        elif claim.status.allocation is None:
            yield f"{who} is not allocated"
        elif all(user.uid != pod.metadata.uid for user in claim.status.reserved_for):
            yield f"{who} is not reserved for it"
        elif any(device[1] != pod.spec.node_name for device in _devices(claim)):
            yield f"{who} has devices elsewhere"

    # -- cards -----------------------------------------------------------------------------------

    def _node(self, change: Change) -> Iterator[str]:
        name = change.key[1]
        before, after = _lock(change.before), _lock(change.after)
        labels = change.version.object["metadata"].get("labels") or {}
        self._racks[name] = labels.get(RACK_LABEL, "")
        if change.after is None:
            del self._racks[name]
        if before == after or change.after is None:
            return
        old, new = (decode(text) if text else None for text in (before, after))
        if old is not None and _is_binder(change) and (new is None or not _is_same(old, new)):
            yield from self._robbed(change, old, is_taken=new is not None)
        if new is not None and (old is None or not _is_same(old, new)):
            holder = self._find(PODS, new.name, new.namespace)
            self._lock_owners[name] = holder.metadata.uid if holder is not None else ""

    def _robbed(self, change: Change, old: NodeLock, *, is_taken: bool) -> Iterator[str]:
        """Yield whether a binder took a lock from a pod that may need it."""
        node = change.key[1]
        holder = self._find(PODS, old.name, old.namespace)
        if holder is None or holder.metadata.uid != self._lock_owners.get(node):
            return
        text = f"{change.writer.caller} robbed {old.name} of the lock of {node}"
        if not holder.spec.node_name:
            if is_taken and change.at_s - old.since_s < _EXPIRE_S - _CLOCKS_APART_S:
                yield f"{text} {change.at_s - old.since_s:.1f} s after it was taken"
        elif holder.spec.node_name == node and holder.status.phase == "Pending":
            phase = holder.metadata.annotations.get(names.BIND_PHASE)
            if phase == names.BindPhase.ALLOCATING:
                yield f"{text} before its devices were allocated"

    def _lock_for(self, pod: Pod) -> Iterator[str]:
        if names.DEVICES_RECORD not in pod.metadata.annotations:
            return
        node = self._find(NODES, pod.spec.node_name, "")
        if node is None:
            return
        text = lock_of(node.metadata.annotations)
        if not text or not decode(text).is_of(NAMESPACE, pod.metadata.name):
            why = f"which is locked by {text}" if text else "which is not locked"
            yield f"{pod.metadata.name} was bound to {pod.spec.node_name}, {why}"

    def _pod(self, change: Change) -> Iterator[str]:
        if is_refused(change):
            message = change.version.object["status"].get("message")
            if message != BY_TROUBLE:
                yield f"the device plugin refused {change.key[1]}: {message}"

    # -- racks -----------------------------------------------------------------------------------

    def _rack_of(self, pod: Pod) -> Iterator[str]:
        if pod.metadata.namespace != NAMESPACE:
            return
        mine, rack = gang_of(pod), self._racks.get(pod.spec.node_name, "")
        for node, pods in self._on.items():
            for other in pods.values() if node in self._racks else ():
                is_ours = other.metadata.namespace == NAMESPACE and is_alive(other)
                if is_ours and other.metadata.uid != pod.metadata.uid:
                    there = rack and self._racks.get(node) == rack
                    yield from self._beside(pod, mine, other, is_there=bool(there))

    def _beside(self, pod: Pod, mine: str, other: Pod, *, is_there: bool) -> Iterator[str]:
        gang, names_ = gang_of(other), f"{pod.metadata.name} and {other.metadata.name}"
        if gang == mine:
            if mine in self._in_rack and not is_there:
                yield f"{names_} are not in one rack"
        elif is_there and (gang in self._exclusive or mine in self._exclusive):
            yield f"{names_} are in one rack, which is exclusive"

    # -- reading ---------------------------------------------------------------------------------

    def _find(self, resource: Resource[Any], name: str, namespace: str) -> Any:
        kind = self._server.kind(resource.plural)
        stored = self._server.store.get(kind, (namespace, name))
        return resource.decode(stored.body) if stored is not None else None

    def _all_of(self, resource: Resource[Any]) -> list[Any]:
        stored = self._server.store.of(self._server.kind(resource.plural)).objects
        return [resource.decode(each.body) for each in stored.values()]


def gang_of(pod: Pod) -> str:
    """Return the name of the gang of a pod."""
    owner = next((each.name for each in pod.metadata.owner_references), "")
    return pod.metadata.annotations.get(POD_GROUP_ANNOTATION, owner)


def _named(plan: Plan, wanted: Callable[[Any], bool]) -> frozenset[str]:
    return frozenset(g.name for g in plan.gangs if g.needs is not None and wanted(g.needs))


def _devices(claim: ResourceClaim) -> list[_Device]:
    allocation = claim.status.allocation
    if allocation is None:
        return []
    return [(each.driver, each.pool, each.device) for each in allocation.devices.results]


def _limits(pod: Pod, resource: str) -> bool:
    return any(
        resource in (container.resources.limits or ())
        for container in pod.spec.containers
        if container.resources is not None
    )


def _lock(version: Any) -> str:
    annotations = version.object["metadata"].get("annotations") if version is not None else None
    return lock_of(annotations or {})


def _is_same(old: NodeLock, new: NodeLock) -> bool:
    return (old.namespace, old.name) == (new.namespace, new.name)


def _is_binder(change: Change) -> bool:
    return change.writer.caller.startswith(_BINDER)
