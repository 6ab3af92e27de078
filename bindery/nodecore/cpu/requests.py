"""How many CPUs containers and pods are to have for themselves."""

from bindery.nodecore.errors import EmptyPodSharedPoolError
from bindery.nodecore.features import Features
from bindery.nodecore.pods import CPU, Container, Pod, QosClass, long_running_total

_MILLI = 1000


def exclusive_cpus(pod: Pod, container: Container, features: Features) -> int:
    """Return how many CPUs the container is to have for itself, 0 for none.

    The pod must be Guaranteed and the request a whole number. In a pod with pod-level resources,
    the container's own requests must equal its limits.
    """
    if pod.qos != QosClass.GUARANTEED:
        return 0
    if (
        features.pod_level_resource_managers
        and pod.has_pod_level_resources
        and not container.is_guaranteed
    ):
        return 0
    return _whole(container.requests.get(CPU, 0))


def exclusive_cpus_of_pod(pod: Pod, features: Features) -> int:
    """Return how many CPUs the pod needs for itself at one time, 0 for none."""
    if features.pod_level_resource_managers and pod.has_pod_level_resources:
        if pod.qos != QosClass.GUARANTEED:
            return 0
        return _whole((pod.requests or {}).get(CPU, 0))
    return long_running_total(pod, lambda one: {CPU: exclusive_cpus(pod, one, features)}, CPU)


def check_shared_pool(pod: Pod, features: Features) -> None:
    """Raise EmptyPodSharedPoolError if containers without own CPUs have none of the pod's."""
    total = exclusive_cpus_of_pod(pod, features)
    taken = 0
    shares = False
    for container in pod.init_containers:
        cpus = exclusive_cpus(pod, container, features)
        if container.is_sidecar:
            shares = shares or cpus == 0
            taken += cpus
        elif cpus == 0 and taken >= total:
            raise EmptyPodSharedPoolError(
                "pod rejected, pod has shared init containers but no cpus available for them"
            )
    for container in pod.containers:
        cpus = exclusive_cpus(pod, container, features)
        shares = shares or cpus == 0
        taken += cpus
    if shares and taken >= total:
        raise EmptyPodSharedPoolError(
            "pod rejected, sum of exclusive container cpu requests equals pod budget, leaving no "
            "cpus for shared containers"
        )


def _whole(milli: int) -> int:
    return 0 if milli % _MILLI else milli // _MILLI
