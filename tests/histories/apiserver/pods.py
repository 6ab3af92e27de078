"""The rules of pods: defaults, allowed changes, binding, grace periods."""

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from bindery.api.quantity import QuantityError, nano
from tests.histories.apiserver.definitions import restore
from tests.histories.apiserver.kinds import Moment, Plain, Problems, Strategy, words
from tests.histories.apiserver.refusals import NotModelledError, Refusal, forbidden

_SPEC: Final = words(
    """
    activeDeadlineSeconds affinity automountServiceAccountToken containers dnsPolicy
    enableServiceLinks hostNetwork initContainers nodeName nodeSelector overhead
    preemptionPolicy priority priorityClassName resourceClaims restartPolicy
    runtimeClassName schedulerName schedulingGates schedulingGroup securityContext
    serviceAccount serviceAccountName terminationGracePeriodSeconds tolerations
    topologySpreadConstraints volumes hostname subdomain
    """
)
_STATUS: Final = words(
    """
    conditions containerStatuses extendedResourceClaimStatus hostIP hostIPs
    initContainerStatuses message nominatedNodeName observedGeneration phase podIP podIPs
    qosClass reason resourceClaimStatuses startTime
    """
)
_CONTAINER: Final = words(
    """
    args command env envFrom image imagePullPolicy name ports resources restartPolicy
    securityContext terminationMessagePath terminationMessagePolicy volumeMounts
    """
)
_COUNTED: Final = ("cpu", "memory")
_SYSTEM_PRIORITIES: Final = {
    "system-cluster-critical": 2_000_000_000,
    "system-node-critical": 2_000_001_000,
}
_TOLERATED: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


