"""The status of a pod as the API has it, from what was decided. Pure.

The patches are strategic merge patches with the pod's UID, as those of hollow nodes: conditions of
other writers stay.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from bindery.api.times import timestamp
from bindery.nodeagent.containers import statusresources
from bindery.nodeagent.containers.podspec import Mounted, RunContainer, RunPod
from bindery.nodeagent.containers.statusresources import DeviceHealths
from bindery.nodeagent.pod_status import Patch
from bindery.nodecore.podsync.facts import RuntimeUser
from bindery.nodecore.podsync.phase import PodCondition
from bindery.nodecore.podsync.statuses import (
    ContainerReport,
    Reports,
    Running,
    State,
    Terminated,
    Waiting,
)

_ORDER: Final = "$setElementOrder/conditions"


@dataclass(frozen=True)
class PodReport:
    """What is written about a pod.

    Attributes:
        reason: why it was ended from outside, as `message`.
        devices: container -> the health of its devices of plugins.
    """

    phase: str
    apps: Reports
    inits: Reports
    conditions: Sequence[PodCondition]
    host_addresses: Sequence[str]
    pod_addresses: Sequence[str]
    started_s: float
    reason: str = ""
    message: str = ""
    devices: Mapping[str, DeviceHealths] = field(default_factory=dict)


@dataclass
class Transitions:
    """Since when the conditions of a pod have their status: condition -> (status, time)."""

    known: dict[str, tuple[str, str]] = field(default_factory=dict)

    @classmethod
    def of(cls, pod: RunPod) -> "Transitions":
        """Return the transitions that the status of `pod` has."""
        return cls(
            {
                one.type: (one.status, one.last_transition_time)
                for one in pod.status.conditions or ()
                if one.last_transition_time is not None
            }
        )

    def since(self, condition: PodCondition, now_s: float) -> str:
        """Return since when the condition has its status, and remember it."""
        known = self.known.get(condition.type)
        if known is None or known[0] != condition.status:
            known = self.known[condition.type] = (condition.status, timestamp(now_s))
        return known[1]


def patch(pod: RunPod, report: PodReport, transitions: Transitions, now_s: float) -> Patch:
    """Return the patch that makes the status of `pod` as in `report`."""
    own = {one.type for one in report.conditions}
    others = [one.type for one in pod.status.conditions or () if one.type not in own]
    generation = pod.metadata.generation
    status: dict[str, Any] = {
        "phase": report.phase,
        "observedGeneration": generation,
        "reason": report.reason or None,
        "message": report.message or None,
        "startTime": timestamp(report.started_s),
        "conditions": [
            {
                "type": one.type,
                "status": one.status,
                "reason": one.reason or None,
                "message": one.message or None,
                "observedGeneration": generation,
                "lastTransitionTime": transitions.since(one, now_s),
                "lastProbeTime": None,
            }
            for one in report.conditions
        ],
        _ORDER: [{"type": kind} for kind in (*others, *(one.type for one in report.conditions))],
        **_addresses("host", report.host_addresses),
        **_addresses("pod", report.pod_addresses),
        "containerStatuses": [
            {**one, **statusresources.of_devices(report.devices.get(one["name"], {}))}
            for one in _statuses(report.apps, pod.spec.containers)
        ],
        **statusresources.of_pod(pod),
    }
    if pod.spec.init_containers:
        status["initContainerStatuses"] = _statuses(report.inits, pod.spec.init_containers)
    return {"metadata": {"uid": pod.metadata.uid}, "status": status}


def _addresses(kind: str, addresses: Sequence[str]) -> dict[str, Any]:
    if not addresses:
        return {}
    # A new sandbox has another address; without this, the old one would stay beside it.
    replaced = [{"$patch": "replace"}, *({"ip": one} for one in addresses)]
    return {f"{kind}IP": addresses[0], f"{kind}IPs": replaced}


def _statuses(
    reports: Sequence[ContainerReport], containers: Sequence[RunContainer]
) -> list[Mapping[str, Any]]:
    specs = {one.name: one for one in containers}
    return [_status(one, specs[one.name]) for one in reports]


def _status(report: ContainerReport, container: RunContainer) -> Mapping[str, Any]:
    found: dict[str, Any] = {
        "name": report.name,
        "state": _state(report.state),
        "lastState": {} if report.last is None else _state(report.last),
        "ready": report.ready,
        "started": bool(report.started),
        "restartCount": report.restart_count,
        "image": report.image,
        "imageID": report.image_ref,
    }
    if report.container_id:
        found["containerID"] = report.container_id
        limits = report.limits if isinstance(report.state, Running) else None
        found |= statusresources.of_container(container.resources, limits)
        if report.user is not None:
            found["user"] = {"linux": _user(report.user)}
    if container.volume_mounts:
        found["volumeMounts"] = [_mount(one) for one in container.volume_mounts]
    return found


def _user(user: RuntimeUser) -> Mapping[str, Any]:
    return {"uid": user.uid, "gid": user.gid, "supplementalGroups": list(user.groups)}


def _mount(mount: Mounted) -> Mapping[str, Any]:
    found: dict[str, Any] = {"name": mount.name, "mountPath": mount.mount_path}
    if mount.read_only:
        found |= {"readOnly": True, "recursiveReadOnly": "Disabled"}
    return found


def _state(state: State) -> Mapping[str, Any]:
    if isinstance(state, Waiting):
        return {"waiting": {"reason": state.reason, "message": state.message}}
    if isinstance(state, Running):
        return {"running": {"startedAt": timestamp(state.started_s)}}
    return {"terminated": _terminated(state)}


def _terminated(state: Terminated) -> Mapping[str, Any]:
    found: dict[str, Any] = {
        "exitCode": state.exit_code,
        "reason": state.reason,
        "message": state.message,
        "startedAt": timestamp(state.started_s) if state.started_s else None,
        "finishedAt": timestamp(state.finished_s) if state.finished_s else None,
    }
    if state.container_id:
        found["containerID"] = state.container_id
    return found
