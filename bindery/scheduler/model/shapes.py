"""Pod shapes: what decides where a pod may stand, shared by all equal pods.

Pods of one shape share filter masks and score vectors. A shape is everything of a pod's spec that a
filter or a score reads; two pods with the same shape are interchangeable to placement.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from bindery.api import gpushare
from bindery.api.gpushare import WHOLE, GpuAsk, GpuShare
from bindery.api.hami import assignment, requests, wishes
from bindery.api.hami.errors import HamiFormatError
from bindery.api.hami.requests import DeviceRequest
from bindery.api.hami.vendortable import MANAGED, NVIDIA, VENDORS
from bindery.api.names import GPU_RESOURCE
from bindery.api.quantity import QuantityError
from bindery.kube.objects import Pod
from bindery.kube.podspec import Container, NodeAffinity, PodSpec, Toleration, Volume
from bindery.scheduler.model.likeness import content_key
from bindery.scheduler.model.resources import (
    CardPart,
    CardParts,
    Request,
    ResourceAxis,
    gpu_amount,
    pod_amounts,
)

_TOO_MANY_RESOURCES = (
    "it asks for resources that no node has, and pods ask for too many different resources already"
)


class Need(StrEnum):
    """What a pod may ask for that a plugin must support: ignoring it would bind it wrongly.

    The value is what people read.
    """

    POD_AFFINITY = "required pod affinity"
    POD_ANTI_AFFINITY = "required pod anti-affinity"
    TOPOLOGY_SPREAD = "topology spread constraints"
    HOST_PORTS = "host ports"
    RESOURCE_CLAIMS = "resource claims"
    VOLUMES = "persistent volume claims"
    GPU_SHARE = "a share of a GPU"
    HAMI_DEVICES = "devices that HAMi shares"


class Preference(StrEnum):
    """What a pod may prefer and no plugin scores. The value is what people read."""

    POD_AFFINITY = "preferred pod affinity"
    POD_ANTI_AFFINITY = "preferred pod anti-affinity"
    TOPOLOGY_SPREAD = "topology spread constraints with ScheduleAnyway"


@dataclass(frozen=True, eq=False)
class Shape:
    """What placement reads of a pod. Compared by identity: equal pods share one object."""

    request: Request
    wants_gpu: bool
    node_selector: dict[str, str]
    node_affinity: NodeAffinity | None
    tolerations: tuple[Toleration, ...]
    refusal: str | None
    """Why pods of this shape cannot be placed at all: a request that does not parse."""
    share_problems: tuple[str, ...] = ()
    """What is wrong with the share of a GPU that is asked for."""
    needs: frozenset[Need] = frozenset()
    """What must be supported by plugins."""
    ignored: frozenset[Preference] = frozenset()
    """What has no effect on the choice of a node."""
    forged_annotation: str = ""
    """An annotation that says what devices the pod has got, and that the binder has not written."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Those of `PLACEMENT_ANNOTATIONS` that the pod has."""
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()


PLACEMENT_ANNOTATIONS = frozenset(gpushare.ANNOTATIONS) | wishes.keys(VENDORS)
"""The annotations that decide where a pod may stand: pods that differ in them differ in shape."""