class PodStrategy(Strategy):
    """The rules of pods."""

    returns_deleted = True
    is_graceful = True
    counts_generations = True
    has_status = True
    fields: ClassVar[Mapping[str, str]] = {
        "spec.nodeName": "",
        "spec.restartPolicy": "",
        "spec.schedulerName": "",
        "spec.serviceAccountName": "",
        "spec.hostNetwork": "false",
        "status.phase": "",
        "status.podIP": "",
        "status.nominatedNodeName": "",
    }
    merge_keys: ClassVar[Mapping[str, str]] = {
        "metadata.finalizers": "",
        "metadata.ownerReferences": "uid",
        "spec.containers": "name",
        "spec.initContainers": "name",
        "spec.volumes": "name",
        "spec.schedulingGates": "name",
        "spec.resourceClaims": "name",
        "spec.topologySpreadConstraints": "topologyKey",
        "status.conditions": "type",
        "status.podIPs": "ip",
        "status.hostIPs": "ip",
        "status.resourceClaimStatuses": "name",
    }

    def prepare_create(self, new: Plain, moment: Moment) -> None:
        """Set what admission and the registry set on a new pod."""
        spec = new.get("spec")
        if not isinstance(spec, dict):
            raise NotModelledError("a pod without spec")
        _admit_priority(new, spec, moment)
        _admit_tolerations(spec)
        account = spec.setdefault("serviceAccountName", "default")
        spec["serviceAccount"] = account
        status: Plain = {"phase": "Pending", "qosClass": _quality(spec)}
        if spec.get("schedulingGates"):
            status["conditions"] = [
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "reason": "SchedulingGated",
                    "message": "Scheduling is blocked due to non-empty scheduling gates",
                    "lastTransitionTime": moment.stamp(moment.now_s),
                }
            ]
        new["status"] = status

    def default(self, new: Plain) -> bool:
        """Set the defaults of API version v1."""
        spec, status = new["spec"], new.get("status") or {}
        if spec.keys() - _SPEC or status.keys() - _STATUS:
            unknown = sorted((spec.keys() - _SPEC) | (status.keys() - _STATUS))
            raise NotModelledError(f"fields of pods: {unknown}")
        spec.setdefault("restartPolicy", "Always")
        if spec.get("terminationGracePeriodSeconds") is None:
            spec["terminationGracePeriodSeconds"] = 30
        spec.setdefault("dnsPolicy", "ClusterFirst")
        spec.setdefault("securityContext", {})
        spec.setdefault("schedulerName", "default-scheduler")
        spec.setdefault("enableServiceLinks", True)
        for container in (*spec.get("containers", ()), *spec.get("initContainers", ())):
            _default_container(container)
        return False

    def prepare_update(self, new: Plain, old: Mapping[str, Any]) -> None:
        """Keep the status, but for what follows from the removal of gates."""
        restore(new, old, "status")
        if isinstance(new.get("spec"), dict):
            _admit_tolerations(new["spec"])

    def prepare_status(self, new: Plain, old: Mapping[str, Any]) -> None:
        """Keep the spec and the owners."""
        new["spec"] = old["spec"]
        restore(new["metadata"], old["metadata"], "ownerReferences")
        restore(new["metadata"], old["metadata"], "deletionTimestamp")

    def problems(self, new: Plain) -> Problems:
        """Validate the parts of a pod that the model knows."""
        spec = new["spec"]
        containers = spec.get("containers") or []
        found = [] if containers else ["spec.containers: Required value"]
        names = [each.get("name", "") for each in containers]
        if len(set(names)) < len(names):
            found.append("spec.containers: Duplicate value")
        for each in containers:
            found += [
                f"spec.containers.{name}: Required value"
                for name in ("name", "image")
                if not each.get(name)
            ]
            found += _problems_of_amounts(each.get("resources") or {})
        if spec["restartPolicy"] not in ("Always", "OnFailure", "Never"):
            found.append("spec.restartPolicy: Unsupported value")
        if spec["terminationGracePeriodSeconds"] < 0:
            found.append("spec.terminationGracePeriodSeconds: must be greater than or equal to 0")
        if spec.get("nodeName") and spec.get("schedulingGates") and "uid" not in new["metadata"]:
            found.append(
                "spec.nodeName: Forbidden: cannot be set until all schedulingGates are cleared"
            )
        return found

    def problems_of_update(self, new: Plain, old: Mapping[str, Any]) -> Problems:
        """Return which changes of the spec are not allowed."""
        spec, before = new["spec"], old["spec"]
        gates = [each["name"] for each in spec.get("schedulingGates") or ()]
        old_gates = [each["name"] for each in before.get("schedulingGates") or ()]
        found = []
        if set(gates) - set(old_gates):
            found.append("spec.schedulingGates: Forbidden: only deletion is allowed")
        tolerations = spec.get("tolerations") or []
        if any(each not in tolerations for each in before.get("tolerations") or ()):
            found.append("spec.tolerations: Forbidden: existing toleration can not be modified")
        free = {"schedulingGates", "tolerations", "activeDeadlineSeconds"}
        if old_gates:
            selector = spec.get("nodeSelector") or {}
            if any(selector.get(k) != v for k, v in (before.get("nodeSelector") or {}).items()):
                found.append("spec.nodeSelector: Invalid value: only additions are allowed")
            free.add("nodeSelector")
        deadline, old_deadline = (each.get("activeDeadlineSeconds") for each in (spec, before))
        if old_deadline is not None and (deadline is None or deadline > old_deadline):
            found.append("spec.activeDeadlineSeconds: must be less than or equal to previous value")
        if _without(spec, free) != _without(before, free):
            found.append("spec: Forbidden: pod updates may not change fields other than …")
        return found

    def problems_of_status(self, new: Plain, old: Mapping[str, Any]) -> Problems:
        """Validate a change of the status."""
        status = new.get("status") or {}
        found = []
        if (quality := old["status"].get("qosClass")) and status.get("qosClass") != quality:
            found.append("status.qosClass: Invalid value: field is immutable")
        node = status.get("nominatedNodeName") or ""
        if node != node.lower() or "_" in node:
            found.append("status.nominatedNodeName: Invalid value")
        if node and new["spec"].get("nodeName") and node != old["status"].get("nominatedNodeName"):
            found.append("status.nominatedNodeName: Forbidden: the pod is bound already")
        return found


def _admit_tolerations(spec: Plain) -> None:
    """Add the tolerations of the admission plugin DefaultTolerationSeconds."""
    tolerations = spec.get("tolerations") or []
    for key in _TOLERATED:
        if not any(_tolerates(each, key) for each in tolerations):
            toleration = {"key": key, "operator": "Exists", "effect": "NoExecute"}
            tolerations.append({**toleration, "tolerationSeconds": 300})
    spec["tolerations"] = tolerations


def _tolerates(toleration: Mapping[str, Any], key: str) -> bool:
    return toleration.get("key", "") in ("", key) and toleration.get("effect", "") in (
        "",
        "NoExecute",
    )


def _admit_priority(new: Plain, spec: Plain, moment: Moment) -> None:
    name = spec.get("priorityClassName") or ""
    value, policy = 0, "PreemptLowerPriority"
    if name in _SYSTEM_PRIORITIES:
        value = _SYSTEM_PRIORITIES[name]
    elif name:
        found = moment.find("priorityclasses", "", name)
        if found is None:
            text = f"no PriorityClass with name {name} was found"
            raise forbidden("pods", new["metadata"].get("name", ""), text)
        value, policy = found.get("value", 0), found.get("preemptionPolicy", policy)
    else:
        for each in moment.all_of("priorityclasses"):
            if each.get("globalDefault"):
                value = each.get("value", 0)
                spec["priorityClassName"] = each["metadata"]["name"]
                policy = each.get("preemptionPolicy", policy)
    given = spec.get("priority")
    if given is not None and given != value:
        text = "the integer value of priority must not be provided in pod spec; priority admission"
        raise forbidden("pods", new["metadata"].get("name", ""), text)
    spec["priority"] = value
    spec.setdefault("preemptionPolicy", policy)


