"""What must hold after every write, and at rest: read from the model's objects and log alone."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from bindery.api.names import POD_GROUP_ANNOTATION, QUEUE_LABEL
from bindery.kube.http.requests import ApiRequest
from bindery.kube.objects.podgroups import PodGroup
from bindery.kube.objects.watched import Pod
from tests.histories.apiserver.server import ModelApiServer
from tests.histories.apiserver.store import Change, ChangeType
from tests.histories.bindingjudge import BindingJudge, unused_now
from tests.histories.calm import Leaders
from tests.histories.commitjudge import CommitJudge
from tests.histories.evictionjudge import EvictionJudge
from tests.histories.needs.judge import NeedsJudge
from tests.histories.needs.keptjudge import KeptRoomJudge
from tests.histories.nodejudge import NodeJudge
from tests.histories.people import OTHER_SCHEDULER
from tests.histories.plan import QUIET_AFTER_S, Plan
from tests.histories.requestjudge import RequestJudge, is_of_leader
from tests.histories.sharejudge import ShareJudge
from tests.histories.statementjudge import StatementJudge
from tests.histories.world import LIMITED
from tests.recounting import ENDED, requested

_BEHIND_S: Final = QUIET_AFTER_S * 0.3 + 10
"""How far a scheduler may be behind when it plans: the longest fault, and a moment."""


class BrokenInvariantError(Exception):
    """The product has broken a promise; the text describes the promise and the object."""


class Judge:
    """Looks at every write."""

    def __init__(self, server: ModelApiServer, plan: Plan) -> None:
        self._server, self._plan = server, plan
        self.see: Callable[[Change], None] = lambda _change: None
        """Called with each change."""
        self._judged = 0
        """How many entries of the log have been looked at."""
        self.nodes_of: dict[str, str] = {}
        """UID of each pod that was ever bound -> its node."""
        self._on: defaultdict[str, dict[str, Pod]] = defaultdict(dict)
        """Node -> UID -> pod that holds room there."""
        self._leaders, self._shares = Leaders(), ShareJudge(plan)
        self.evictions = EvictionJudge(plan, self._shares)
        self._bindings = BindingJudge(self._leaders)
        self._commits = CommitJudge(plan, self._leaders)
        self._limits = [(0.0, plan.limit_cores * 1000)]
        """The limits of the queue `limited`, each with the moment of its edit."""
        self._queues: dict[str, str] = {}
        """Name of each PodGroup that ever was -> its queue."""
        self._needs = NeedsJudge(server, plan, self._on)
        self._kept_rooms = KeptRoomJudge(server, plan)
        self._requests, self._statements = RequestJudge(), StatementJudge(plan)
        self._nodes = NodeJudge(plan)

    def look_at_request(self, request: ApiRequest, caller: str, at_s: float) -> None:
        """Judge a request that arrives; raises BrokenInvariantError."""
        for text in self._requests.problems(request, caller, at_s):
            self._broken(text)
        late = self._bindings.without_lease(caller, at_s)
        if late and is_of_leader(request, caller):
            self._broken(f"{caller}: {request.verb} {request.target} {late}")

    def look(self) -> None:
        """Judge the writes since the last look; raises BrokenInvariantError."""
        log = self._server.store.log
        while self._judged < len(log):
            change = log[self._judged]
            self._judged += 1
            self.see(change)
            for text in self._problems(change):
                self._broken(text)
            if change.kind.plural == "pods":
                self._pod(change)
            elif change.kind.plural == "podgroups":
                group = msgspec.json.decode(change.version.body, type=PodGroup)
                self._queues[group.metadata.name] = group.spec.queue or "default"
            elif change.kind.plural == "queues" and change.key[1] == LIMITED:
                limit = change.version.object["spec"]["resources"]["cpu"]["limit"]
                self._limits.append((change.at_s, int(limit) * 1000))

    def _problems(self, change: Change) -> Iterator[str]:
        if change.kind.plural == "leases":
            self._leaders.see(change)
        yield from self._bindings.problems(change)
        yield from self._commits.problems(change)
        yield from self.evictions.problems(change)
        yield from self._needs.problems(change)
        yield from self._kept_rooms.problems(change)
        yield from self._statements.problems(change)
        yield from self._nodes.problems(change)

    def _pod(self, change: Change) -> None:
        pod = msgspec.json.decode(change.version.body, type=Pod)
        uid, node = pod.metadata.uid, pod.spec.node_name
        if change.writer.verb == "delete":  # the kubelet ends what another one deletes
            for text in unused_now(change, self._on[node]):
                self._broken(text)
        if change.type is ChangeType.DELETED:
            self._on[node].pop(uid, None)
            return
        if not node or pod.spec.scheduler_name == OTHER_SCHEDULER:
            return  # the nodes refuse what does not fit beside another scheduler's pods
        was_bound = uid in self.nodes_of
        if self.nodes_of.setdefault(uid, node) != node:
            self._broken(f"pod {pod.metadata.name} is on {node} and on {self.nodes_of[uid]}")
        if pod.status.phase in ENDED:
            self._on[node].pop(uid, None)
            return
        self._on[node][uid] = pod
        if not was_bound:
            self._bound(pod, change.at_s)

    def _bound(self, pod: Pod, at_s: float) -> None:
        node = pod.spec.node_name
        pods = list(self._on[node].values())
        used = sum(requested(each, "cpu") for each in pods)
        if used > self._plan.cores * 1000:
            who = ", ".join(f"{p.metadata.name} {requested(p, 'cpu')}m" for p in pods)
            self._broken(f"{used}m cores of {self._plan.cores} are taken on {node} ({who})")
        for text in self._needs.problems_of_room(node, pods):
            self._broken(f"{text} on {node} after {pod.metadata.name} was bound")
        for text in self._needs.problems_of_bound(pod):
            self._broken(text)
        self._limit(pod, at_s)

    def _limit(self, bound: Pod, at_s: float) -> None:
        if self._queue(bound) != LIMITED:
            return
        held = sum(
            requested(pod, "cpu")
            for pods in self._on.values()
            for pod in pods.values()
            if self._queue(pod) == LIMITED
        )
        planned_s = self._bindings.created_s(bound.metadata.uid) or at_s
        most = self._most(planned_s - _BEHIND_S)
        if held > most:
            text = f"{held}m cores run in queue {LIMITED} with a limit of {most}m"
            self._broken(f"{text} after {bound.metadata.name} was bound")

    def _most(self, since_s: float) -> int:
        """Return the highest limit that has been in force since a moment."""
        before = [limit for at_s, limit in self._limits if at_s <= since_s]
        return max(*before[-1:], *(limit for at_s, limit in self._limits if at_s > since_s), 0)

    def _queue(self, pod: Pod) -> str:
        named = pod.metadata.labels.get(QUEUE_LABEL)
        group = pod.metadata.annotations.get(POD_GROUP_ANNOTATION, "")
        return named or self._queues.get(group, "")

    def _broken(self, text: str) -> None:
        raise BrokenInvariantError(text)
