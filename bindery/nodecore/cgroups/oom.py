"""The OOM score adjustment of containers: what the kernel kills first when memory runs out."""

from typing import Final

from bindery.nodecore.pods import MEMORY, Container, Pod, QosClass, long_running_total

GUARANTEED: Final = -997
BEST_EFFORT: Final = 1000


def score_adjustment(
    pod: Pod, container: Container, node_memory: int, *, is_node_critical: bool = False
) -> int:
    """Return the adjustment, from -997 to 1000.

    Burstable containers are in between: the more of the node's memory one requests, the lower. A
    sidecar is at most as high as the app containers. `is_node_critical`: whether the pod has the
    class system-node-critical.
    """
    if is_node_critical or pod.qos == QosClass.GUARANTEED:
        return GUARANTEED
    if pod.qos == QosClass.BEST_EFFORT:
        return BEST_EFFORT
    extra = _unassigned_memory(pod)
    score = _score(container.requests.get(MEMORY, 0) + extra, node_memory)
    if container.is_sidecar:
        least = min((one.requests.get(MEMORY, 0) for one in pod.containers), default=0)
        score = min(score, _score(least + extra, node_memory))
    if score < BEST_EFFORT + GUARANTEED:
        return BEST_EFFORT + GUARANTEED
    return score - 1 if score == BEST_EFFORT else score


def _score(memory: int, node_memory: int) -> int:
    return BEST_EFFORT - BEST_EFFORT * memory // node_memory


def _unassigned_memory(pod: Pod) -> int:
    """Return each container's part of the pod-level request that no container asks for."""
    if not pod.requests or MEMORY not in pod.requests:
        return 0
    asked = long_running_total(pod, lambda one: one.requests, MEMORY)
    count = len(pod.init_containers) + len(pod.containers)
    return max(0, pod.requests[MEMORY] - asked) // count
