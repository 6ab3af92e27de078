"""cooldown: keeps pods away from nodes that failed or refused them a short while ago.

A job avoids the nodes of its recent binding failures. All pods with equal resources avoid a node
that refused such a pod: the kubelet would most likely refuse the next one as well. A change of the
node's allocatable resources or declared features ends both: its device plugin may have come.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from bindery.api import numaplacement
from bindery.api.names import NUMA_ZONES_ANNOTATION
from bindery.api.times import timestamp
from bindery.kube.objects.resources import NODES, PODS, Resource
from bindery.kube.objects.watched import KubeObject, Node, Pod
from bindery.kube.watches.store import Change, EventType
from bindery.scheduler.model import cooldowns as model
from bindery.scheduler.model.columns import BoolColumn
from bindery.scheduler.model.jobs import NO_ROW, Job, Task
from bindery.scheduler.model.node_refusals import NodeRefusal, node_refusal, offer, resource_key
from bindery.scheduler.model.reasons import JobReason
from bindery.scheduler.model.shapes import Shape
from bindery.scheduler.model.verdicts import NodeFailure, Refusal, Rows
from bindery.scheduler.plugins.view import SessionView

_MOST_SHOWN: Final = 3
"""Maximum number of refusals in the message of a pod."""


@dataclass(frozen=True, slots=True)
class _Known:
    """The refusals of equal pods by one node."""

    refusal: NodeRefusal
    """The last of them."""
    pod: Pod
    """The pod of the last one."""
    times: model.Cooldown
    is_untimed: bool
    """Whether a refusal without a time came since the last session: it counts from the next one."""

    def dated(self, now: float) -> "_Known":
        """Return the refusals, those without a time as of `now`."""
        if not self.is_untimed:
            return self
        return replace(self, times=self.times.failed(now), is_untimed=False)


class Cooldown:
    """Filters nodes by recent failures and refusals, for up to `failedNodeCooldownSeconds`."""

    name = "cooldown"

    def __init__(self) -> None:
        self._refused: dict[bytes, dict[str, _Known]] = {}
        """Key of the pods' resources -> node name -> last refusal."""

    def watched_resources(self) -> Sequence[Resource[Any]]:
        """Return pods and nodes."""
        return (PODS, NODES)

    def observe(self, change: Change[KubeObject]) -> bool:
        """Note a refused pod; return False, because this plugin has no `node_failures`."""
        pod = change.object
        if isinstance(pod, Node):
            self._note_node(pod, change.previous, gone=change.type is EventType.DELETED)
            return False
        if not isinstance(pod, Pod) or change.type is EventType.DELETED:
            return False
        refusal, old = node_refusal(pod), change.previous
        if refusal is None or (isinstance(old, Pod) and node_refusal(old) is not None):
            return False
        key = resource_key(pod.spec.containers, pod.spec.init_containers or ())
        by_node = self._refused.setdefault(key, {})
        known = by_node.get(refusal.node_name)
        times = known.times if known is not None else model.Cooldown()
        if refusal.at is not None:
            times = times.failed(refusal.at)
        # The initial list has pods in any order.
        is_last = known is None or refusal.at is None or times.times[-1] == refusal.at
        last = (refusal, pod) if known is None or is_last else (known.refusal, known.pod)
        untimed = refusal.at is None or (known is not None and known.is_untimed)
        by_node[refusal.node_name] = _Known(*last, times, untimed)
        return False

    def _note_node(self, node: Node, old: KubeObject | None, *, gone: bool) -> None:
        """Forget the refusals of a node that offers other resources or features than before."""
        is_same = isinstance(old, Node) and offer(old) == offer(node)
        if gone or not (is_same or old is None):
            for by_node in self._refused.values():
                by_node.pop(node.metadata.name, None)

    def prepare(self, session: SessionView) -> None:
        """Date new refusals without a time, and forget refusals that can count no more."""
        longest_s, now = session.memory.cooldown_s, session.now
        for key, by_node in list(self._refused.items()):
            dated = {name: known.dated(now) for name, known in by_node.items()}
            kept = {name: it for name, it in dated.items() if not it.times.is_over(longest_s, now)}
            self._refused[key] = kept
            if not kept:
                del self._refused[key]

    def invalid(self, session: SessionView, job: Job) -> Refusal | None:
        """Refuse a job for some time after its BindRequest could not be created."""
        why = session.memory.postponed(job)
        return Refusal(JobReason.COMMIT_FAILED, why) if why is not None else None

    def job_node_failures(self, session: SessionView, job: Job) -> Sequence[NodeFailure]:
        """Return the nodes of the job's recent binding failures."""
        names = session.memory.avoided_nodes(job)
        if not names:
            return ()
        return (NodeFailure("failed to bind it a short while ago", _mask(session, names)),)

    # -- nodes that refused an equal pod: as room, because the answer changes with time ----------

    def keeps_room_for(self, shape: Shape) -> bool:
        """Return whether a node has refused a pod with the resources of `shape`."""
        return bool(self._refused) and _key(shape) in self._refused

    def has_room(self, session: SessionView, shape: Shape, rows: Rows, later: bool) -> BoolColumn:  # noqa: ARG002  # the protocol's
        """Return for each of `rows` whether it has not refused an equal pod lately."""
        return np.asarray(~_mask(session, self._current(session, shape))[rows])

    def no_room_text(self, shape: Shape) -> str:  # noqa: ARG002  # the protocol's
        """Return the text for the nodes that refused an equal pod."""
        return "refused an equal pod a short while ago"

    def explain_wait(self, session: SessionView, job: Job, task: Task, message: str) -> str | None:  # noqa: ARG002  # the protocol's
        """Return which nodes refused pods like `task`, and in which words."""
        if not self.keeps_room_for(task.shape):
            return None
        known = sorted(self._current(session, task.shape).items())
        texts = [_text(each.pod, each.refusal, task) for _, each in known[:_MOST_SHOWN]]
        more = len(known) - len(texts)
        return "; ".join([*texts, *([f"{more} more nodes refused equal pods"] if more else [])])

    def _current(self, session: SessionView, shape: Shape) -> dict[str, _Known]:
        """Return the refusals that count now, by node name."""
        longest_s, now = session.memory.cooldown_s, session.now
        by_node = self._refused.get(_key(shape), {})
        return {name: it for name, it in by_node.items() if it.times.until(longest_s) > now}


