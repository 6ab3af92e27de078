"""Labels and annotations by which a runtime's sandboxes and containers are known again.

Source: the kubelet's `kuberuntime/labels.go`, Kubernetes 1.36. They hold what is needed to end a
container of a pod that is no longer in the API.
"""

from typing import Final

import msgspec

from bindery.nodeagent.containers.podspec import Hook, RunContainer, RunPod
from bindery.nodecore.checkpoints.gotext import fnv1a

POD_NAME: Final = "io.kubernetes.pod.name"
POD_NAMESPACE: Final = "io.kubernetes.pod.namespace"
POD_UID: Final = "io.kubernetes.pod.uid"
CONTAINER: Final = "io.kubernetes.container.name"

HASH: Final = "io.kubernetes.container.hash"
RESTART_COUNT: Final = "io.kubernetes.container.restartCount"
MESSAGE_PATH: Final = "io.kubernetes.container.terminationMessagePath"
MESSAGE_POLICY: Final = "io.kubernetes.container.terminationMessagePolicy"
PRE_STOP: Final = "io.kubernetes.container.preStopHandler"
DELETION_GRACE: Final = "io.kubernetes.pod.deletionGracePeriod"
GRACE: Final = "io.kubernetes.pod.terminationGracePeriod"


def of_pod(pod: RunPod) -> dict[str, str]:
    """Return the labels of the sandboxes of `pod`."""
    meta = pod.metadata
    own = {POD_NAME: meta.name, POD_NAMESPACE: meta.namespace, POD_UID: meta.uid}
    return meta.labels | own


def of_container(pod: RunPod, container: RunContainer) -> dict[str, str]:
    """Return the labels of a container."""
    meta = pod.metadata
    return {
        POD_NAME: meta.name,
        POD_NAMESPACE: meta.namespace,
        POD_UID: meta.uid,
        CONTAINER: container.name,
    }


def annotations(pod: RunPod, container: RunContainer, restart_count: int) -> dict[str, str]:
    """Return the annotations of a container."""
    found = {
        HASH: definition(container),
        RESTART_COUNT: str(restart_count),
        MESSAGE_PATH: container.termination_message_path,
        MESSAGE_POLICY: container.termination_message_policy,
    }
    grace_s = pod.spec.termination_grace_period_seconds
    if grace_s is not None:
        found[GRACE] = str(grace_s)
    deletion_s = pod.metadata.deletion_grace_period_seconds
    if deletion_s is not None:
        found[DELETION_GRACE] = str(deletion_s)
    hooks = container.lifecycle
    if hooks is not None and hooks.pre_stop is not None:
        found[PRE_STOP] = msgspec.json.encode(hooks.pre_stop).decode()
    return found


def definition(container: RunContainer) -> str:
    """Return a hash of what cannot change in a running container: its name and image."""
    text = msgspec.json.encode({"image": container.image, "name": container.name}).decode()
    return f"{fnv1a(text):x}"


def pre_stop(found: dict[str, str]) -> Hook | None:
    """Return the hook of a container from its annotations; None without a readable one."""
    try:
        return msgspec.json.decode(found[PRE_STOP], type=Hook)
    except (KeyError, msgspec.DecodeError):
        return None
