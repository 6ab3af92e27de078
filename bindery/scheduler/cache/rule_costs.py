"""Bounds on the rules about other pods that the pods of one namespace may bring.

Owned by cluster.py. Each different set of pods that an affinity term or a spread constraint selects
takes memory and time in every cycle, for all jobs. A pod beyond the bounds is taken in without its
rules. It is not planned until there is room for them, and its condition has the reason.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from contextlib import suppress

from msgspec.structs import replace

from bindery.api.states import ENDED_POD_PHASES
from bindery.kube.objects.watched import KubeObject, Pod
from bindery.kube.watches.store import Change, EventType
from bindery.scheduler.model.jobs import Uid
from bindery.scheduler.model.pod_rules import PodSet, read_rules
from bindery.scheduler.model.problems import ObjectProblem

MOST_OF_POD = 100
"""How many terms and constraints about other pods a pod may have."""
MOST_OF_NAMESPACE = 5_000
"""How many different sets of pods the rules of a namespace may select."""
MOST_WITH_BOUND = 4 * MOST_OF_NAMESPACE
"""The same for pods that are on a node already. The rules of further ones are not followed."""

_OF_POD = (
    f"it has more than {MOST_OF_POD} terms of pod affinity, pod anti-affinity and topology spread"
)
_OF_NAMESPACE = (
    f"the pods of its namespace select {MOST_OF_NAMESPACE} different sets of pods by pod affinity, "
    "pod anti-affinity and topology spread, which is the maximum: it waits until some of them go"
)
IGNORED = "RulesNotFollowed"
_IGNORED = (
    f"the pods of its namespace select {MOST_WITH_BOUND} different sets of pods by pod affinity, "
    "pod anti-affinity and topology spread, which is the maximum for pods on nodes: the rules of "
    "this pod, and of further ones, keep no other pods away"
)


class RuleCosts:
    """The rules of all pods by namespace."""

    def __init__(self, reports: deque[ObjectProblem]) -> None:
        """Start without pods. `reports`: gets the problems that no condition shows."""
        self._in_namespace: defaultdict[str, Counter[PodSet]] = defaultdict(Counter)
        self._of_pod: dict[Uid, Sequence[PodSet]] = {}
        """The pods whose rules count."""
        self._waiting: defaultdict[str, dict[Uid, Pod]] = defaultdict(dict)
        """Namespace -> the pods that wait for room for their rules, the oldest first."""
        self._freed: set[str] = set()
        """Namespaces whose pods select fewer sets than before."""
        self.problems: dict[Uid, str] = {}
        """Pod -> why it is not planned."""
        self._reports = reports
        self._ignored: defaultdict[str, set[Uid]] = defaultdict(set)
        """Namespace -> the pods on nodes whose rules are not followed."""

    def admit(self, change: Change[KubeObject]) -> Change[KubeObject]:
        """Return `change`, with a pod without rules if they are too many."""
        pod = change.object
        if not isinstance(pod, Pod):
            return change
        uid, namespace = Uid(pod.metadata.uid), pod.metadata.namespace
        if change.type is EventType.DELETED or pod.status.phase in ENDED_POD_PHASES:
            self._forget(uid, namespace)
            self._drop_ignored(uid, namespace)
        elif uid not in self._of_pod:
            sets: Sequence[PodSet] = ()
            with suppress(Exception):  # taking the pod in reports terms that cannot be read
                sets = read_rules(pod).pod_sets
            problem = self._problem(pod, sets)
            self._forget(uid, namespace)
            if problem:
                self._refuse(pod, problem)
                return Change(change.type, _without_rules(pod), change.previous)
            self._drop_ignored(uid, namespace)
            self._take(uid, namespace, sets)
        return change

    def due(self) -> Iterator[Change[KubeObject]]:
        """Yield the pods for whose rules there is room now, the oldest of a namespace first."""
        freed, self._freed = self._freed, set()
        for namespace in sorted(freed):
            yield from self._again(namespace)

    def _problem(self, pod: Pod, sets: Sequence[PodSet]) -> str:
        """Return why `pod` is not planned with the rules that select `sets`; "" if it is."""
        if not sets:
            return ""
        is_bound = bool(pod.spec.node_name)
        if len(sets) > MOST_OF_POD and not is_bound:
            return _OF_POD
        known = self._in_namespace[pod.metadata.namespace]
        new = sum(each not in known for each in set(sets))
        most = MOST_WITH_BOUND if is_bound else MOST_OF_NAMESPACE
        return _OF_NAMESPACE if new and len(known) + new > most else ""

    def _take(self, uid: Uid, namespace: str, sets: Sequence[PodSet]) -> None:
        if sets:
            self._of_pod[uid] = sets
            self._in_namespace[namespace].update(sets)

    def _refuse(self, pod: Pod, problem: str) -> None:
        uid = Uid(pod.metadata.uid)
        if not pod.spec.node_name:
            self.problems[uid] = problem
        else:
            self._note_ignored(uid, pod)
        if problem is _OF_NAMESPACE:
            self._waiting[pod.metadata.namespace][uid] = pod

    def _note_ignored(self, uid: Uid, pod: Pod) -> None:
        """Note a pod on a node without its rules; report the first of its namespace."""
        ignored = self._ignored[pod.metadata.namespace]
        if not ignored:
            self._reports.append(ObjectProblem("v1", "Pod", pod.metadata, IGNORED, _IGNORED))
        ignored.add(uid)

    def _drop_ignored(self, uid: Uid, namespace: str) -> None:
        ignored = self._ignored.get(namespace)
        if ignored is not None:
            ignored.discard(uid)
            if not ignored:
                del self._ignored[namespace]

    def _forget(self, uid: Uid, namespace: str) -> None:
        self.problems.pop(uid, None)
        waiting, counts = self._waiting.get(namespace), self._in_namespace.get(namespace)
        if waiting is not None:
            waiting.pop(uid, None)
            if not waiting:
                del self._waiting[namespace]
        if counts is None:
            return
        sets = self._of_pod.pop(uid, ())
        if sets and namespace in self._waiting:
            self._freed.add(namespace)
        for each in sets:
            counts[each] -= 1
            if not counts[each]:
                del counts[each]
        if not counts:
            del self._in_namespace[namespace]

    def _again(self, namespace: str) -> Iterator[Change[KubeObject]]:
        """Yield the pods of `namespace` for whose rules there is room now, in their order."""
        for uid, pod in list(self._waiting.get(namespace, {}).items()):
            if len(self._in_namespace.get(namespace, ())) >= MOST_OF_NAMESPACE:
                return
            sets = read_rules(pod).pod_sets
            if self._problem(pod, sets):
                return
            self._forget(uid, namespace)
            self._take(uid, namespace, sets)
            yield Change(EventType.MODIFIED, pod, None)


def _without_rules(pod: Pod) -> Pod:
    affinity = pod.spec.affinity
    if affinity is not None:
        affinity = replace(affinity, pod_affinity=None, pod_anti_affinity=None)
    return replace(pod, spec=replace(pod.spec, affinity=affinity, topology_spread_constraints=None))
