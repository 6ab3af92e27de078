"""The status patches of pods on hollow nodes, in the form that the kubelet writes them.

Used by `pods`. Each patch is a strategic merge patch with the pod's UID. Conditions and addresses
from other writers are kept, and a pod re-created under the same name is not changed.
"""

from collections.abc import Mapping
from typing import Any, Final

from bindery.api.times import timestamp
from bindery.nodeagent.admission import PREEMPTING
from bindery.nodeagent.held import ANNOTATION as HELD_ANNOTATION
from bindery.nodeagent.lifecycle import EXIT_KILLED
from bindery.nodeagent.pod_objects import AgentPod, NodeContainer
from bindery.nodecore.admission.result import Admission

Patch = Mapping[str, Any]

_COMPLETED: Final = "PodCompleted"
_FAILED: Final = "PodFailed"
_GATED: Final = "ReadinessGatesNotReady"
_ORDER: Final = "$setElementOrder/conditions"
"""Directive of strategic merge patches: the order of the list after the merge."""


def running(
    pod: AgentPod, host_address: str, pod_address: str, now_s: float, *, held: str | None = None
) -> Patch:
    """Return the patch that makes `pod` Running from `now_s` (seconds since the epoch).

    `held` is the record of the resources of its containers, written by the same patch.
    """
    started = pod.status.start_time or timestamp(now_s)
    state = {"running": {"startedAt": started}}
    status: dict[str, Any] = {
        "phase": "Running",
        "hostIP": host_address,
        "hostIPs": [{"ip": host_address}],
        "podIP": pod_address,
        "podIPs": [{"ip": pod_address}],
        "startTime": started,
        **_conditions(pod, now_s),
    }
    patch = _patch(pod, status | _containers(pod, state, started))
    return patch if held is None else {**patch, **recorded(pod, held)}


def recorded(pod: AgentPod, held: str) -> Patch:
    """Return the patch that writes `held`, the record of the resources of `pod`."""
    return {"metadata": {"uid": pod.metadata.uid, "annotations": {HELD_ANNOTATION: held}}}


def refused(pod: AgentPod, answer: Admission, now_s: float) -> Patch:
    """Return the patch that fails `pod` as a kubelet fails a pod that it does not admit.

    A pod that already ran, before a restart or until a critical pod came, counts as killed.
    """
    status: dict[str, Any] = {
        "phase": "Failed",
        "reason": answer.reason,
        "message": f"Pod was rejected: {answer.message}",
        "startTime": pod.status.start_time or timestamp(now_s),
    }
    if pod.status.phase == "Running":
        status = {**ended(pod, EXIT_KILLED, now_s)["status"], **status}
    if answer.reason == PREEMPTING:
        status["message"] = answer.message
        disrupted = _disrupted(now_s)
        status["conditions"] = [disrupted, *status.get("conditions", ())]
        order = [each for each in status.get(_ORDER, ()) if each["type"] != disrupted["type"]]
        status[_ORDER] = [{"type": disrupted["type"]}, *order]
    return _patch(pod, status)


def _disrupted(now_s: float) -> dict[str, str]:
    return {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "TerminationByKubelet",
        "message": "Pod was preempted by Kubelet to accommodate a critical pod.",
        "lastTransitionTime": timestamp(now_s),
    }


def ended(pod: AgentPod, exit_code: int, now_s: float) -> Patch:
    """Return the patch that ends `pod`: Succeeded if its containers exit with 0, else Failed."""
    succeeded = exit_code == 0
    started = pod.status.start_time or timestamp(now_s)
    state = _terminated(exit_code, started, timestamp(now_s))
    status: dict[str, Any] = {
        "phase": "Succeeded" if succeeded else "Failed",
        **_conditions(pod, now_s, _COMPLETED if succeeded else _FAILED),
    }
    return _patch(pod, status | _containers(pod, state, started))


def turned(pod: AgentPod, now_s: float) -> Patch:
    """Return the patch that sets the readiness of `pod` from its readiness gates."""
    return _patch(pod, _conditions(pod, now_s))


def expired(pod: AgentPod, now_s: float) -> Patch:
    """Return the patch that ends `pod` at its `activeDeadlineSeconds`."""
    status = {
        **ended(pod, EXIT_KILLED, now_s)["status"],
        "reason": "DeadlineExceeded",
        "message": "Pod was active on the node longer than the specified deadline",
    }
    return _patch(pod, status)


def _patch(pod: AgentPod, status: Mapping[str, Any]) -> Patch:
    return {"metadata": {"uid": pod.metadata.uid}, "status": status}


def _conditions(pod: AgentPod, now_s: float, ended: str = "") -> dict[str, Any]:
    """Return the changed conditions, and the order of all conditions as a kubelet (1.36) writes it.

    Conditions from other writers come first. `ended` is the reason why the containers are not
    ready; empty while they run. A condition with an unchanged status keeps its transition time, and
    so do the scheduler's conditions.
    """
    ready = "False" if ended else "True"
    gated = not ended and not pod.passes_gates
    wanted = {
        "PodReadyToStartContainers": (ready, ""),
        "Initialized": ("True", _COMPLETED if ended == _COMPLETED else ""),
        "Ready": ("False", _GATED) if gated else (ready, ended),
        "ContainersReady": (ready, ended),
        "PodScheduled": ("True", ""),
    }
    present = {condition.type: condition for condition in pod.status.conditions or ()}
    changed = []
    for kind, (status, reason) in wanted.items():
        known = present.get(kind)
        stays = known is not None and known.status == status
        if known is None or not stays or (reason and known.reason != reason):
            since = known.last_transition_time if known is not None and stays else None
            at = since or timestamp(now_s)
            changed.append(
                {"type": kind, "status": status, "reason": reason, "lastTransitionTime": at}
            )
    order = [*(kind for kind in present if kind not in wanted), *wanted]
    return {"conditions": changed, _ORDER: [{"type": kind} for kind in order]}


def _containers(pod: AgentPod, state: Mapping[str, Any], started: str) -> dict[str, Any]:
    """Return the statuses of all containers: init containers have ended, others are in `state`."""
    statuses: dict[str, Any] = {
        "containerStatuses": [
            _container(pod, container, state) for container in pod.spec.containers
        ]
    }
    if pod.spec.init_containers:
        done = _terminated(0, started, started)
        statuses["initContainerStatuses"] = [
            _container(pod, container, state if container.restart_policy == "Always" else done)
            for container in pod.spec.init_containers
        ]
    return statuses


def _container(pod: AgentPod, container: NodeContainer, state: Mapping[str, Any]) -> dict[str, Any]:
    is_running = "running" in state
    # An init container that ended with exit code 0 counts as ready, as in the kubelet.
    is_init = container in (pod.spec.init_containers or ())
    return {
        "name": container.name,
        "image": container.image,
        "imageID": "",
        "containerID": f"hollow://{pod.metadata.uid}/{container.name}",
        "ready": is_running or (is_init and state["terminated"]["exitCode"] == 0),
        "started": is_running,
        "restartCount": 0,
        "state": state,
    }


def _terminated(exit_code: int, started: str, finished: str) -> dict[str, Any]:
    return {
        "terminated": {
            "exitCode": exit_code,
            "reason": "Error" if exit_code else "Completed",
            "startedAt": started,
            "finishedAt": finished,
        }
    }
