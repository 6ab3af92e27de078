"""Pod shapes: what decides where a pod may stand, shared by all equal pods.

Pods of one shape share filter masks and score vectors. A shape is everything of a pod's spec that a
filter or a score reads; two pods with the same shape are interchangeable to placement.
"""

from dataclasses import dataclass, field

import msgspec

from bindery.api.names import GPU_RESOURCE
from bindery.api.quantity import QuantityError
from bindery.kube.objects import Pod
from bindery.kube.podspec import NodeAffinity, PodSpec, Toleration, Volume
from bindery.scheduler.model.resources import Request, ResourceAxis, pod_amounts


@dataclass(frozen=True, eq=False)
class Shape:
    """What placement reads of a pod. Compared by identity: equal pods share one object."""

    request: Request
    wants_gpu: bool
    node_selector: dict[str, str]
    node_affinity: NodeAffinity | None
    tolerations: tuple[Toleration, ...]
    refusal: str | None
    """Why pods of this shape cannot be placed at all: a request that does not parse, or a
    constraint that is not supported yet and must not be ignored."""


@dataclass
class ShapeBook:
    """Gives equal pods the same Shape."""

    axis: ResourceAxis
    _shapes: dict[bytes, Shape] = field(default_factory=dict)

    def of(self, pod: Pod) -> Shape:
        """Return the shape of `pod`."""
        spec = pod.spec
        gpu_sharing = sorted(
            (key, value)
            for key, value in pod.metadata.annotations.items()
            if key in _GPU_SHARING_ANNOTATIONS
        )
        key = msgspec.msgpack.encode(
            (
                [(c.resources, c.ports) for c in spec.containers],
                [(c.resources, c.restart_policy) for c in spec.init_containers or ()],
                spec.overhead,
                spec.resources,
                spec.node_selector,
                spec.affinity,
                spec.tolerations,
                spec.topology_spread_constraints,
                spec.resource_claims,
                # Their names are drawn per pod: only what is claimed by them decides.
                any(_is_claim(volume) for volume in spec.volumes or ()),
                gpu_sharing,
            )
        )
        shape = self._shapes.get(key)
        if shape is None:
            shape = self._shapes[key] = self._new(spec, bool(gpu_sharing))
        return shape

    def _new(self, spec: PodSpec, shares_gpu: bool) -> Shape:
        refusal = _unsupported(spec, shares_gpu)
        try:
            amounts = pod_amounts(spec)
        except QuantityError as error:
            amounts, refusal = {}, f"its requests cannot be read: {error}"
        return Shape(
            request=self.axis.request(amounts),
            wants_gpu=amounts.get(GPU_RESOURCE, 0) > 0,
            node_selector=spec.node_selector or {},
            node_affinity=spec.affinity.node_affinity if spec.affinity else None,
            tolerations=tuple(spec.tolerations or ()),
            refusal=refusal,
        )


_GPU_SHARING_ANNOTATIONS = frozenset({"gpu-fraction", "gpu-memory", "gpu-fraction-num-devices"})


def _unsupported(spec: PodSpec, shares_gpu: bool) -> str | None:
    """Return why a pod with `spec` must wait: ignoring a hard constraint would bind it wrongly."""
    affinity = spec.affinity
    named: dict[str, object] = {
        "required pod affinity": affinity
        and affinity.pod_affinity
        and affinity.pod_affinity.required,
        "required pod anti-affinity": affinity
        and affinity.pod_anti_affinity
        and affinity.pod_anti_affinity.required,
        "topology spread constraints": [
            constraint
            for constraint in spec.topology_spread_constraints or ()
            if constraint.when_unsatisfiable == "DoNotSchedule"
        ],
        "host ports": [
            port
            for container in spec.containers
            for port in container.ports or ()
            if port.host_port
        ],
        "resource claims": spec.resource_claims,
        "persistent volume claims": [v for v in spec.volumes or () if _is_claim(v)],
        "a share of a GPU": shares_gpu,
    }
    names = [name for name, value in named.items() if value]
    return f"it asks for {', '.join(names)}: not supported yet" if names else None


def _is_claim(volume: Volume) -> bool:
    return volume.persistent_volume_claim is not None or volume.ephemeral is not None
