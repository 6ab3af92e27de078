"""Pod shapes: the fields of pods that placement reads, shared by all equal pods.

Pods of one shape share filter masks and score vectors. A shape has every field of a pod that a
filter or a score reads, so placement treats two pods with the same shape alike.
"""

from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from weakref import WeakValueDictionary

from bindery.api import gpushare, quantity
from bindery.api.gpus import unknown_profiles
from bindery.api.gpushare import WHOLE, GpuAsk, GpuShare
from bindery.api.names import GPU_RESOURCE
from bindery.api.quantity import QuantityError
from bindery.kube.objects.declaredfeatures import required_features
from bindery.kube.objects.disks import disks, migrated
from bindery.kube.objects.podspec import (
    Container,
    NodeAffinity,
    PodSpec,
    ResourceRequirements,
    Toleration,
    Volume,
)
from bindery.kube.objects.watched import Pod
from bindery.scheduler.model import sharedcards
from bindery.scheduler.model.content_key import content_key
from bindery.scheduler.model.host_ports import HostPort, host_ports
from bindery.scheduler.model.images import NO_IMAGES, UsedImages, used_images
from bindery.scheduler.model.pod_rules import NO_RULES, PodRules
from bindery.scheduler.model.reasons import JobReason
from bindery.scheduler.model.resizing import effective_spec
from bindery.scheduler.model.resources import (
    Request,
    ResourceAxis,
    gpu_amount,
    pod_amounts,
)

_TOO_MANY_RESOURCES = (
    "it requests resources that no node has, and pods request too many different resources already"
)

_PROFILES = "profiles are named like nvidia.com/mig-1g.5gb, with 1, 2, 3, 4 or 7 slices"


class Need(StrEnum):
    """Features of a pod that a plugin must support; without it the pod would be bound wrongly.

    The value is the text for people.
    """

    POD_AFFINITY = "required pod affinity"
    POD_ANTI_AFFINITY = "required pod anti-affinity"
    TOPOLOGY_SPREAD = "topology spread constraints"
    HOST_PORTS = "host ports"
    RESOURCE_CLAIMS = "resource claims"
    VOLUMES = "persistent volume claims or in-tree disks"
    GPU_SHARE = "a share of a GPU"
    HAMI_DEVICES = "devices that HAMi shares"


class Preference(StrEnum):
    """Preferences of a pod that a plugin scores, if it is on. The value is the text for people."""

    POD_AFFINITY = "preferred pod affinity"
    POD_ANTI_AFFINITY = "preferred pod anti-affinity"
    TOPOLOGY_SPREAD = "topology spread constraints with ScheduleAnyway"


_SCORED_WITH = {
    Preference.POD_AFFINITY: Need.POD_AFFINITY,
    Preference.POD_ANTI_AFFINITY: Need.POD_ANTI_AFFINITY,
    Preference.TOPOLOGY_SPREAD: Need.TOPOLOGY_SPREAD,
}
"""Preference -> the need whose plugin scores it."""


