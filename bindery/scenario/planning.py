"""The scheduler of a scenario: the engine on the in-memory cluster, and its reports.

Used by `runner`. It does what the scheduler process does around its engine: creates the drafts,
removes requests that no binder will finish, reads the report. Invariant: no decision is made here.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from http import HTTPStatus
from itertools import groupby
from typing import Any

import msgspec

from bindery.api import numaplacement
from bindery.api.names import GPU_RESOURCE
from bindery.api.quantity import QuantityError, scale
from bindery.api.times import timestamp
from bindery.kube.objects.resources import QUEUES
from bindery.kube.objects.watched import KubeObject
from bindery.kube.objects.workloads import WorkloadJob
from bindery.kube.watches.store import Change
from bindery.scenario import hami, numa, objects
from bindery.scenario.cluster import PodRecord, ScenarioCluster
from bindery.scenario.expect import Observation, PodView
from bindery.scenario.faults import Faults
from bindery.scenario.format import Scenario
from bindery.scenario.given_objects import usage_history
from bindery.scenario.states import PodState
from bindery.scheduler.commit.drafts import StatementDraft
from bindery.scheduler.commit.requests import as_stored
from bindery.scheduler.commit.stale import stale_requests
from bindery.scheduler.engine import Engine
from bindery.scheduler.model.evictions import Eviction
from bindery.scheduler.model.jobs import JobKey, Uid
from bindery.scheduler.model.queues import rolled_up
from bindery.scheduler.model.reasons import JobReason
from bindery.scheduler.model.resources import pod_amounts
from bindery.scheduler.planning.reports import CycleReport, JobReport, PodReport, RefusedPlan
from bindery.scheduler.usage.record import UsageRecord
from bindery.scheduler.usage.source import GivenUsage, PastUsage

_WAITING = frozenset({PodState.PENDING, PodState.PIPELINED, PodState.GATED})


class Planner:
    """Runs cycles over `cluster` and observes them."""

    def __init__(self, scenario: Scenario, faults: Faults) -> None:
        self.cluster = ScenarioCluster(scenario, self._learn)
        self._faults = faults
        self._configuration = scenario.config.to_configuration()
        self.engine = Engine(self._configuration, lambda: self.cluster.now)
        usage = {queue.name: queue.usage for queue in scenario.queues if queue.usage}
        history = usage_history(self.cluster.given, self._configuration)
        if usage:
            self.engine.past = PastUsage(GivenUsage(usage), self._configuration.usage.k_value)
        elif history is not None and isinstance(self.engine.past.source, UsageRecord):
            self.engine.past.source.precede(history)
        self._queue_names = [queue.name for queue in scenario.queues]
        self._queue_names += [each.name for each in scenario.objects_of(QUEUES)]
        self._report = CycleReport()
        self._actions = 0
        self._evictions = 0
        self._moved: dict[str, str] = {}
        """Pod -> the node to which this cycle moves it."""
        self._dropped: set[JobKey] = set()
        """Jobs for which no room is made after all, as an eviction was refused."""

    def plan(self) -> None:
        """Run one cycle and write what it commits."""
        self._clear_stale_requests()
        statements: defaultdict[tuple[str, str], list[StatementDraft]] = defaultdict(list)
        for draft in self.engine.cycle():
            statements[draft.namespace, draft.spec.id].append(draft)
        refused: set[str] = set()
        for parts in statements.values():
            if not self._write(parts, refused):
                refused.add(parts[0].spec.id)
        self._report = self.engine.report
        self._moved.clear()
        self._dropped.clear()
        for preemptor, plan in groupby(self._report.evictions, key=lambda e: e.preemptor):
            self._evict(preemptor, list(plan))

    def observe(self, pipelined_as: PodState = PodState.PIPELINED) -> Observation:
        """Return the cluster as it is; a promise lasts for its cycle and is `pipelined_as`."""
        places = self.cluster.live_places()
        return Observation(
            pods={
                name: self._view(record, places, pipelined_as)
                for name, record in self.cluster.pods.items()
            },
            allocated=self._allocated(),
            fair_shares={
                name: self._report.fair_shares.get(name, {}) for name in self._queue_names
            },
            bind_requests=len(self.cluster.request_names()),
            evictions=self._evictions,
            actions=self._actions,
            node_labels={name: node.metadata.labels for name, node in self.cluster.nodes.items()},
        )

    def _learn(self, change: Change[KubeObject]) -> None:
        if not isinstance(change.object, WorkloadJob):  # the scheduler does not watch them
            self.engine.cluster.apply(change)

    def _clear_stale_requests(self) -> None:
        stale = stale_requests(
            self.engine.cluster, self.cluster.now, self._configuration.bind_request.timeout_seconds
        )
        for found in list(stale):
            statement, meta = found.statement, found.statement.metadata
            names = [pod.pod_name for pod in statement.spec.pods]
            if self._faults.error("deleteBindRequest", names) is not None:
                continue
            if found.has_neighbours:
                self.cluster.put_request(msgspec.structs.replace(statement, is_withdrawn=True))
            else:
                self.cluster.delete_request((meta.namespace, meta.name))

    def _write(self, parts: Sequence[StatementDraft], refused: Collection[str]) -> bool:
        """Create all parts of a Statement; if the API server refuses one, take all back.

        So it goes with a Statement that builds on one of those `refused`. Returns whether it was
        written.
        """
        is_lost = parts[0].spec.after in refused
        for draft in parts:
            names = [pod.pod_name for pod in draft.spec.pods]
            code = self._faults.error("createBindRequest", names)
            if code is None and (draft.namespace, draft.name) in self.cluster.request_names():
                code = HTTPStatus.CONFLICT
            if code is not None or is_lost:
                for each in parts:
                    self.engine.refused(each)
                return False
        for draft in parts:
            request = as_stored(draft)
            metadata = msgspec.structs.replace(
                request.metadata,
                uid=objects.object_uid("bindrequest", draft.namespace, draft.name),
                creation_timestamp=timestamp(self.cluster.now),
            )
            self.cluster.put_request(msgspec.structs.replace(request, metadata=metadata))
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
            key = self.cluster.pod_key(each.task.namespace, each.task.name)
            self.cluster.evict_pod(key)
            if each.moves_to:
                self._moved[key] = each.moves_to
        self._evictions += len(plan)
        self._actions += len(plan)

    # -- observing -------------------------------------------------------------------------------

    def _view(
        self, record: PodRecord, places: Mapping[str, str], pipelined_as: PodState
    ) -> PodView:
        job, pod = self._reports(record)
        key = self.cluster.pod_key(record.who.namespace, record.who.name)
        state, node = record.state, record.object.spec.node_name
        if state is PodState.PENDING and record.uid in places:
            state, node = PodState.BINDING, places[record.uid]
        elif state is PodState.RELEASING and key in self._moved:
            state, node = PodState.PIPELINED, self._moved[key]
        elif state is PodState.PENDING and pod is not None and pod.state == PodState.PIPELINED:
            dropped = job is not None and job.key in self._dropped
            state = PodState.PENDING if dropped else pipelined_as
            node = pod.node if state is PodState.PIPELINED else ""
        return PodView(
            job=record.who.job_name,
            state=state,
            node=node,
            gpus=_gpus(record),
            reason=_reason(job, pod) if state in _WAITING else "",
            gpu=self._devices(record, pod) if node else (),
            numa=self._zones(record) if node else (),
        )

    def _devices(self, record: PodRecord, pod: PodReport | None) -> tuple[str, ...]:
        """Return the GPUs that the pod holds, or was promised in the last cycle."""
        data, holds = (
            self._handed_over(record.uid, hami.PLUGIN),
            hami.holds_devices(record.object),
        )
        if record.who.shared_devices is not None or data is not None or holds:
            node = self.cluster.nodes.get(record.object.spec.node_name)
            return hami.devices_of(record.object, data, node)
        held = self.engine.cluster.state.nodes.devices.held_by.get(Uid(record.uid))
        promised = pod.devices if pod is not None else ()
        return tuple(str(device) for device in (held.devices if held is not None else promised))

    def _zones(self, record: PodRecord) -> tuple[int, ...]:
        """Return the NUMA zones that the pod holds, or that the binder was told."""
        held = self.cluster.numa.zones_of(record.uid)
        if held is not None:
            return held
        data = self._handed_over(record.uid, numaplacement.PLUGIN)
        return numa.predicted_zones(data) if data is not None else ()

    def _handed_over(self, uid: str, plugin: str) -> Mapping[str, Any] | None:
        """Return the binder's data from a plugin about the pod `uid`."""
        for request in self.cluster.requests.values():
            for pod in request.spec.pods:
                if pod.pod_uid == uid and plugin in pod.plugin_data:
                    found: Mapping[str, Any] = pod.plugin_data[plugin]
                    return found
        return None

    def _reports(self, record: PodRecord) -> tuple[JobReport | None, PodReport | None]:
        job = self._report.jobs.get(record.job)
        return job, job.pods.get(Uid(record.uid)) if job is not None else None

    def _allocated(self) -> dict[str, dict[str, float]]:
        """Return what each queue and those below it hold, in devices, cores and bytes."""
        table = self.engine.cluster.state.queues
        rows = {name: table.row(name) for name in self._queue_names}
        sums = rolled_up(table.allocated, table.chains())
        return {name: table.axis.in_wholes(sums[:, row]) for name, row in rows.items()}


def _gpus(record: PodRecord) -> int:
    """Return how many whole GPUs the pod requests."""
    if record.entry is not None:
        return record.entry.gpus
    try:
        return pod_amounts(record.object.spec).get(GPU_RESOURCE, 0) // scale(GPU_RESOURCE)
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