def _text(pod: Pod, refusal: NodeRefusal, waiting: Task) -> str:
    """Return the refusal of `pod` for the owner of `waiting`, who may not know the pod's name."""
    said = f"{refusal.reason}: {refusal.message}" if refusal.message else refusal.reason
    when = f" at {timestamp(refusal.at)}" if refusal.at is not None else ""
    is_near = pod.metadata.namespace == waiting.namespace
    what = f"pod {pod.metadata.name}" if is_near else "an equal pod"
    text = f"node {refusal.node_name} refused {what}{when} ({said})"
    record = pod.metadata.annotations.get(NUMA_ZONES_ANNOTATION)
    expected = numaplacement.from_record(record, pod.metadata.uid)
    if expected is None:
        return text
    return f"{text}, where {numaplacement.zones_text(expected.zones)} had been predicted"


def _key(shape: Shape) -> bytes:
    return resource_key(shape.containers, shape.init_containers)


def _mask(session: SessionView, names: Iterable[str]) -> BoolColumn:
    """Return the nodes called `names` as a mask; a node may have been deleted since."""
    rows = session.state.nodes.rows
    found = [row for name in names if (row := rows.get(name, NO_ROW)) != NO_ROW]
    mask = np.zeros(len(session.state.nodes.nodes), dtype=np.bool_)
    mask[found] = True
    return mask
