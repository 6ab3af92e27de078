"""What nodes decided about pods with predicted zones: how often the predictor was wrong.

Each pod counts once, when its state changes before this process's eyes: a pod that had been decided
when it was first seen, as after a restart, counts nothing.
"""

from bindery.api import numaplacement
from bindery.api.names import NUMA_ZONES_ANNOTATION
from bindery.kube.objects.watched import KubeObject, Pod
from bindery.scheduler.model.node_refusals import node_refusal
from bindery.scheduler.plugins.findings import NodeAnswer

_ADMITTED = frozenset({"Running", "Succeeded"})


class Outcomes:
    """The answers of nodes since the last call of `take`."""

    def __init__(self) -> None:
        self._answers: list[NodeAnswer] = []

    def note(self, pod: Pod, previous: KubeObject | None, *, gone: bool) -> None:
        """Note a new state of a pod."""
        if gone or not isinstance(previous, Pod) or previous.status.phase == pod.status.phase:
            return
        if previous.metadata.uid != pod.metadata.uid or _is_decided(previous):
            return
        record = pod.metadata.annotations.get(NUMA_ZONES_ANNOTATION)
        if numaplacement.from_record(record, pod.metadata.uid) is None:
            return
        refusal = node_refusal(pod)
        if refusal is not None:
            self._answers.append(NodeAnswer(refusal.reason))
        elif pod.status.phase in _ADMITTED:
            self._answers.append(NodeAnswer(""))

    def take(self) -> tuple[NodeAnswer, ...]:
        """Return the answers since the last call."""
        taken = tuple(self._answers)
        self._answers.clear()
        return taken


def _is_decided(pod: Pod) -> bool:
    return pod.status.phase in _ADMITTED or pod.status.phase == "Failed"
