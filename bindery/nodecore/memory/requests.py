"""How much memory containers and pods are to have on NUMA nodes of their own."""

from bindery.nodecore.errors import EmptyPodSharedPoolError
from bindery.nodecore.features import Features
from bindery.nodecore.pods import HUGE_PAGES_PREFIX, MEMORY, Container, Pod, long_running_total


def of_container(pod: Pod, container: Container, features: Features) -> dict[str, int]:
    """Return the container's memory and huge pages in bytes, by resource.

    In a pod with pod-level resources, a container whose requests differ from its limits has none.
    """
    if (
        features.pod_level_resource_managers
        and pod.has_pod_level_resources
        and not container.is_guaranteed
    ):
        return {}
    return {name: size for name, size in sorted(container.requests.items()) if _is_memory(name)}


def of_pod(pod: Pod, features: Features) -> dict[str, int]:
    """Return the memory and huge pages that the pod needs at one time, by resource.

    Resources that no app container asks for are left out, as in the kubelet.
    """
    if features.pod_level_resource_managers and pod.has_pod_level_resources:
        whole = pod.requests or {}
        return {name: size for name, size in sorted(whole.items()) if _is_memory(name) and size > 0}

    def wanted(container: Container) -> dict[str, int]:
        return of_container(pod, container, features)

    names = sorted({name for one in pod.containers for name in wanted(one)})
    return {name: long_running_total(pod, wanted, name) for name in names}


def check_shared_pool(pod: Pod, features: Features) -> None:
    """Raise EmptyPodSharedPoolError if containers without own memory have none of the pod's."""
    total = of_pod(pod, features)
    taken: dict[str, int] = {}
    shares = False

    def used_up() -> list[str]:
        return [name for name, size in total.items() if taken.get(name, 0) >= size]

    for container in pod.all_containers:
        sizes = of_container(pod, container, features)
        if pod.is_regular_init(container):
            if not sizes and used_up():
                raise EmptyPodSharedPoolError(
                    f"pod rejected, pod has shared init containers but no {used_up()[0]} "
                    "available for them"
                )
            continue
        shares = shares or not sizes
        for name, size in sizes.items():
            taken[name] = taken.get(name, 0) + size
    if shares and used_up():
        raise EmptyPodSharedPoolError(
            f"pod rejected, sum of exclusive container {used_up()[0]} requests equals pod budget, "
            "leaving no memory for shared containers"
        )


def _is_memory(resource: str) -> bool:
    return resource == MEMORY or resource.startswith(HUGE_PAGES_PREFIX)