@dataclass
class ShapeBook:
    """Gives equal pods the same Shape."""

    axis: ResourceAxis
    device_mib: int = 0
    """The memory of the smallest GPU: what parts by memory are taken to be parts of."""
    _shapes: dict[bytes, Shape] = field(default_factory=dict)

    def of(self, pod: Pod) -> Shape:
        """Return the shape of `pod`."""
        spec = pod.spec
        annotations = {
            key: pod.metadata.annotations[key]
            for key in sorted(PLACEMENT_ANNOTATIONS & pod.metadata.annotations.keys())
        }
        key = content_key(
            (
                [(c.resources, c.ports) for c in spec.containers],
                [(c.resources, c.restart_policy) for c in spec.init_containers or ()],
                spec.overhead,
                spec.resources,
                spec.node_selector,
                spec.affinity,
                spec.tolerations,
                spec.topology_spread_constraints,
                # Claims belong to a pod, not to its shape: only whether there are any decides.
                bool(spec.resource_claims),
                any(_is_claim(volume) for volume in spec.volumes or ()),
                annotations,
                _forged_annotation(pod),
                _is_reservation(pod),
                *_of_shares(pod, annotations),
            )
        )
        shape = self._shapes.get(key)
        if shape is None:
            shape = self._new(pod, annotations)
            if shape.refusal is not _TOO_MANY_RESOURCES:  # a node may come that has them
                self._shapes[key] = shape
        return shape

    def renew(self, device_mib: int) -> Mapping[Shape, Shape]:
        """Note that the smallest GPU has so much memory; return the shapes that change by it."""
        self.device_mib = device_mib
        renewed: dict[Shape, Shape] = {}
        for key, shape in self._shapes.items():
            share = shape.request.share
            if share is not None and share.memory_mib:
                index, amount = self.axis.index(GPU_RESOURCE), self._amount(share)
                new = replace(shape, request=shape.request.instead(index, amount))
                self._shapes[key] = renewed[shape] = new
        return renewed

    def _amount(self, share: GpuShare) -> int:
        portion = share.portion_of(self.device_mib) or WHOLE
        return gpu_amount(min(portion, WHOLE), share.devices)

    def _new(self, pod: Pod, annotations: Mapping[str, str]) -> Shape:
        refusal, spec, problems = None, pod.spec, share_problems(pod)
        forged = _forged_annotation(pod)
        share = gpushare.read(annotations) if not problems else None
        if share is not None and gpushare.CONFIG_MAP_ANNOTATION not in pod.metadata.annotations:
            problems = (gpushare.NOT_PREPARED,)
        try:
            amounts = pod_amounts(spec)
        except QuantityError as error:
            amounts, refusal = {}, f"its requests cannot be read: {error}"
        if not self.axis.has_room_for(amounts):
            amounts = {name: amount for name, amount in amounts.items() if name in self.axis}
            refusal = _TOO_MANY_RESOURCES
        for name in MANAGED & amounts.keys():  # devices decide on them, not the node's sums
            del amounts[name]
        if _is_reservation(pod):  # it is the users of its group who count for the device
            amounts.pop(GPU_RESOURCE, None)
        if share is not None:
            amounts[GPU_RESOURCE] = self._amount(share)
        return Shape(
            request=replace(self.axis.request(amounts, share), part=_card_parts(spec)),
            share_problems=problems,
            wants_gpu=amounts.get(GPU_RESOURCE, 0) > 0,
            node_selector=spec.node_selector or {},
            node_affinity=spec.affinity.node_affinity if spec.affinity else None,
            tolerations=tuple(spec.tolerations or ()),
            refusal=refusal,
            needs=_needs(spec, annotations) | ({Need.HAMI_DEVICES} if forged else frozenset()),
            ignored=_ignored(spec),
            forged_annotation=forged,
            annotations=annotations,
            containers=tuple(spec.containers),
            init_containers=tuple(spec.init_containers or ()),
        )


def _card_parts(spec: PodSpec) -> CardParts | None:
    """Return what of GPUs a pod asks for that HAMi shares; None for whole ones, and where it cannot
    be read, which the plugin for such devices refuses.
    """
    if MANAGED.isdisjoint(_resource_names(spec)):
        return None
    try:
        asked = requests.read_pod(
            [(c.resources, c.restart_policy == "Always") for c in spec.init_containers or ()],
            [c.resources for c in spec.containers],
        )
    except HamiFormatError:
        return None
    parts = [
        (index, CardPart(each.count, each.memory_mib, _portion(each)))
        for index, slot in enumerate(asked.slots if asked is not None else ())
        for each in slot
        if each.vendor is NVIDIA
    ]
    if asked is None or not parts:
        return None
    return CardParts(
        tuple(part for index, part in parts if index not in asked.passing),
        tuple(part for index, part in parts if index in asked.passing),
    )


def _portion(request: DeviceRequest) -> int:
    """Return the part of each device that is asked for in per cent, in milli devices."""
    percent = 0 if request.memory_mib else request.memory_percent
    return 10 * max(request.cores, percent)


HAMI_RESOURCES = MANAGED | {vendor.count_resource for vendor in VENDORS if vendor is not NVIDIA}
"""Resources that mean devices by HAMi's protocol; `nvidia.com/gpu` alone does not say whose."""


