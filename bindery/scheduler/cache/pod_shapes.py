"""The shapes of pods, kept up to date with the rules of all pods.

Used by tasks.py. A pod's rules about other pods, such as affinity, may refer to labels that shapes
did not have before; then the shapes of the pods with these labels change.
"""

from collections.abc import Iterator

from bindery.kube.objects import Pod
from bindery.scheduler.model.jobs import Uid
from bindery.scheduler.model.label_references import LabelReferences
from bindery.scheduler.model.pod_rules import read_rules
from bindery.scheduler.model.resources import ResourceAxis
from bindery.scheduler.model.shapes import Shape, ShapeBook


class PodShapes:
    """The shapes of pods. Pods of other schedulers only hold room: their shapes have no labels."""

    def __init__(self, axis: ResourceAxis) -> None:
        self.book = ShapeBook(axis)
        self._references = LabelReferences()
        self._planned: dict[Uid, Pod] = {}
        """The pods of this scheduler."""

    def note(self, pod: Pod, *, ours: bool) -> Iterator[tuple[Uid, Shape]]:
        """Note a new state of `pod`; yield the other pods that it gives new shapes."""
        meta, uid = pod.metadata, Uid(pod.metadata.uid)
        if ours:
            self._planned[uid] = pod
        affected = self._references.put(
            uid, meta.namespace, meta.labels, read_rules(pod), planned=ours
        )
        for other in sorted(affected):
            yield other, self.of(self._planned[other], ours=True)

    def of(self, pod: Pod, *, ours: bool) -> Shape:
        """Return the shape of `pod`, which was noted."""
        if not ours:
            return self.book.of(pod)
        seen = self._references.of(pod.metadata.namespace, pod.metadata.labels)
        return self.book.of(pod, read_rules(pod), seen)

    def forget(self, uid: Uid) -> None:
        """Forget a pod."""
        self._references.remove(uid)
        self._planned.pop(uid, None)