@dataclass(frozen=True, eq=False)
class Shape:
    """The fields of a pod that placement reads. Compared by identity: equal pods share one."""

    request: Request
    wants_gpu: bool
    node_selector: dict[str, str]
    node_affinity: NodeAffinity | None
    tolerations: tuple[Toleration, ...]
    refusal: str | None
    """Why pods of this shape cannot be placed at all, such as a request that does not parse."""
    refusal_reason: JobReason = JobReason.INVALID_REQUEST
    share_problems: tuple[str, ...] = ()
    """Mistakes in the request for a share of a GPU."""
    needs: frozenset[Need] = frozenset()
    """Features that plugins must support."""
    preferences: frozenset[Preference] = frozenset()
    """Preferences that affect the choice of a node only if plugins score them."""
    forged_annotation: str = ""
    """An annotation with assigned devices that the binder did not write; empty if none."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    """The pod's annotations with keys in `PLACEMENT_ANNOTATIONS`."""
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    pod_level: ResourceRequirements | None = None
    """The resources of the pod as a whole, if it has any."""
    host_ports: frozenset[HostPort] = frozenset()
    required_features: tuple[str, ...] = ()
    """The features that its node must declare."""
    claimed_gpus: int = 0
    """The GPUs of its resource claims; `request` has them as `counted_gpus`."""
    images: UsedImages = NO_IMAGES
    namespace: str = ""
    """The namespace, if rules of pods refer to it."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """The labels that rules of pods refer to; other values are replaced by one that none has."""
    rules: PodRules = NO_RULES
    """Affinity to other pods, and topology spread constraints."""
    unruled: "Shape | None" = None
    """The same shape without namespace, labels and rules; None: it has none of them."""

    @property
    def plain(self) -> "Shape":
        """The shape without rules about other pods; equal for shapes that differ only in rules."""
        return self if self.unruled is None else self.unruled


PLACEMENT_ANNOTATIONS = frozenset(gpushare.ANNOTATIONS) | sharedcards.ANNOTATIONS
"""The annotations that affect placement; pods that differ in them have different shapes."""


@dataclass
class ShapeBook:
    """Returns the same Shape for equal pods."""

    axis: ResourceAxis
    device_mib: int = 0
    """Memory of the smallest GPU, in MiB; `amounts` of shares by memory refer to it."""
    known_images: Collection[str] = ()
    """The images that any node has; shapes have no others."""
    _shapes: WeakValueDictionary[bytes, Shape] = field(default_factory=WeakValueDictionary)
    """Weak, as the others: each pod may have a shape of its own, and shapes go with their pods."""
    _ruled: WeakValueDictionary[Hashable, Shape] = field(default_factory=WeakValueDictionary)
    _refused: WeakValueDictionary[Hashable, Shape] = field(default_factory=WeakValueDictionary)

    def of(
        self,
        pod: Pod,
        rules: PodRules = NO_RULES,
        seen: tuple[str, Mapping[str, str]] | None = None,
        claimed_gpus: int = 0,
    ) -> Shape:
        """Return the shape of `pod`.

        `rules`: the rules of the pod. `seen`: its namespace and labels, as far as rules of any pod
        refer to them; None if none does. `claimed_gpus`: the GPUs that queues count for its claims.
        """
        plain = self._plain(pod, claimed_gpus)
        if rules is NO_RULES and seen is None:
            return plain
        namespace, labels = seen or ("", {})
        key = plain, rules, namespace, frozenset(labels.items())
        shape = self._ruled.get(key)
        if shape is None:
            shape = self._ruled[key] = _ruled(plain, rules, namespace, labels)
        return shape

    def refused(self, shape: Shape, why: str) -> Shape:
        """Return `shape` for pods that would exceed a bound; `why`: the text of the refusal."""
        key = shape, why
        found = self._refused.get(key)
        if found is None:
            found = self._refused[key] = replace(
                shape, refusal=why, refusal_reason=JobReason.TOO_MANY_DIFFERENT_PODS
            )
        return found

    def _plain(self, pod: Pod, claimed_gpus: int) -> Shape:
        spec = _effective_spec(pod)
        annotations = {
            key: pod.metadata.annotations[key]
            for key in sorted(PLACEMENT_ANNOTATIONS & pod.metadata.annotations.keys())
        }
        images = used_images(spec, self.known_images)
        key = content_key(
            (
                images.names,
                images.containers,
                [c.resources for c in spec.containers],
                [(c.resources, c.restart_policy) for c in spec.init_containers or ()],
                sorted(host_ports(spec)),
                required_features(spec),
                spec.overhead,
                spec.resources,
                spec.node_selector,
                spec.affinity and spec.affinity.node_affinity,
                spec.tolerations,
                # Claims differ from pod to pod: the shape has whether there are any, and GPUs.
                bool(spec.resource_claims),
                claimed_gpus,
                any(_is_planned(volume) for volume in spec.volumes or ()),
                annotations,
                sharedcards.forged_annotation(pod),
                _is_reservation(pod),
                *_of_shares(pod, annotations),
            )
        )
        shape = self._shapes.get(key)
        if shape is None:
            shape = _claiming(self._new(pod, spec, annotations, images), claimed_gpus, self.axis)
            # A node with these resources may appear, so this refusal is not cached.
            if shape.refusal is not _TOO_MANY_RESOURCES:
                self._shapes[key] = shape
        return shape

    def renew(self, device_mib: int) -> Mapping[Shape, Shape]:
        """Set the memory of the smallest GPU; return the changed shapes: old -> new."""
        self.device_mib = device_mib
        renewed: dict[Shape, Shape] = {}
        for key, shape in list(self._shapes.items()):
            share = shape.request.share
            if share is not None and share.memory_mib:
                index, amount = self.axis.index(GPU_RESOURCE), self._amount(share)
                new = replace(shape, request=shape.request.instead(index, amount))
                self._shapes[key] = renewed[shape] = new
        for shape in list(self._ruled.values()):
            plain = renewed.get(shape.plain)
            if plain is not None:
                new = _ruled(plain, shape.rules, shape.namespace, shape.labels)
                labels = frozenset(shape.labels.items())
                self._ruled[plain, shape.rules, shape.namespace, labels] = new
                renewed[shape] = new
        return renewed

    def _amount(self, share: GpuShare) -> int:
        portion = share.portion_of(self.device_mib) or WHOLE
        return gpu_amount(min(portion, WHOLE), share.devices)

    def _new(
        self, pod: Pod, spec: PodSpec, annotations: Mapping[str, str], images: UsedImages
    ) -> Shape:
        refusal, problems = None, share_problems(pod)
        forged = sharedcards.forged_annotation(pod)
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
        unknown = unknown_profiles(sorted(amounts))
        if unknown:
            amounts = {name: amount for name, amount in amounts.items() if name not in unknown}
            refusal = f"unknown MIG profile {unknown[0]}: {_PROFILES}"
        for name in (
            sharedcards.OWN_AMOUNTS & amounts.keys()
        ):  # a device's own memory and cores, not node sums
            del amounts[name]
        if _is_reservation(pod):  # the users of its group are charged for the device
            amounts.pop(GPU_RESOURCE, None)
        if share is not None:
            amounts[GPU_RESOURCE] = self._amount(share)
        request = replace(self.axis.request(amounts, share), part=sharedcards.card_parts(spec))
        return Shape(
            request=request,
            share_problems=problems,
            wants_gpu=amounts.get(GPU_RESOURCE, 0) > 0 or request.counted_gpus is not None,
            node_selector=spec.node_selector or {},
            node_affinity=spec.affinity.node_affinity if spec.affinity else None,
            tolerations=tuple(spec.tolerations or ()),
            refusal=refusal,
            needs=_needs(spec, annotations) | ({Need.HAMI_DEVICES} if forged else frozenset()),
            forged_annotation=forged,
            annotations=annotations,
            containers=tuple(spec.containers),
            init_containers=tuple(spec.init_containers or ()),
            pod_level=spec.resources,
            host_ports=host_ports(spec),
            required_features=required_features(spec),
            images=images,
        )


def _claiming(shape: Shape, gpus: int, axis: ResourceAxis) -> Shape:
    """Return `shape` with `gpus` that queues count for claims. They do not change its places."""
    if not gpus:
        return shape
    index, units = axis.index(GPU_RESOURCE), gpus * quantity.scale(GPU_RESOURCE)
    _, counted = shape.request.counted_gpus or (index, 0)
    request = replace(shape.request, counted_gpus=(index, counted + units))
    return replace(shape, request=request, claimed_gpus=gpus)


def _effective_spec(pod: Pod) -> PodSpec:
    try:
        return effective_spec(pod)
    except QuantityError:  # reading the requests below reports the error
        return pod.spec


def _ruled(plain: Shape, rules: PodRules, namespace: str, labels: Mapping[str, str]) -> Shape:
    return replace(
        plain,
        rules=rules,
        namespace=namespace,
        labels=labels,
        needs=plain.needs | _needs_of(rules),
        preferences=_preferences_of(rules),
        unruled=plain,
    )


def _needs_of(rules: PodRules) -> frozenset[Need]:
    asked = {
        Need.POD_AFFINITY: rules.affinity,
        Need.POD_ANTI_AFFINITY: rules.anti_affinity,
        Need.TOPOLOGY_SPREAD: any(each.is_hard for each in rules.spread),
    }
    return frozenset(need for need, value in asked.items() if value)


def _preferences_of(rules: PodRules) -> frozenset[Preference]:
    asked = {
        Preference.POD_AFFINITY: any(weight > 0 for weight, _ in rules.preferred),
        Preference.POD_ANTI_AFFINITY: any(weight < 0 for weight, _ in rules.preferred),
        Preference.TOPOLOGY_SPREAD: any(not each.is_hard for each in rules.spread),
    }
    return frozenset(preference for preference, value in asked.items() if value)


def unmet_text(needs: frozenset[Need]) -> str:
    """Return why a pod with unsupported `needs` waits."""
    asked = ", ".join(each for each in Need if each in needs)
    return f"it asks for {asked}: no configured plugin supports it"


def _needs(spec: PodSpec, annotations: Mapping[str, str]) -> frozenset[Need]:
    asked: dict[Need, object] = {
        Need.HOST_PORTS: host_ports(spec),
        Need.RESOURCE_CLAIMS: spec.resource_claims,
        Need.VOLUMES: any(_is_planned(volume) for volume in spec.volumes or ()),
        Need.GPU_SHARE: gpushare.asks_for_share(annotations),
        Need.HAMI_DEVICES: sharedcards.requests_devices(spec),
    }
    return frozenset(need for need, value in asked.items() if value)


def ignored_text(shapes: Iterable[Shape], supported: Collection[Need]) -> str:
    """Return a text with the preferences of these shapes that have no effect; "" if none.

    `supported`: the needs that plugins support; such a plugin scores the preferences too.
    """
    ignored = {
        each
        for shape in shapes
        for each in shape.preferences
        if _SCORED_WITH[each] not in supported
    }
    if not ignored:
        return ""
    return f"ignored: {', '.join(each for each in Preference if each in ignored)}"


def share_problems(pod: Pod) -> tuple[str, ...]:
    """Return the mistakes in the pod's request for a share of a GPU, one sentence each."""
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
    """Return the other fields of `pod` that affect whether its share of a GPU is valid."""
    if not gpushare.asks_for_share(annotations):
        return ()
    containers = [*pod.spec.containers, *(pod.spec.init_containers or ())]
    is_prepared = gpushare.CONFIG_MAP_ANNOTATION in pod.metadata.annotations
    return [container.name for container in containers], is_prepared


def _is_reservation(pod: Pod) -> bool:
    return gpushare.is_reservation(pod.metadata.namespace, pod.metadata.labels)


def _is_planned(volume: Volume) -> bool:
    """Return whether a plugin must plan `volume`: not every node may have it."""
    is_claim = volume.persistent_volume_claim is not None or volume.ephemeral is not None
    return is_claim or bool(disks([volume])) or migrated(volume, {}) is not None