def _resource_names(spec: PodSpec) -> set[str]:
    return {
        name
        for container in (*spec.containers, *(spec.init_containers or ()))
        if container.resources is not None
        for named in (container.resources.requests, container.resources.limits)
        for name in named or ()
    }


def unmet_text(needs: frozenset[Need]) -> str:
    """Return why a pod waits whose `needs` no plugin supports."""
    return f"it asks for {', '.join(each for each in Need if each in needs)}: not supported yet"


def _needs(spec: PodSpec, annotations: Mapping[str, str]) -> frozenset[Need]:
    affinity = spec.affinity
    asked: dict[Need, object] = {
        Need.POD_AFFINITY: affinity and affinity.pod_affinity and affinity.pod_affinity.required,
        Need.POD_ANTI_AFFINITY: affinity
        and affinity.pod_anti_affinity
        and affinity.pod_anti_affinity.required,
        Need.TOPOLOGY_SPREAD: [
            constraint
            for constraint in spec.topology_spread_constraints or ()
            if constraint.when_unsatisfiable == "DoNotSchedule"
        ],
        Need.HOST_PORTS: [
            port
            for container in spec.containers
            for port in container.ports or ()
            if port.host_port
        ],
        Need.RESOURCE_CLAIMS: spec.resource_claims,
        Need.VOLUMES: any(_is_claim(volume) for volume in spec.volumes or ()),
        Need.GPU_SHARE: gpushare.asks_for_share(annotations),
        Need.HAMI_DEVICES: not HAMI_RESOURCES.isdisjoint(_resource_names(spec)),
    }
    return frozenset(need for need, value in asked.items() if value)


def ignored_text(shapes: Iterable[Shape]) -> str:
    """Return which preferences of pods of these shapes have no effect; "" if all have."""
    ignored = frozenset[Preference]().union(*(shape.ignored for shape in shapes))
    if not ignored:
        return ""
    return f"ignored: {', '.join(each for each in Preference if each in ignored)}"


def _ignored(spec: PodSpec) -> frozenset[Preference]:
    affinity, anti = (
        (spec.affinity.pod_affinity, spec.affinity.pod_anti_affinity)
        if spec.affinity is not None
        else (None, None)
    )
    prefers: dict[Preference, object] = {
        Preference.POD_AFFINITY: affinity is not None and affinity.preferred,
        Preference.POD_ANTI_AFFINITY: anti is not None and anti.preferred,
        Preference.TOPOLOGY_SPREAD: any(
            constraint.when_unsatisfiable == "ScheduleAnyway"
            for constraint in spec.topology_spread_constraints or ()
        ),
    }
    return frozenset(preference for preference, value in prefers.items() if value)


def share_problems(pod: Pod) -> tuple[str, ...]:
    """Return what is wrong with the share of a GPU that `pod` asks for, one sentence each."""
    if not gpushare.asks_for_share(pod.metadata.annotations):
        return ()
    containers = [*pod.spec.containers, *(pod.spec.init_containers or ())]
    resources = {
        name
        for container in containers
        if container.resources is not None
        for named in (container.resources.requests, container.resources.limits)
        for name, amount in (named or {}).items()
        if amount != "0"
    }
    names = [container.name for container in containers]
    ask = GpuAsk(pod.metadata.annotations, names, frozenset(resources))
    return tuple(gpushare.problems(ask))


def _of_shares(pod: Pod, annotations: Mapping[str, str]) -> tuple[object, ...]:
    """Return what else of `pod` decides whether its share of a GPU makes sense."""
    if not gpushare.asks_for_share(annotations):
        return ()
    containers = [*pod.spec.containers, *(pod.spec.init_containers or ())]
    is_prepared = gpushare.CONFIG_MAP_ANNOTATION in pod.metadata.annotations
    return [container.name for container in containers], is_prepared


def _forged_annotation(pod: Pod) -> str:
    meta = pod.metadata
    return "" if pod.spec.node_name else assignment.forged_key(meta.annotations, meta.uid)


def _is_reservation(pod: Pod) -> bool:
    return gpushare.is_reservation(pod.metadata.namespace, pod.metadata.labels)


def _is_claim(volume: Volume) -> bool:
    return volume.persistent_volume_claim is not None or volume.ephemeral is not None
