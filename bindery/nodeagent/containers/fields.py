"""Which fields of the pod API are carried out, passed to the runtime, or refused, and why.

A pod with a field that is refused fails with the reason, instead of running without what was asked.
The rule of a field holds for all below it that have no rule of their own. docs/node-agent.md shows
the table; a test compares it with the schema that the API server publishes.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import msgspec

from bindery.kube.client import Client
from bindery.kube.objects.resources import PODS
from bindery.kube.objects.watched import KubeObject
from bindery.nodeagent.containers.podspec import RunPod
from bindery.nodecore.admission.result import Admission

UNSUPPORTED: Final = "UnsupportedPodSpec"
_APP_ARMOR: Final = Path("/sys/module/apparmor/parameters/enabled")


class Fate(StrEnum):
    """What becomes of a field."""

    CARRIED_OUT = "carried out"
    PASSED = "passed to the runtime"
    ELSEWHERE = "carried out by others"
    """By the API server or the scheduler, before the pod comes to the node."""
    REFUSED = "refused"


@dataclass(frozen=True)
class FieldRule:
    """What becomes of a field of the pod's spec.

    Attributes:
        path: names with dots, from the spec; a list stands for its elements. `containers` is also
            `initContainers`.
        note: the reason why the field is refused, or what is special.
        values: the values that are refused, None for all.
    """

    path: str
    fate: Fate
    note: str = ""
    values: tuple[object, ...] | None = None


def _all(fate: Fate, *paths: str, note: str = "") -> tuple[FieldRule, ...]:
    return tuple(FieldRule(path, fate, note) for path in paths)


def _refused(path: str, note: str, *values: object) -> FieldRule:
    return FieldRule(path, Fate.REFUSED, note, values or None)


_IN_TREE: Final = "in a pod it is not mounted; a claim can have a volume of a CSI driver"
_WINDOWS: Final = "the node runs Linux"

RULES: Final = (
    *_all(
        Fate.ELSEWHERE,
        "affinity.podAffinity", "affinity.podAntiAffinity", "automountServiceAccountToken",
        "preemptionPolicy", "schedulerName", "schedulingGates", "schedulingGroup",
        "topologySpreadConstraints", "serviceAccount",
    ),
    *_all(
        Fate.CARRIED_OUT,
        "activeDeadlineSeconds", "affinity", "containers", "enableServiceLinks", "hostAliases",
        "hostname", "hostnameOverride", "imagePullSecrets", "initContainers", "nodeName",
        "nodeSelector", "os", "priority", "priorityClassName", "readinessGates",
        "resources", "restartPolicy", "securityContext.fsGroup", "securityContext.runAsNonRoot",
        "serviceAccountName", "setHostnameAsFQDN", "subdomain", "terminationGracePeriodSeconds",
        "tolerations", "volumes.name", "volumes.configMap", "volumes.downwardAPI",
        "volumes.emptyDir", "volumes.hostPath", "volumes.projected", "volumes.secret",
        "resourceClaims", "containers.resources.claims",
        "volumes.csi", "volumes.persistentVolumeClaim", "volumes.ephemeral",
        "securityContext.fsGroupChangePolicy",
    ),
    FieldRule("volumes.emptyDir.sizeLimit", Fate.CARRIED_OUT, "of medium Memory; disks are not "
              "watched, as eviction is out"),
    FieldRule("hostUsers", Fate.CARRIED_OUT, "only true"),
    _refused("hostUsers", "user namespaces are not set up", False),
    FieldRule("volumes.ephemeral.volumeClaimTemplate", Fate.ELSEWHERE,
              "the controller manager makes the claim"),
    *_all(
        Fate.PASSED,
        "dnsConfig", "dnsPolicy", "hostIPC", "hostNetwork", "hostPID", "overhead",
        "runtimeClassName", "securityContext", "shareProcessNamespace",
        "containers.args", "containers.command", "containers.image", "containers.ports",
        "containers.securityContext", "containers.stdin", "containers.stdinOnce", "containers.tty",
        "containers.workingDir", "containers.lifecycle.stopSignal", "containers.resources",
        "containers.volumeMounts.mountPath", "containers.volumeMounts.mountPropagation",
        "containers.volumeMounts.readOnly", "containers.volumeDevices",
    ),
    *_all(
        Fate.ELSEWHERE,
        "containers.env.valueFrom.fieldRef.apiVersion", "tolerations.tolerationSeconds",
        "volumes.downwardAPI.items.fieldRef.apiVersion",
        "volumes.projected.sources.downwardAPI.items.fieldRef.apiVersion",
    ),
    FieldRule("containers.resizePolicy", Fate.ELSEWHERE, "the API server sets the default, which "
              "asks for nothing; a later change of resources is reported by an event"),
    _refused("containers.resizePolicy.restartPolicy", "resources stay as they are at the start",
             "RestartContainer"),
    FieldRule("ephemeralContainers", Fate.REFUSED, "ephemeral containers are not started"),
    _refused("resources.claims", "claims are used by containers"),
    _refused("securityContext.windowsOptions", _WINDOWS),
    _refused("securityContext.seLinuxChangePolicy", "volumes are not relabelled"),
    _refused("containers.securityContext.windowsOptions", _WINDOWS),
    _refused("containers.env.valueFrom.fileKeyRef", "variables are not read from files"),
    _refused("containers.volumeMounts.bindMountOptions", "mounts have no further options"),
    FieldRule("containers.volumeMounts.recursiveReadOnly", Fate.CARRIED_OUT, "as Disabled"),
    _refused("containers.volumeMounts.recursiveReadOnly", "mounts below a mount stay writable",
             "Enabled"),
    _refused("containers.restartPolicyRules.action", "containers are restarted one by one",
             "RestartAllContainers"),
    FieldRule("containers.restartPolicyRules.action", Fate.CARRIED_OUT, "only Restart"),
    _refused("containers.lifecycle.postStart.tcpSocket", "it has no effect in Kubernetes either"),
    _refused("containers.lifecycle.preStop.tcpSocket", "it has no effect in Kubernetes either"),
    _refused("volumes.projected.sources.clusterTrustBundle", "trust bundles are not read"),
    _refused("volumes.projected.sources.podCertificate", "certificates are not requested"),
    _refused("volumes.image", "images are not mounted as volumes"),
    _refused("volumes.emptyDir.stickyBit", "directories have no sticky bit"),
    *(
        _refused(f"volumes.{kind}", _IN_TREE)
        for kind in (
            "awsElasticBlockStore", "azureDisk", "azureFile", "cephfs", "cinder", "fc",
            "flexVolume", "flocker", "gcePersistentDisk", "gitRepo", "glusterfs", "iscsi", "nfs",
            "photonPersistentDisk", "portworxVolume", "quobyte", "rbd", "scaleIO", "storageos",
            "vsphereVolume",
        )
    ),
)  # fmt: skip
"""The rules; of a field with two, the one without `values` is about all other values."""

_REFUSING: Final = tuple(rule for rule in RULES if rule.fate is Fate.REFUSED)
_INIT: Final = "initContainers"
_APPS: Final = "containers"


def refusals(spec: Mapping[str, Any]) -> Iterator[str]:
    """Yield why each field of a pod's spec is refused, the path first."""
    for rule in _REFUSING:
        head, _, below = rule.path.partition(".")
        for start in (head, _INIT) if head == _APPS else (head,):
            path = f"{start}.{below}" if below else start
            for value in _values(spec, path.split(".")):
                if rule.values is None or value in rule.values:
                    yield f"{path}: {rule.note}"
                    break


