"""The shapes of pods, kept up to date with the rules of all pods.

Used by tasks.py. A pod's rules about other pods, such as affinity, may refer to labels that shapes
did not have before; then the shapes of the pods with these labels change. So do the shapes of pods
with an image when it comes to its first node, and of pods whose claims have other GPUs.
"""

from collections.abc import Iterable, Iterator, Mapping

from bindery.api.states import ENDED_POD_PHASES
from bindery.kube.objects.claims import ResourceClaim
from bindery.kube.objects.watched import Pod
from bindery.scheduler.cache.claim_gpus import ClaimGpus
from bindery.scheduler.cache.shape_costs import ShapeCosts
from bindery.scheduler.model.images import image_names
from bindery.scheduler.model.jobs import Uid
from bindery.scheduler.model.label_references import LabelReferences
from bindery.scheduler.model.nodes import NodeTable
from bindery.scheduler.model.pod_rules import read_rules
from bindery.scheduler.model.shapes import Shape, ShapeBook


class PodShapes:
    """The shapes of pods. Pods of other schedulers only hold room: their shapes have no labels."""

    def __init__(self, nodes: NodeTable) -> None:
        self.book = ShapeBook(nodes.axis, known_images=nodes.images.names)
        self._references = LabelReferences()
        self._planned: dict[Uid, Pod] = {}
        """The pods of this scheduler."""
        self._users: dict[str, dict[Uid, None]] = {}
        """Image -> the pods of this scheduler that use it."""
        self._claims = ClaimGpus(nodes.axis.gpus.counts_class)
        self._costs = ShapeCosts()
        self.refusals: Mapping[Uid, str] = {}
        """Pod -> why it is not planned, if that does not follow from its shape."""

    def note(self, pod: Pod, *, ours: bool) -> Iterator[tuple[Uid, Shape]]:
        """Note a new state of `pod`; yield the other pods that it gives new shapes."""
        meta, uid = pod.metadata, Uid(pod.metadata.uid)
        if ours:
            self._note_images(uid, pod)
            self._planned[uid] = pod
        affected = self._references.put(
            uid, meta.namespace, meta.labels, read_rules(pod), planned=ours
        )
        if ours:
            ended = pod.status.phase in ENDED_POD_PHASES
            affected = {
                *affected,
                *(self._claims.forget_pod(uid) if ended else self._claims.put_pod(pod)),
            }
        yield from self._shaped(sorted(affected))

    def of(self, pod: Pod, *, ours: bool) -> Shape:
        """Return the shape of `pod`, which was noted."""
        if not ours:
            return self.book.of(pod)
        seen = self._references.of(pod.metadata.namespace, pod.metadata.labels)
        uid = Uid(pod.metadata.uid)
        shape = self.book.of(pod, read_rules(pod), seen, self._claims.of(uid))
        refusal = self.refusals.get(uid)
        if refusal is None and not pod.spec.node_name:
            refusal = self._costs.note(uid, pod.metadata.namespace, shape)
        else:
            self._costs.forget(uid, pod.metadata.namespace)
        return self.book.refused(shape, refusal) if refusal else shape

    def due(self) -> Iterator[tuple[Uid, Shape]]:
        """Yield the pods for whose shapes there is room now, with their shapes."""
        yield from self._shaped(self._costs.due())

    def claim_changed(self, claim: ResourceClaim, *, gone: bool) -> Iterator[tuple[Uid, Shape]]:
        """Note a new state of `claim`; yield the pods to which it gives new shapes."""
        yield from self._shaped(sorted(self._claims.put_claim(claim, gone=gone)))

    def forget(self, uid: Uid) -> Iterator[tuple[Uid, Shape]]:
        """Forget a pod; yield the pods to which this gives new shapes."""
        self._references.remove(uid)
        self._note_images(uid, None)
        pod = self._planned.pop(uid, None)
        if pod is not None:
            self._costs.forget(uid, pod.metadata.namespace)
        yield from self._shaped(sorted(self._claims.forget_pod(uid)))

    def images_came(self, names: Iterable[str]) -> Iterator[tuple[Uid, Shape]]:
        """Yield the pods to which new images on nodes give new shapes."""
        users = {uid: None for name in names for uid in self._users.get(name, ())}
        yield from self._shaped(sorted(users))

    def _shaped(self, pods: Iterable[Uid]) -> Iterator[tuple[Uid, Shape]]:
        """Yield `pods` with their shapes."""
        for uid in pods:
            yield uid, self.of(self._planned[uid], ours=True)

    def _note_images(self, uid: Uid, pod: Pod | None) -> None:
        """Note the images of a new state of a pod; None: it has gone."""
        old = self._planned.get(uid)
        if old is not None and pod is not None and old.spec == pod.spec:
            return
        for name in image_names(old.spec) if old is not None else ():
            users = self._users.get(name, {})
            users.pop(uid, None)
            if not users:
                self._users.pop(name, None)
        for name in image_names(pod.spec) if pod is not None else ():
            self._users.setdefault(name, {})[uid] = None