def _default_container(container: Plain) -> None:
    unknown = container.keys() - _CONTAINER
    if unknown:
        raise NotModelledError(f"fields of containers: {sorted(unknown)}")
    image = container.get("image", "")
    tag = image.rpartition("/")[2].partition(":")[2]
    pull = "Always" if tag in ("", "latest") and "@" not in image else "IfNotPresent"
    container.setdefault("imagePullPolicy", pull)
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    resources = container.setdefault("resources", {})
    limits = resources.get("limits")
    if limits:
        resources["requests"] = {**limits, **(resources.get("requests") or {})}


def _quality(spec: Mapping[str, Any]) -> str:
    """Return the class of quality of service."""
    containers = [*spec.get("containers", ()), *spec.get("initContainers", ())]
    is_any, is_all = False, True
    for container in containers:
        resources = container.get("resources") or {}
        limits = resources.get("limits") or {}
        requests = {**limits, **(resources.get("requests") or {})}
        for name in _COUNTED:
            is_any |= bool(_amount(requests.get(name)) or _amount(limits.get(name)))
            is_all &= bool(_amount(limits.get(name))) and _amount(requests[name]) == _amount(
                limits[name]
            )
    if not is_any:
        return "BestEffort"
    return "Guaranteed" if is_all else "Burstable"


def _amount(text: Any) -> int:
    try:
        return nano(text) if text is not None else 0
    except QuantityError:
        return 0


def _problems_of_amounts(resources: Mapping[str, Any]) -> Problems:
    limits, found = resources.get("limits") or {}, []
    for name, text in (resources.get("requests") or {}).items():
        if _amount(text) < 0:
            found.append(f"spec.containers.resources.requests.{name}: must be at least 0")
        elif name in limits and _amount(text) > _amount(limits[name]):
            found.append(f"spec.containers.resources.requests.{name}: must be at most the limit")
        elif "/" in name and "kubernetes.io/" not in name and limits.get(name) != text:
            found.append(f"spec.containers.resources.requests.{name}: must be equal to the limit")
    return found


def _without(spec: Mapping[str, Any], free: set[str]) -> Plain:
    rest = {name: value for name, value in spec.items() if name not in free}
    for name in ("containers", "initContainers"):
        if name in rest:
            rest[name] = [{**each, "image": ""} for each in rest[name]]
    return rest


def bind(pod: Plain, body: Mapping[str, Any], name: str, stamp: str) -> None:
    """Bind `pod` by a `Binding`, or refuse it; the caller has checked UID and version."""
    meta, spec = pod["metadata"], pod["spec"]
    problem = ""
    if meta.get("deletionTimestamp"):
        problem = f"pod {name} is being deleted, cannot be assigned to a host"
    elif spec.get("nodeName"):
        problem = f'pod {name} is already assigned to node "{spec["nodeName"]}"'
    elif spec.get("schedulingGates"):
        problem = f"pod {name} has non-empty .spec.schedulingGates"
    if problem:
        text = f'Operation cannot be fulfilled on pods/binding "{name}": {problem}'
        raise Refusal(409, "Conflict", text)
    spec["nodeName"] = body["target"]["name"]
    pod["status"].pop("nominatedNodeName", None)
    for name_ in ("annotations", "labels"):
        given = body["metadata"].get(name_)
        if given:
            meta[name_] = {**(meta.get(name_) or {}), **given}
    condition = {"type": "PodScheduled", "status": "True"}
    set_condition(pod, condition, stamp)


def set_condition(pod: Plain, condition: Mapping[str, Any], stamp: str) -> bool:
    """Set a condition of a pod; return whether it has changed."""
    conditions = pod["status"].setdefault("conditions", [])
    found = next((each for each in conditions if each["type"] == condition["type"]), None)
    new = {"lastTransitionTime": stamp, **condition}
    if found is None:
        conditions.append(new)
        return True
    if found.get("status") == new["status"]:
        new["lastTransitionTime"] = found.get("lastTransitionTime")
    is_changed = bool(found != new)
    found.clear()
    found.update(new)
    return is_changed


def grace_s(pod: Mapping[str, Any], given: int | None) -> int:
    """Return the grace period with which `pod` is deleted."""
    spec = pod["spec"]
    period: int = spec["terminationGracePeriodSeconds"] if given is None else given
    if not spec.get("nodeName") or pod["status"].get("phase") in ("Failed", "Succeeded"):
        return 0
    return 1 if period < 0 else period
