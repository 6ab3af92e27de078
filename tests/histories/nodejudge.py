"""Judges what the hollow agent lets run: no more than its nodes have, with all schedulers' pods."""

from collections import defaultdict
from collections.abc import Iterator

import msgspec

from bindery.kube.objects.watched import Pod
from tests.histories.apiserver.store import Change, ChangeType
from tests.histories.needs.cards import PREFIX
from tests.histories.plan import FaultKind, Plan
from tests.recounting import requested


class NodeJudge:
    """Knows the pods that run, from the log."""

    def __init__(self, plan: Plan) -> None:
        self._cores = plan.cores
        self._is_calm = not any(
            fault.process == "agent" and fault.kind is not FaultKind.KILL for fault in plan.faults
        )
        """Whether no write of the agent comes after its death, and it misses no deletion."""
        self._running: defaultdict[str, dict[str, Pod]] = defaultdict(dict)
        """Node -> UID -> pod that runs there."""

    def problems(self, change: Change) -> Iterator[str]:
        """Take in a write; yield what it breaks."""
        if change.kind.plural != "pods" or not self._is_calm:
            return
        pod = msgspec.json.decode(change.version.body, type=Pod)
        uid, node = pod.metadata.uid, pod.spec.node_name
        if not node or node.startswith(PREFIX):
            return  # HAMi's nodes have kubelets of their own
        running = self._running[node]
        runs = change.type is not ChangeType.DELETED and pod.status.phase == "Running"
        if not runs:
            running.pop(uid, None)
            return
        is_new = uid not in running
        running[uid] = pod
        used = sum(requested(each, "cpu") for each in running.values())
        if is_new and used > self._cores * 1000:
            who = ", ".join(each.metadata.name for each in running.values())
            yield f"{used}m cores of {self._cores} run on {node} ({who})"
