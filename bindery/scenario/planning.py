"""The scheduler of a scenario: the engine on the in-memory cluster, and its reports.

Used by `runner`. It does what the scheduler process does around its engine: creates the drafts,
removes requests that no binder will finish, reads the report. Invariant: no decision is made here.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from itertools import groupby
from typing import Any

import msgspec

from bindery.api import numaplacement
from bindery.api.names import GPU_RESOURCE
from bindery.api.quantity import QuantityError, scale
from bindery.api.times import timestamp
from bindery.kube.objects.resources import QUEUES
from bindery.kube.objects.watched import Pod
from bindery.scenario import hami, numa, objects
from bindery.scenario.cluster import ScenarioCluster
from bindery.scenario.events import Faults
from bindery.scenario.expect import Observation, PodView
from bindery.scenario.format import Scenario
from bindery.scenario.shares import shares_by_hami
from bindery.scenario.states import PodState
from bindery.scheduler.commit.drafts import StatementDraft
from bindery.scheduler.commit.requests import as_stored
from bindery.scheduler.commit.stale import stale_requests
from bindery.scheduler.model.evictions import Eviction
from bindery.scheduler.model.jobs import JobKey, Uid
from bindery.scheduler.model.queues import rolled_up
from bindery.scheduler.model.reasons import JobReason
from bindery.scheduler.model.resources import pod_amounts
from bindery.scheduler.planning.reports import CycleReport, JobReport, PodReport, RefusedPlan

_WAITING = frozenset({PodState.PENDING, PodState.PIPELINED, PodState.GATED})


class Planner:
    """Runs cycles over `cluster` and observes them."""

    def __init__(self, scenario: Scenario, faults: Faults) -> None:
        self.cluster = ScenarioCluster(scenario)
        self.engine = self.cluster.engine
        self._faults = faults
        self._shares_by_hami = shares_by_hami(scenario)
        self._queue_names = [queue.name for queue in scenario.queues]
        self._queue_names += [each.name for each in scenario.objects_of(QUEUES)]
        self._report = CycleReport()
        self._actions = 0
        self._evictions = 0
        self._moved: dict[Uid, str] = {}
        """Pod -> the node to which this cycle moves it."""
        self._dropped: set[JobKey] = set()
        """Jobs for which no room is made after all, as an eviction was refused."""

    def plan(self) -> None:
        """Run one cycle and write its commits and evictions."""
        self._clear_stale_requests()
        statements: defaultdict[tuple[str, str], list[StatementDraft]] = defaultdict(list)
        for draft in self.engine.cycle():
            statements[draft.namespace, draft.spec.id].append(draft)
        refused: set[tuple[str, str | None]] = set()
        for key, parts in statements.items():
            if not self._write(parts, refused):
                refused.add(key)
        self._report = self.engine.report
        self._moved.clear()
        self._dropped.clear()
        for preemptor, plan in groupby(self._report.evictions, key=lambda e: e.preemptor):
            self._evict(preemptor, list(plan))

    def observe(self, pipelined_as: PodState = PodState.PIPELINED) -> Observation:
        """Return the cluster as it is; a promise lasts for its cycle and is `pipelined_as`."""
        cluster = self.cluster
        places = {
            pod.pod_uid: pod.selected_node
            for statement in cluster.statements.values()
            if not statement.is_final
            for pod in statement.spec.pods
        }
        return Observation(
            pods={
                name: self._view(cluster.pods[uid], places, pipelined_as)
                for name, uid in cluster.uids.items()
            },
            allocated=self._allocated(),
            fair_shares={
                name: self._report.fair_shares.get(name, {}) for name in self._queue_names
            },
            bind_requests=len(cluster.request_names()),
            evictions=self._evictions,
            actions=self._actions,
            node_labels={name: node.metadata.labels for name, node in cluster.nodes.items()},
        )

    def _clear_stale_requests(self) -> None:
        timeout_s = self.engine.configuration.bind_request.timeout_seconds
        stale = stale_requests(self.engine.cluster, self.cluster.clock.now, timeout_s)
        for found in list(stale):
            statement, meta = found.statement, found.statement.metadata
            names = [pod.pod_name for pod in statement.spec.pods]
            if self._faults.error("deleteBindRequest", names) is not None:
                continue
            if found.has_neighbours:
                self.cluster.put(msgspec.structs.replace(statement, is_withdrawn=True))
            else:
                self.cluster.delete_request(meta.namespace, meta.name)

    def _write(
        self, parts: Sequence[StatementDraft], refused: Collection[tuple[str, str | None]]
    ) -> bool:
        """Create all parts of a Statement; return whether they were written.

        If the API server refuses one, or the Statement builds on one of the `refused` Statements
        (namespace and id), all parts are taken back.
        """
        is_lost = (parts[0].namespace, parts[0].spec.after) in refused
        for draft in parts:
            names = [pod.pod_name for pod in draft.spec.pods]
            code = self._faults.error("createBindRequest", names)
            exists = (draft.namespace, draft.name) in self.cluster.request_names()
            if code is not None or exists or is_lost:
                for each in parts:
                    self.engine.refused(each)
                return False
        for draft in parts:
            statement = as_stored(draft)
            metadata = msgspec.structs.replace(
                statement.metadata,
                uid=objects.object_uid("bindrequest", draft.namespace, draft.name),
                creation_timestamp=timestamp(self.cluster.clock.now),
            )
            self.cluster.put(msgspec.structs.replace(statement, metadata=metadata))
        self._actions += len(parts)
        return True

    def _evict(self, preemptor: JobKey, plan: Sequence[Eviction]) -> None:
        """Carry out the evictions of a plan; if the API server refuses one, none."""
        answers = [self._faults.error("evict", (each.task.name,)) for each in plan]
        refused = [each for each, code in zip(plan, answers, strict=True) if code is not None]
        if refused:
            self._dropped.add(preemptor)
            text = "the API server refuses it"
            self.engine.dropped(RefusedPlan(refused[0], tuple(plan), text, is_begun=False))
            return
        for each in plan:
            self.cluster.evict(each.task.uid)
            if each.moves_to:
                self._moved[each.task.uid] = each.moves_to
        self._evictions += len(plan)
        self._actions += len(plan)

    # -- observing -------------------------------------------------------------------------------

    def _view(self, pod: Pod, places: Mapping[str, str], pipelined_as: PodState) -> PodView:
        cluster, uid = self.cluster, Uid(pod.metadata.uid)
        job = self._report.jobs.get(self.engine.cluster.job_key(pod))
        report = job.pods.get(uid) if job is not None else None
        state, node = cluster.state_of(pod), pod.spec.node_name
        if state is PodState.PENDING and uid in places:
            state, node = PodState.BINDING, places[uid]
        elif state is PodState.RELEASING and uid in self._moved:
            state, node = PodState.PIPELINED, self._moved[uid]
        elif (
            state is PodState.PENDING
            and job is not None
            and job.key not in self._dropped
            and report is not None
            and report.state == PodState.PIPELINED
        ):
            state = pipelined_as
            node = report.node if state is PodState.PIPELINED else ""
        gpus = cluster.gpus_of(pod)
        return PodView(
            job=cluster.job_of(pod),
            state=state,
            node=node,
            gpus=_gpus(pod) if gpus is None else gpus,
            reason=_reason(job, report) if state in _WAITING else "",
            gpu=self._devices(pod, report) if node else (),
            numa=self._zones(uid) if node else (),
        )

    def _devices(self, pod: Pod, report: PodReport | None) -> tuple[str, ...]:
        """Return the GPUs that the pod holds, or was promised in the last cycle."""
        uid = Uid(pod.metadata.uid)
        data = self._handed_over(uid, hami.PLUGIN)
        if self._shares_by_hami or data is not None or hami.holds_devices(pod):
            return hami.devices_of(pod, data, self.cluster.nodes.get(pod.spec.node_name))
        held = self.engine.cluster.state.nodes.devices.held_by.get(uid)
        promised = report.devices if report is not None else ()
        return tuple(str(device) for device in (held.devices if held is not None else promised))

    def _zones(self, uid: Uid) -> tuple[int, ...]:
        """Return the NUMA zones that the pod holds, or the prediction in its BindRequest."""
        held = self.cluster.numa.zones_of(uid)
        if held is not None:
            return held
        data = self._handed_over(uid, numaplacement.PLUGIN)
        return numa.predicted_zones(data) if data is not None else ()

    def _handed_over(self, uid: Uid, plugin: str) -> Mapping[str, Any] | None:
        """Return the binder's data from a plugin about the pod `uid`."""
        for statement in self.cluster.statements.values():
            for pod in statement.spec.pods:
                if pod.pod_uid == uid and plugin in pod.plugin_data:
                    found: Mapping[str, Any] = pod.plugin_data[plugin]
                    return found
        return None

    def _allocated(self) -> dict[str, dict[str, float]]:
        """Return the amounts that each queue with all queues below holds: devices, cores, bytes."""
        table = self.engine.cluster.state.queues
        rows = {name: table.row(name) for name in self._queue_names}
        sums = rolled_up(table.allocated, table.chains())
        return {name: table.axis.in_wholes(sums[:, row]) for name, row in rows.items()}


def _gpus(pod: Pod) -> int:
    """Return the whole GPUs that a pod of the key `objects` requests."""
    try:
        return pod_amounts(pod.spec).get(GPU_RESOURCE, 0) // scale(GPU_RESOURCE)
    except QuantityError:  # the scheduler reports it
        return 0


def _reason(job: JobReport | None, pod: PodReport | None) -> str:
    """Return why a pod waits: the reason of its job, then its own."""
    texts = []
    if job is not None and job.reason != JobReason.SCHEDULED:
        texts.append(f"{job.reason}: {job.message}")
    if pod is not None and pod.message and (job is None or pod.message != job.message):
        texts.append(pod.message)
    return "; ".join(texts)
