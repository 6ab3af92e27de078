"""What pods ask of NUMA zones: equal pods share one object.

As in KAI-Scheduler 0.17 and the kubelet: a pod that is not Guaranteed asks for its devices only,
and a container with a part of a CPU asks for no CPUs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from bindery.api.quantity import QuantityError
from bindery.kube.objects.podspec import Container, ResourceRequirements
from bindery.kube.objects.watched import Pod
from bindery.nodecore import pods
from bindery.nodecore.pods import EPHEMERAL_STORAGE
from bindery.nodecore.prediction.requests import PodRequest, request_of
from bindery.scheduler.model.content_key import content_key
from bindery.scheduler.model.shapes import Shape


@dataclass(frozen=True, eq=False)
class Ask:
    """What pods with equal resources ask of zones. Compared by identity."""

    request: PodRequest


class Asks:
    """Returns the same Ask for equal pods."""

    def __init__(self) -> None:
        self._of_shapes: WeakKeyDictionary[Shape, Ask | None] = WeakKeyDictionary()
        self._known: dict[bytes, Ask | None] = {}

    def of(self, shape: Shape) -> Ask | None:
        """Return what pods of `shape` ask of zones; None if they ask for nothing there."""
        shape = shape.plain
        try:
            return self._of_shapes[shape]
        except KeyError:
            ask = self._of_shapes[shape] = self._of(
                shape.containers, shape.init_containers, shape.pod_level
            )
            return ask

    def of_pod(self, pod: Pod) -> Ask | None:
        """Return what `pod` asks of zones; None if it requests none."""
        spec = pod.spec
        return self._of(spec.containers, spec.init_containers or (), spec.resources)

    def _of(
        self,
        containers: Sequence[Container],
        init_containers: Sequence[Container],
        pod_level: ResourceRequirements | None,
    ) -> Ask | None:
        key = content_key(
            (
                [each.resources for each in containers],
                [(each.resources, each.restart_policy) for each in init_containers],
                pod_level,
            )
        )
        if key not in self._known:
            request = _request(containers, init_containers, pod_level)
            is_empty = request is None or request.is_empty
            self._known[key] = None if is_empty or request is None else Ask(request)
        return self._known[key]


def _request(
    containers: Sequence[Container],
    init_containers: Sequence[Container],
    pod_level: ResourceRequirements | None,
) -> PodRequest | None:
    try:
        pod = pods.Pod(
            uid="",
            # The kubelet finds init containers by name, so each needs a name of its own.
            containers=[_container(each, f"app-{i}") for i, each in enumerate(containers)],
            init_containers=[_container(e, f"init-{i}") for i, e in enumerate(init_containers)],
            requests=pods.resources(pod_level.requests) if pod_level is not None else None,
            limits=pods.resources(pod_level.limits) if pod_level is not None else None,
        )
    except QuantityError:  # such a pod is refused by its shape
        return None
    return request_of(pod)


def _container(container: Container, name: str) -> pods.Container:
    resources = container.resources or ResourceRequirements()
    limits = dict(resources.limits or {})
    # The API server copies limits to requests, and refuses devices without equal limits.
    requests = {**limits, **(resources.requests or {})}
    devices = {key: text for key, text in requests.items() if not _is_native(key)}
    return pods.Container(
        name=name,
        requests=pods.resources(requests),
        limits=pods.resources({**devices, **limits}),
        is_sidecar=container.restart_policy == "Always",
    )


def _is_native(resource: str) -> bool:
    native = (pods.CPU, pods.MEMORY, EPHEMERAL_STORAGE)
    return resource in native or resource.startswith(pods.HUGE_PAGES_PREFIX)
