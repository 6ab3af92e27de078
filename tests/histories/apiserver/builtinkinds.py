"""The built-in kinds beside pods.

Of kinds with a bare `Strategy` or `_SpecAndStatus` only metadata, status and generation are
modelled: their fields get no defaults and are not validated.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from tests.histories.apiserver.definitions import restore
from tests.histories.apiserver.kinds import Kind, Moment, Plain, Problems, Strategy, words
from tests.histories.apiserver.pods import PodStrategy

_STATUS: Final = frozenset(("status",))


class _SpecAndStatus(Strategy):
    """A kind whose status is written through its subresource."""

    has_status = True

    def prepare_create(self, new: Plain, moment: Moment) -> None:
        del moment
        if not self.keeps_created_status:
            new["status"] = {}

    def prepare_update(self, new: Plain, old: Mapping[str, Any]) -> None:
        restore(new, old, "status")

    def prepare_status(self, new: Plain, old: Mapping[str, Any]) -> None:
        restore(new, old, "spec")


class _Counted(_SpecAndStatus):
    counts_generations = True


class _Nodes(_SpecAndStatus):
    keeps_created_status = True
    fields: ClassVar[Mapping[str, str]] = {"spec.unschedulable": "false"}
    merge_keys: ClassVar[Mapping[str, str]] = {
        "metadata.finalizers": "",
        "metadata.ownerReferences": "uid",
        "status.conditions": "type",
        "status.addresses": "type",
    }

    def prepare_create(self, new: Plain, moment: Moment) -> None:
        """Taint the node as not ready, as the admission plugin TaintNodesByCondition does."""
        del moment
        new.setdefault("status", {})
        taints = new.setdefault("spec", {}).setdefault("taints", [])
        not_ready = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
        if not_ready not in taints:
            taints.append(not_ready)

    def default(self, new: Plain) -> bool:
        """Add the parts that a node always has: a write without them changes nothing then."""
        new.setdefault("spec", {})
        new.setdefault("status", {})
        return False

    def problems(self, new: Plain) -> Problems:
        return [
            "spec.taints: Required value"
            for each in new.get("spec", {}).get("taints") or ()
            if not each.get("key") or not each.get("effect")
        ]


class _Namespaces(_SpecAndStatus):
    returns_deleted = True
    fields: ClassVar[Mapping[str, str]] = {"status.phase": ""}

    def prepare_create(self, new: Plain, moment: Moment) -> None:
        del moment
        new["spec"] = {"finalizers": ["kubernetes"]}
        new["status"] = {"phase": "Active"}

    def default(self, new: Plain) -> bool:
        name = new["metadata"].get("name")
        if name:
            new["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = name
        return False

    def prepare_update(self, new: Plain, old: Mapping[str, Any]) -> None:
        new["spec"], new["status"] = old["spec"], old["status"]

    def problems_of_status(self, new: Plain, old: Mapping[str, Any]) -> Problems:
        is_ending = bool(old["metadata"].get("deletionTimestamp"))
        phase = (new.get("status") or {}).get("phase")
        if phase != ("Terminating" if is_ending else "Active"):
            return [f"status.phase: Invalid value: {phase!r}"]
        return []


class _Leases(Strategy):
    unconditional_update = False
    create_on_update = True

    def problems(self, new: Plain) -> Problems:
        spec = new.get("spec") or {}
        found = []
        duration = spec.get("leaseDurationSeconds")
        if duration is not None and duration <= 0:
            found.append("spec.leaseDurationSeconds: must be greater than 0")
        if (spec.get("leaseTransitions") or 0) < 0:
            found.append("spec.leaseTransitions: must be greater than or equal to 0")
        return found


_EVENT_FIELDS: Final = words(
    """
    reason type reportingController regarding.kind regarding.namespace regarding.name
    regarding.uid regarding.apiVersion
    """
)


class _Events(Strategy):
    is_collected = False
    create_on_update = True
    fields: ClassVar[Mapping[str, str]] = dict.fromkeys(_EVENT_FIELDS, "")

    def problems(self, new: Plain) -> Problems:
        """Validate an event that has an eventTime, as `events.k8s.io/v1` asks."""
        found = [
            f"{name}: Required value"
            for name in (
                "eventTime",
                "reportingController",
                "reportingInstance",
                "reason",
                "action",
            )
            if not new.get(name)
        ]
        if new.get("type") not in ("Normal", "Warning"):
            found.append("type: Invalid value")
        if len(new.get("note", "").encode()) > 1024:
            found.append("note: can have at most 1024 bytes")
        if len(new.get("reason", "")) > 128:
            found.append("reason: can have at most 128 bytes")
        regarding = new.get("regarding") or {}
        if (regarding.get("namespace") or "default") != new["metadata"].get("namespace"):
            found.append("metadata.namespace: does not match regarding.namespace")
        return found

    def problems_of_update(self, new: Plain, old: Mapping[str, Any]) -> Problems:
        """Only the series may change."""
        names = (new.keys() | old.keys()) - {"metadata", "series"}
        return [
            f"{name}: Invalid value: field is immutable"
            for name in sorted(names)
            if new.get(name) != old.get(name)
        ]


class _ConfigMaps(Strategy):
    def problems(self, new: Plain) -> Problems:
        return [
            f"data.{key}: Invalid value"
            for key in (new.get("data") or {})
            if not key
            or len(key) > 253
            or not key.replace("-", "").replace("_", "").replace(".", "").isalnum()
        ]

    def problems_of_update(self, new: Plain, old: Mapping[str, Any]) -> Problems:
        if not old.get("immutable"):
            return []
        return [
            f"{name}: Forbidden: field is immutable when `immutable` is set"
            for name in ("data", "binaryData", "immutable")
            if new.get(name) != old.get(name)
        ]


class _Budgets(_SpecAndStatus):
    unconditional_update = False
    counts_generations = True

    def prepare_create(self, new: Plain, moment: Moment) -> None:
        del moment
        new["status"] = dict.fromkeys(
            ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"), 0
        )

    def problems(self, new: Plain) -> Problems:
        spec = new.get("spec") or {}
        found = []
        if "minAvailable" in spec and "maxUnavailable" in spec:
            found.append("spec: minAvailable and maxUnavailable cannot be both set")
        for name in ("minAvailable", "maxUnavailable"):
            value = spec.get(name)
            if isinstance(value, int) and value < 0:
                found.append(f"spec.{name}: must be greater than or equal to 0")
        return found

    def problems_of_status(self, new: Plain, old: Mapping[str, Any]) -> Problems:
        del old
        return [
            f"status.{name}: must be greater than or equal to 0"
            for name, value in (new.get("status") or {}).items()
            if isinstance(value, int) and value < 0
        ]


class _Claims(_SpecAndStatus):
    """ResourceClaims."""

    returns_deleted = True
    status_metadata = False

    def default(self, new: Plain) -> bool:
        for request in (new.get("spec") or {}).get("devices", {}).get("requests", ()):
            if "exactly" in request:
                request["exactly"].setdefault("allocationMode", "ExactCount")
                if request["exactly"]["allocationMode"] == "ExactCount":
                    request["exactly"].setdefault("count", 1)
        return False

    def problems_of_update(self, new: Plain, old: Mapping[str, Any]) -> Problems:
        if new.get("spec") != old.get("spec"):
            return ["spec: Invalid value: field is immutable"]
        return []

    def problems_of_status(self, new: Plain, old: Mapping[str, Any]) -> Problems:
        status, before = new.get("status") or {}, old.get("status") or {}
        found = []
        reserved = status.get("reservedFor") or []
        uids = [each.get("uid") for each in reserved]
        if len(set(uids)) < len(uids):
            found.append("status.reservedFor: Duplicate value")
        if len(reserved) > 256:
            found.append("status.reservedFor: Too many: must have at most 256 items")
        allocation, old_allocation = status.get("allocation"), before.get("allocation")
        if reserved and not allocation:
            found.append(
                "status.reservedFor: Forbidden: may not be specified when `allocated` is not set"
            )
        if old_allocation and allocation and old_allocation != allocation:
            found.append("status.allocation: Invalid value: field is immutable")
        if new["metadata"].get("deletionTimestamp"):
            old_uids = {each.get("uid") for each in before.get("reservedFor") or ()}
            if set(uids) - old_uids:
                found.append("status.reservedFor: Forbidden: new entries while it is being deleted")
        return found


class _Slices(Strategy):
    """ResourceSlices."""

    counts_generations = True
    fields: ClassVar[Mapping[str, str]] = {"spec.nodeName": "", "spec.driver": ""}

    def problems_of_update(self, new: Plain, old: Mapping[str, Any]) -> Problems:
        spec, before = new.get("spec") or {}, old.get("spec") or {}
        found = [
            f"spec.{name}: Invalid value: field is immutable"
            for name in ("driver", "nodeName")
            if spec.get(name) != before.get(name)
        ]
        if (spec.get("pool") or {}).get("name") != (before.get("pool") or {}).get("name"):
            found.append("spec.pool.name: Invalid value: field is immutable")
        return found


class _VolumeClaims(_SpecAndStatus):
    returns_deleted = True
    is_rewritten = True

    def prepare_create(self, new: Plain, moment: Moment) -> None:
        """Add the finalizer of the admission plugin StorageObjectInUseProtection."""
        spec = new.setdefault("spec", {})
        if "storageClassName" not in spec:
            for each in moment.all_of("storageclasses"):
                annotations = each["metadata"].get("annotations") or {}
                if annotations.get("storageclass.kubernetes.io/is-default-class") == "true":
                    spec["storageClassName"] = each["metadata"]["name"]
        _add_finalizer(new, "kubernetes.io/pvc-protection")
        new["status"] = {"phase": "Pending"}

    def default(self, new: Plain) -> bool:
        new["spec"].setdefault("volumeMode", "Filesystem")
        new.setdefault("status", {}).setdefault("phase", "Pending")
        return False

    def problems_of_update(self, new: Plain, old: Mapping[str, Any]) -> Problems:
        """Only an unset volumeName may change."""
        spec, before = new["spec"], old["spec"]
        names = (spec.keys() | before.keys()) - (
            set() if before.get("volumeName") else {"volumeName"}
        )
        if any(spec.get(name) != before.get(name) for name in names):
            return ["spec: Forbidden: spec is immutable after creation except resources.requests"]
        return []


class _Volumes(_SpecAndStatus):
    returns_deleted = True

    def prepare_create(self, new: Plain, moment: Moment) -> None:
        _add_finalizer(new, "kubernetes.io/pv-protection")
        new["status"] = {
            "phase": "Pending",
            "lastPhaseTransitionTime": moment.stamp(moment.now_s),
        }

    def default(self, new: Plain) -> bool:
        spec = new.setdefault("spec", {})
        spec.setdefault("persistentVolumeReclaimPolicy", "Retain")
        spec.setdefault("volumeMode", "Filesystem")
        return False


class _PriorityClasses(Strategy):
    first_generation = 1

    def default(self, new: Plain) -> bool:
        new.setdefault("value", 0)
        new.setdefault("preemptionPolicy", "PreemptLowerPriority")
        return False

    def problems_of_update(self, new: Plain, old: Mapping[str, Any]) -> Problems:
        return [
            f"{name}: Invalid value: field is immutable"
            for name in ("value", "preemptionPolicy")
            if new.get(name) != old.get(name)
        ]


def _add_finalizer(new: Plain, name: str) -> None:
    finalizers = new["metadata"].setdefault("finalizers", [])
    if name not in finalizers:
        finalizers.append(name)


def _kinds() -> tuple[Kind, ...]:
    def kind(path: str, name: str, strategy: Strategy, *more: str, namespaced: bool = True) -> Kind:
        group_version, _, plural = path.rpartition("/")
        group, _, version = group_version.rpartition("/")
        subresources = (_STATUS if strategy.has_status else frozenset()) | set(more)
        return Kind(group, version, plural, name, namespaced, strategy, subresources)

    plain, counted, with_status = Strategy(), _Counted(), _SpecAndStatus()
    storage, devices = "storage.k8s.io/v1", "resource.k8s.io/v1"
    return (
        kind("v1/pods", "Pod", PodStrategy(), "binding", "eviction"),
        kind("v1/nodes", "Node", _Nodes(), namespaced=False),
        kind("v1/namespaces", "Namespace", _Namespaces(), "finalize", namespaced=False),
        kind("v1/configmaps", "ConfigMap", _ConfigMaps()),
        kind("v1/secrets", "Secret", plain),
        kind("v1/serviceaccounts", "ServiceAccount", plain),
        kind("v1/resourcequotas", "ResourceQuota", with_status),
        kind("v1/podtemplates", "PodTemplate", plain),
        kind("v1/persistentvolumeclaims", "PersistentVolumeClaim", _VolumeClaims()),
        kind("v1/persistentvolumes", "PersistentVolume", _Volumes(), namespaced=False),
        kind("coordination.k8s.io/v1/leases", "Lease", _Leases()),
        kind("events.k8s.io/v1/events", "Event", _Events()),
        kind("policy/v1/poddisruptionbudgets", "PodDisruptionBudget", _Budgets()),
        kind("batch/v1/jobs", "Job", counted),
        kind("apps/v1/replicasets", "ReplicaSet", counted),
        kind("apps/v1/statefulsets", "StatefulSet", counted),
        kind("apps/v1/deployments", "Deployment", counted),
        kind(
            "scheduling.k8s.io/v1/priorityclasses",
            "PriorityClass",
            _PriorityClasses(),
            namespaced=False,
        ),
        kind(f"{storage}/storageclasses", "StorageClass", plain, namespaced=False),
        kind(f"{storage}/csinodes", "CSINode", plain, namespaced=False),
        kind(f"{storage}/csidrivers", "CSIDriver", plain, namespaced=False),
        kind(f"{storage}/csistoragecapacities", "CSIStorageCapacity", plain),
        kind(f"{storage}/volumeattachments", "VolumeAttachment", with_status, namespaced=False),
        kind(f"{devices}/resourceclaims", "ResourceClaim", _Claims()),
        kind(f"{devices}/resourceclaimtemplates", "ResourceClaimTemplate", plain),
        kind(f"{devices}/resourceslices", "ResourceSlice", _Slices(), namespaced=False),
        kind(f"{devices}/deviceclasses", "DeviceClass", plain, namespaced=False),
    )


BUILT_IN: Final = _kinds()
