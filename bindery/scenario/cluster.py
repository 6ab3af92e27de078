"""The in-memory cluster of a scenario: what an API server and the nodes would hold.

Driven by `runner`; `binding` plays the binder on it. Every change goes to `apply`, the very door
through which the scheduler's watches go. Invariant: the scheduler learns of nothing otherwise.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import msgspec

from bindery.api.names import NUMA_ZONES_ANNOTATION
from bindery.api.times import seconds, timestamp
from bindery.kube.objects.bindrequests import CommittedStatement
from bindery.kube.objects.claims import ResourceClaim, ResourceClaimTemplate
from bindery.kube.objects.membership import Claims
from bindery.kube.objects.podgroups import PodGroup
from bindery.kube.objects.recreated import recreated
from bindery.kube.objects.resources import PRIORITY_CLASSES
from bindery.kube.objects.watched import (
    KubeObject,
    Meta,
    Namespace,
    Node,
    Pod,
    PriorityClass,
)
from bindery.kube.watches.store import Change, EventType
from bindery.scenario import given_nodes, hami, objects, shares, topology
from bindery.scenario.charges import JobCharges
from bindery.scenario.claims import ClaimKeeper
from bindery.scenario.events import Event, InFlightRequest
from bindery.scenario.fields import expand
from bindery.scenario.format import BUILT_IN_PRIORITIES, Scenario
from bindery.scenario.given_objects import given_objects
from bindery.scenario.in_flight import request_object
from bindery.scenario.jobs import ScenarioJob, ScenarioPod
from bindery.scenario.naming import group_keys, pod_keys
from bindery.scenario.nodes import ScenarioDevice, ScenarioNode
from bindery.scenario.numa import NumaNodes
from bindery.scenario.objects import PodIdentity
from bindery.scenario.raw_objects import raw_objects_of
from bindery.scenario.states import FINISHED, ON_NODE, PodState
from bindery.scheduler.cache.members import job_key
from bindery.scheduler.model.jobs import JobKey

RequestName = tuple[str, str]
"""Namespace and name of a BindRequest."""
PartKey = tuple[str, str, str, int]
"""Namespace and name of a BindRequest; the id and the part of one of its Statements."""


@dataclass(frozen=True)
class PodRecord:
    """A pod and its origin in the scenario."""

    who: PodIdentity
    entry: ScenarioPod | None
    """Its entry in a job; None for one that is given as an object."""
    priority: int
    object: Pod
    stuck: bool
    job: JobKey

    @property
    def uid(self) -> str:
        """Its UID: another one in every life."""
        return self.object.metadata.uid

    @property
    def state(self) -> PodState:
        """The state by the pod object alone; only the scheduler knows Binding and Pipelined."""
        pod = self.object
        if pod.status.phase in FINISHED:
            return PodState(pod.status.phase)
        if pod.metadata.deletion_timestamp is not None:
            return PodState.STUCK_IN_RELEASING if self.stuck else PodState.RELEASING
        if pod.spec.node_name:
            return PodState.RUNNING if pod.status.phase == "Running" else PodState.BOUND
        return PodState.GATED if pod.spec.scheduling_gates else PodState.PENDING


class ScenarioCluster:
    """Nodes, pods and BindRequests by name. Only this class changes them."""

    def __init__(self, scenario: Scenario, apply: Callable[[Change[KubeObject]], None]) -> None:
        self._scenario = scenario
        self._apply = apply
        self._claims = ClaimKeeper(apply)
        self.numa = NumaNodes(apply)
        configuration = scenario.config.to_configuration()
        self._node_pool = configuration.node_pool
        self._stuck_after_s = configuration.stuck_in_releasing_seconds
        self.given = given_objects(scenario)
        self._pod_keys = pod_keys(scenario)
        self._group_keys = group_keys(scenario)
        self.now = scenario.now.timestamp()
        self.node_entries: dict[str, ScenarioNode] = {}
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, PodRecord] = {}
        """By name; one of several pods of a name by namespace/name."""
        self.requests: dict[PartKey, CommittedStatement] = {}
        """The Statements in BindRequests."""
        self.bound_statements: set[str] = set()
        """Ids of the Statements that have succeeded; their requests are gone."""

    def populate(self) -> None:
        """Create all initial objects of the scenario."""
        self._add_classes_and_namespaces()
        queues = self._scenario.queues
        for index, queue in enumerate(queues):
            self._added(objects.queue_object(queue, self.now - len(queues) + index))
        for entry in self._scenario.nodes:
            for name in expand(entry.name, entry.count):
                self._put_node(name, entry)
        for tree in self._scenario.topologies:
            self._added(topology.topology_object(tree))
        for hyper_node in self._scenario.hyper_nodes:
            self._added(topology.hyper_node_object(hyper_node))
        for item in raw_objects_of(self._scenario, self.now):
            if isinstance(item, (ResourceClaim, ResourceClaimTemplate)):
                self._claims.put(item)
            else:
                self._added(item)
        for job, created_at in zip(self._scenario.jobs, self._creation_times(), strict=True):
            self._create_job(job, created_at)
        for item in self.given.items:
            self._create_given(item)
        for request in self._scenario.bind_requests:
            self._create_in_flight(request)
        self.numa.publish()

    def _add_classes_and_namespaces(self) -> None:
        classes = {**BUILT_IN_PRIORITIES, **self._scenario.priority_classes}
        if self._scenario.objects_of(PRIORITY_CLASSES):
            classes = self._scenario.priority_classes
        for name, value in classes.items():
            meta = Meta(name=name, uid=objects.object_uid("priorityclass", "", name))
            self._added(PriorityClass(metadata=meta, value=value))
        for name, labels in self._scenario.namespaces.items():
            uid = objects.object_uid("namespace", "", name)
            self._added(Namespace(metadata=Meta(name=name, uid=uid, labels=labels)))

    def happen(self, event: Event) -> None:
        """Apply `event`: advance the clock, then change the objects."""
        self.now += event.advance
        for name in self._present(event.ungate):
            self._change_pod(name, scheduling_gates=None)
        for name in self._present(event.fail):
            self._set_phase(name, PodState.FAILED)
        for name in self._present(event.succeed):
            self._set_phase(name, PodState.SUCCEEDED)
        for name in self._present(event.delete):
            self._remove_pod(name)
        if event.node is not None:
            self._change_node(event.node)
        if event.job is not None:
            self._create_job(event.job, self.now)

    def run_pod(self, name: str, node_name: str) -> None:
        """Bind the pod `name` to a node, where it starts at once or is refused."""
        pod = self.pods[name].object
        refusal = self.numa.refusal(pod, node_name)
        status = msgspec.structs.replace(
            pod.status,
            phase=PodState.FAILED.value if refusal else PodState.RUNNING.value,
            reason=refusal,
            conditions=[objects.bound_condition(self.now)],
        )
        if not refusal:
            self.numa.start(pod, node_name)
        spec = msgspec.structs.replace(pod.spec, node_name=node_name)
        self._replace_pod(name, msgspec.structs.replace(pod, spec=spec, status=status))

    def evict_pod(self, name: str) -> None:
        """Begin to delete the pod `name`."""
        pod = self.pods[name].object
        metadata = msgspec.structs.replace(pod.metadata, deletion_timestamp=timestamp(self.now))
        self._replace_pod(name, msgspec.structs.replace(pod, metadata=metadata))

    def put_further(self, item: KubeObject) -> None:
        """Store a new state of an object that the binder has written."""
        if isinstance(item, Pod):
            meta = item.metadata
            self._replace_pod(self.pod_key(meta.namespace, meta.name), item)
        elif isinstance(item, ResourceClaim):
            self._claims.put(item)
        else:
            self._apply(Change(EventType.MODIFIED, item, None))

    def start_pods(self) -> None:
        """Start all pods on nodes that have not started."""
        for name, record in list(self.pods.items()):
            if record.state is PodState.BOUND:
                self.run_pod(name, record.object.spec.node_name)

    def release_pods(self) -> None:
        """Remove the pods that are being deleted and not stuck; some come back Pending."""
        for name, record in list(self.pods.items()):
            if record.state is not PodState.RELEASING:
                continue
            self._remove_pod(name)
            if not record.who.recreate:
                continue
            if record.entry is None:
                self._create_again(name, record)
            else:
                who = replace(
                    record.who,
                    generation=record.who.generation + 1,
                    created_at=self.now,
                    bound_at=None,
                )
                entry = record.entry.model_copy(
                    update={"state": PodState.PENDING, "node": "", "gpu": ()}
                )
                self._create_pod(who, entry, priority=record.priority)

    def put_request(self, statement: CommittedStatement) -> None:
        """Create a BindRequest or replace it by a newer state of it."""
        key = key_of(statement)
        previous = self.requests.get(key)
        self.requests[key] = statement
        kind = EventType.ADDED if previous is None else EventType.MODIFIED
        self._apply(Change(kind, statement, previous))

    def delete_statement(self, key: PartKey) -> None:
        """Delete a Statement; its BindRequest has no other, or is deleted with all."""
        statement = self.requests.pop(key)
        self._apply(Change(EventType.DELETED, statement, statement))

    def delete_request(self, name: RequestName) -> None:
        """Delete a BindRequest with all its Statements."""
        for key in [key for key in self.requests if key[:2] == name]:
            self.delete_statement(key)

    def request_names(self) -> set[RequestName]:
        """Return the names of all BindRequests."""
        return {key[:2] for key in self.requests}

    def pod_key(self, namespace: str, name: str) -> str:
        """Return the key in `pods` of the pod `name` of `namespace`."""
        return self._pod_keys.get((namespace, name), name)

    def live_places(self) -> dict[str, str]:
        """Return pod UID -> node of every pod in a BindRequest that has not ended."""
        return {
            pod.pod_uid: pod.selected_node
            for request in self.requests.values()
            if not request.is_final
            for pod in request.spec.pods
        }

    # -- nodes, jobs, requests -------------------------------------------------------------------

    def _put_node(self, name: str, entry: ScenarioNode) -> None:
        self.node_entries[name] = entry
        previous, node = self.nodes.get(name), objects.node_object(entry, name, self.now)
        self.nodes[name] = node
        self.numa.put_node(name, entry)
        kind = EventType.ADDED if previous is None else EventType.MODIFIED
        self._apply(Change(kind, node, previous))

    def _change_node(self, entry: ScenarioNode) -> None:
        """Apply the keys of `entry` that are written to the node of its name."""
        if entry.name in self.node_entries:
            changes = {key: getattr(entry, key) for key in entry.model_fields_set}
            self._put_node(entry.name, self.node_entries[entry.name].model_copy(update=changes))
        elif entry.name in self.nodes:  # not one that could not be read
            previous = self.nodes[entry.name]
            self.nodes[entry.name] = node = given_nodes.changed(previous, entry)
            self._apply(Change(EventType.MODIFIED, node, previous))

    def _creation_times(self) -> list[float]:
        """Return when each entry of `jobs` was created: in their order, however long they wait."""
        times: list[float] = []
        newer = self.now
        for job in reversed(self._scenario.jobs):
            newer = min(newer, self.now - (job.pending_for or 0.0)) - job.count
            times.append(newer)
        return times[::-1]

    def _create_job(self, job: ScenarioJob, created_at: float) -> None:
        priority = self._scenario.priority(job.priority) or 0
        for offset, name in enumerate(expand(job.name, job.count)):
            at = created_at + offset
            stale_since = None if job.stale_for is None else self.now - job.stale_for
            group = objects.group_object(job, name, self._node_pool, at, stale_since)
            self._added(group)
            charges = JobCharges(group, priority)
            pods_at = at if job.pending_for is None else self.now - job.pending_for
            entries = [entry for entry in job.pods for _ in range(entry.count)]
            for index, entry in enumerate(entries):
                # What says how long it will run, and not how long it has, has just begun.
                expected = group.spec.expected_runtime_seconds
                says = job.runtime is not None or expected is not None
                runs = entry.state in ON_NODE and says
                who = PodIdentity(
                    name,
                    job.namespace,
                    f"{name}-{index}",
                    created_at=pods_at,
                    bound_at=self.now - (job.runtime or 0.0) if runs else None,
                    spread_devices=job.spread_devices,
                    shared_devices=self._shared_devices(entry.node),
                    recreate=job.recreate,
                )
                self._create_pod(who, entry, priority=priority, charges=charges)

    def _shared_devices(self, node_name: str) -> tuple[ScenarioDevice, ...] | None:
        """Return the devices of a node, in a scenario about HAMi's protocol."""
        if not shares.shares_by_hami(self._scenario):
            return None
        node = self.node_entries.get(node_name)
        return hami.with_memory(node) if node is not None else ()

    def _create_in_flight(self, entry: InFlightRequest) -> None:
        records = [self.pods[name] for name in entry.pods if name in self.pods]
        pods = [(record.who.name, entry.uid or record.uid) for record in records]
        if not pods:  # given pods that could not be read
            return
        self.put_request(request_object(entry, records[0].who.namespace, pods, self.now))

    # -- given objects ---------------------------------------------------------------------------

    def _create_given(self, item: KubeObject) -> None:
        meta = item.metadata
        if isinstance(item, Pod):
            self.pods[self.pod_key(meta.namespace, meta.name)] = self._given_pod(item)
            self._added(item)
        elif isinstance(item, Node):
            self.nodes[meta.name] = item
            self._added(item)
        elif isinstance(item, CommittedStatement):
            self.put_request(item)
        elif isinstance(item, ResourceClaim | ResourceClaimTemplate):
            self._claims.put(item)
        else:
            self._added(item)

    def _given_pod(self, pod: Pod) -> PodRecord:
        meta = pod.metadata
        deleted_at = seconds(meta.deletion_timestamp)
        job = job_key(self._memberships, pod)
        name = self.pod_key(meta.namespace, meta.name)
        if job.is_group:
            name = self._group_keys.get((job.namespace, job.name), job.name)
        recreate = any(owner.controller for owner in meta.owner_references)
        return PodRecord(
            PodIdentity(name, meta.namespace, meta.name, recreate=recreate),
            None,
            pod.spec.priority or 0,
            pod,
            stuck=deleted_at is not None and deleted_at < self.now - self._stuck_after_s,
            job=job,
        )

    @cached_property
    def _memberships(self) -> Claims:
        return Claims(item for item in self.given.items if isinstance(item, PodGroup))

    def _create_again(self, name: str, record: PodRecord) -> None:
        """Create the pod that follows the given pod `name`."""
        who = replace(record.who, generation=record.who.generation + 1)
        uid = f"{record.uid.partition('+')[0]}+{who.generation}"
        pod = self._claims.renewed(recreated(record.object, uid, self.now))
        self.pods[name] = replace(record, who=who, object=pod)
        self._added(pod)

    # -- pods ------------------------------------------------------------------------------------

    def _create_pod(
        self,
        who: PodIdentity,
        entry: ScenarioPod,
        *,
        priority: int,
        charges: JobCharges | None = None,
    ) -> None:
        """Create a pod. `charges`: of its job, for a pod that may begin on a node."""
        pod = objects.pod_object(
            entry, who, priority=priority, node_pool=self._node_pool, now=self.now
        )
        pod = self._claims.complete(pod, entry.claims)
        if entry.state in ON_NODE:
            pod = self._with_zones(pod, entry)
            if charges is not None and not entry.scheduler_name:
                pod = charges.on(pod, entry)
        stuck = entry.state is PodState.STUCK_IN_RELEASING
        job = JobKey(who.namespace, who.job_name, True)
        self.pods[who.name] = PodRecord(who, entry, priority, pod, stuck, job)
        self._added(pod)

    def _with_zones(self, pod: Pod, entry: ScenarioPod) -> Pod:
        """Return a pod that begins on a node with the record of its NUMA zones, if it has some."""
        held = self.numa.start(pod, entry.node, entry.numa)
        if held is None or not held.zones or entry.scheduler_name:
            return pod
        record = held.placement().record(pod.metadata.uid)
        annotations = {NUMA_ZONES_ANNOTATION: record, **pod.metadata.annotations}
        metadata = msgspec.structs.replace(pod.metadata, annotations=annotations)
        return msgspec.structs.replace(pod, metadata=metadata)

    def _remove_pod(self, name: str) -> None:
        pod = self.pods.pop(name).object
        self.numa.stop(pod.metadata.uid)
        self._apply(Change(EventType.DELETED, pod, pod))
        self._claims.release(pod)

    def _set_phase(self, name: str, state: PodState) -> None:
        pod = self.pods[name].object
        self.numa.stop(pod.metadata.uid)
        status = msgspec.structs.replace(pod.status, phase=state.value)
        self._replace_pod(name, msgspec.structs.replace(pod, status=status))
        self._claims.release(pod)

    def _change_pod(self, name: str, **spec: object) -> None:
        pod = self.pods[name].object
        changed = msgspec.structs.replace(pod.spec, **spec)
        self._replace_pod(name, msgspec.structs.replace(pod, spec=changed))

    def _replace_pod(self, name: str, pod: Pod) -> None:
        record = self.pods[name]
        self.pods[name] = replace(record, object=pod)
        self._apply(Change(EventType.MODIFIED, pod, record.object))

    def _present(self, names: tuple[str, ...]) -> Iterator[str]:
        """Yield those of `names` that still exist: an event may come after a deletion."""
        return (name for name in names if name in self.pods)

    def _added(self, item: KubeObject) -> None:
        self._apply(Change(EventType.ADDED, item, None))


def key_of(statement: CommittedStatement) -> PartKey:
    """Return the key of `statement` in `ScenarioCluster.requests`."""
    meta, spec = statement.metadata, statement.spec
    return meta.namespace, meta.name, spec.id, spec.part
