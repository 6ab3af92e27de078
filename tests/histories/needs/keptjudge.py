"""Judges commits against the room that is kept for later stages: none of them takes it.

Asked at the creation of a BindRequest, when the plan is new. Room may be kept on other nodes than
at first, so what counts is whether all lacking pods of the stage still fit somewhere.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from bindery.api.keptroom import from_record
from bindery.api.names import KEPT_ROOM_ANNOTATION, SUB_GROUP_LABEL
from bindery.kube.objects.resources import BIND_REQUESTS, NODES, POD_GROUPS, PODS
from bindery.kube.objects.watched import Pod
from tests.histories.apiserver.server import ModelApiServer
from tests.histories.apiserver.store import Change, ChangeType
from tests.histories.calm import RECOVERS_S, Calm
from tests.histories.needs import bodies
from tests.histories.needs.controller import is_alive
from tests.histories.needs.judge import gang_of
from tests.histories.needs.plans import StageNeed
from tests.histories.needs.room import rack, takes_pods
from tests.histories.plan import GangPlan, Plan
from tests.histories.reading import all_of
from tests.recounting import requested

_SETTLED_S: Final = 2.0
"""After a change of nodes, until plans are made with it."""
_CLOCKS_S: Final = 6.0
"""By how much the clock of a scheduler differs at most, and a moment."""


class KeptRoomJudge:
    """Looks at commits while a gang of `plan` waits for its later stage."""

    def __init__(self, server: ModelApiServer, plan: Plan) -> None:
        self._server, self._plan, self._calm = server, plan, Calm(plan)
        self._gangs = [(gang, stage) for gang in plan.gangs if (stage := _kept_stage(gang))]
        self._nodes_changed_s = 0.0
        """When the nodes changed, or what other schedulers and people have placed on them."""
        self._takes: dict[str, bool] = {}
        """Node -> whether pods of any gang may come to it."""
        self._bound_s: dict[str, float] = {}
        """UID of a pod -> when it was bound."""

    def problems(self, change: Change) -> Iterator[str]:
        """Take in a write; yield whose kept room it takes."""
        if not self._gangs:
            return
        plural, is_new = change.kind.plural, change.type is ChangeType.ADDED
        is_gone = change.type is ChangeType.DELETED
        if plural == "nodes":
            node = NODES.decode(change.version.body)
            takes = not is_gone and takes_pods(node)
            if self._takes.get(change.key[1]) != takes:
                self._nodes_changed_s = change.at_s
            self._takes[change.key[1]] = takes
        elif plural == "pods":
            if change.version.object["spec"].get("nodeName"):
                if is_new:  # of another scheduler
                    self._nodes_changed_s = change.at_s
                self._bound_s.setdefault(change.version.object["metadata"]["uid"], change.at_s)
        elif plural == "bindrequests" and is_new:
            yield from self._commit(change)

    def _commit(self, change: Change) -> Iterator[str]:
        request = BIND_REQUESTS.decode(change.version.body)
        planned = {p.pod_uid: p.selected_node for each in request.each() for p in each.spec.pods}
        if not planned or change.at_s < self._nodes_changed_s + _SETTLED_S:
            return
        pods = all_of(self._server, PODS)
        for gang, stage in self._gangs:
            mine = [pod for pod in pods if gang_of(pod) == gang.name]
            if any(pod.metadata.uid in planned for pod in mine):
                continue
            since_s = self._kept_since_s(gang, stage, mine, change.at_s)
            if since_s is None or not self._calm.is_calm(
                change.writer.caller, since_s - 1, change.at_s, recovers_s=RECOVERS_S
            ):
                continue
            is_placed = {*planned, *self._committed()}
            workers = [pod for pod in mine if _is_worker(pod) and is_alive(pod)]
            here = sum(bool(p.spec.node_name) or p.metadata.uid in is_placed for p in workers)
            lacking, free = stage.workers - here, self._free(gang, mine, pods)
            after = _count(free, stage.worker_cores)
            for pod in pods:
                node = planned.get(pod.metadata.uid, "")
                if node in free:
                    free[node] += requested(pod, "cpu")
            if _count(free, stage.worker_cores) >= lacking > after:
                text = f"takes the room that is kept for {lacking} workers of {gang.name}"
                yield f"{change.writer.caller} commits {change.key[1]}, which {text}"

    def _kept_since_s(
        self, gang: GangPlan, stage: StageNeed, pods: list[Pod], now_s: float
    ) -> float | None:
        """Return since when room is certainly kept for the workers of a gang; None if not now."""
        groups = [g for g in all_of(self._server, POD_GROUPS) if g.metadata.name == gang.name]
        leaders = [
            pod
            for pod in pods
            if pod.metadata.labels.get(SUB_GROUP_LABEL) == bodies.LEADERS
            and pod.spec.node_name
            and is_alive(pod)
        ]
        records = [
            from_record(pod.metadata.annotations.get(KEPT_ROOM_ANNOTATION), pod.metadata.uid)
            for pod in leaders
        ]
        is_kept = any(
            sum(record.rooms.get(bodies.WORKERS, {}).values()) == stage.workers
            for record in records
            if record is not None
        )
        is_changed = any(group.metadata.generation > 1 for group in groups)
        if len(leaders) < gang.size or not groups or is_changed or not is_kept:
            return None
        since_s = max(self._bound_s[pod.metadata.uid] for pod in leaders)
        return since_s if now_s < since_s + stage.timeout_s - _CLOCKS_S else None

    def _committed(self) -> dict[str, str]:
        """Return the pods in requests without an outcome, by UID, with their nodes."""
        return {
            pod.pod_uid: pod.selected_node
            for request in all_of(self._server, BIND_REQUESTS)
            for each in request.each()
            if not each.is_final
            for pod in each.spec.pods
        }

    def _free(self, gang: GangPlan, mine: list[Pod], pods: list[Pod]) -> Counter[str]:
        """Return the free thousandths of cores of each node that the workers may use."""
        nodes = [node for node in all_of(self._server, NODES) if takes_pods(node)]
        rack_of = {node.metadata.name: rack(node) for node in nodes}
        exclusive = {g.name for g in self._plan.gangs if g.needs and g.needs.is_exclusive}
        is_in_rack = gang.needs is not None and gang.needs.is_in_rack
        own = {rack_of.get(pod.spec.node_name) for pod in mine if pod.spec.node_name}
        held = {
            rack_of.get(pod.spec.node_name)
            for pod in pods
            if pod.spec.node_name and gang_of(pod) in exclusive - {gang.name}
        }
        free = Counter(
            {
                name: self._plan.cores * 1000
                for name, rack in rack_of.items()
                if rack not in held and (rack in own or not is_in_rack)
            }
        )
        committed = self._committed()
        for pod in pods:
            node = pod.spec.node_name or committed.get(pod.metadata.uid, "")
            # Room of pods that go may be kept for those that come.
            if node in free and is_alive(pod) and pod.metadata.deletion_timestamp is None:
                free[node] -= requested(pod, "cpu")
        return free


def _kept_stage(gang: GangPlan) -> StageNeed | None:
    """Return the stage for which room must be kept, whatever its queue holds; None for none."""
    stage = gang.needs.stage if gang.needs is not None else None
    is_free = gang.queue != "limited" and not gang.preemptibility
    return stage if stage is not None and stage.condition != "Complete" and is_free else None


def _is_worker(pod: Pod) -> bool:
    return pod.metadata.labels.get(SUB_GROUP_LABEL) == bodies.WORKERS


def _count(free: Counter[str], cores: int) -> int:
    return sum(max(0, amount) // (cores * 1000) for amount in free.values())