def _values(value: Any, names: list[str]) -> Iterator[Any]:
    """Yield what is at a path, through lists; nothing where it is not set, or empty."""
    if isinstance(value, list):
        for each in value:
            yield from _values(each, names)
    elif not names:
        yield value
    elif isinstance(value, dict) and value.get(names[0]) not in (None, [], {}, ""):
        yield from _values(value[names[0]], names[1:])


class WholePod(KubeObject, frozen=True, rename="camel", kw_only=True, gc=False):
    """A pod with its spec as it was sent."""

    spec: dict[str, Any] = msgspec.field(default_factory=dict)


_WHOLE_PODS: Final = PODS.decoded_as(WholePod)

Refusal = Callable[[RunPod], Awaitable[Admission | None]]


def refusal_by(client: Client) -> Refusal:
    """Return what reads a pod with all its fields, and returns why it is refused, or None.

    It raises KubeError if the pod cannot be read.
    """

    async def refusal(pod: RunPod) -> Admission | None:
        meta = pod.metadata
        # A node may list its pods at once; to get one is allowed a moment after it was bound.
        selector = f"metadata.name={meta.name},spec.nodeName={pod.spec.node_name}"
        found = await client.list(_WHOLE_PODS, namespace=meta.namespace, field_selector=selector)
        if not found:
            return None  # the watch will deliver the deletion
        (whole,) = found
        problems = list(refusals(whole.spec))
        if problems:
            text = "this agent does not carry out " + "; ".join(problems)
            return Admission(admit=False, reason=UNSUPPORTED, message=text)
        if _wants_app_armor(pod) and not _has_app_armor():
            text = "Cannot enforce AppArmor: AppArmor is not enabled on the host"
            return Admission(admit=False, reason="AppArmor", message=text)
        return None

    return refusal


def _wants_app_armor(pod: RunPod) -> bool:
    whole = pod.spec.security_context
    profiles = [whole.app_armor_profile if whole is not None else None]
    profiles += [
        one.security_context.app_armor_profile
        for one in pod.spec.all_containers
        if one.security_context is not None
    ]
    return any(one is not None and one.type != "Unconfined" for one in profiles)


def _has_app_armor() -> bool:
    try:
        return _APP_ARMOR.read_text().strip() == "Y"
    except OSError:
        return False
