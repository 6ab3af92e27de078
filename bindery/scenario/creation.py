"""Creates the objects of a scenario's entries, at the beginning and by events.

Used by `cluster`, and alone where only the objects are needed: `objects_of`, `snapshot_of`.
Invariant: everything goes through `put` of the store, so that a scheduler sees it as in a watch.
"""

from collections.abc import Callable
from functools import cached_property

import msgspec

from bindery.api import exclusive, preemptibility
from bindery.api.names import (
    CHARGED_PREEMPTIBILITY_ANNOTATION,
    EXCLUSIVE_DOMAINS_ANNOTATION,
    NUMA_ZONES_ANNOTATION,
)
from bindery.api.states import NON_PREEMPTIBLE_FROM
from bindery.kube.objects.claims import ResourceClaimTemplate
from bindery.kube.objects.podgroups import PodGroup
from bindery.kube.objects.resources import PRIORITY_CLASSES
from bindery.kube.objects.snapshot import ClusterSnapshot
from bindery.kube.objects.watched import KubeObject, Meta, Namespace, Pod, PriorityClass
from bindery.kube.watches.store import key_of
from bindery.scenario import hami, objects, shares, topology
from bindery.scenario.claims import ClaimKeeper
from bindery.scenario.fields import expand
from bindery.scenario.format import BUILT_IN_PRIORITIES, Scenario
from bindery.scenario.given_objects import given_objects
from bindery.scenario.jobs import ScenarioJob, ScenarioPod
from bindery.scenario.naming import pod_keys
from bindery.scenario.nodes import ScenarioDevice, ScenarioNode
from bindery.scenario.numa import NumaNodes
from bindery.scenario.objects import PodIdentity
from bindery.scenario.raw_objects import raw_objects_of
from bindery.scenario.states import ON_NODE
from bindery.scheduler.cache.reading import read_group
from bindery.scheduler.model.jobs import Job, JobKey
from bindery.scheduler.world import Objects


class JobCharges:
    """The records of the binder on the pods of one job. `priority`: of the job."""

    def __init__(self, group: PodGroup, priority: int) -> None:
        self._group, self._priority = group, priority

    @cached_property
    def _job(self) -> Job:
        meta = self._group.metadata
        job = Job(JobKey(meta.namespace, meta.name, True))
        read_group(job, self._group)
        return job

    def on(self, pod: Pod, entry: ScenarioPod) -> Pod:
        """Return `pod` of `entry`, which is on a node, with the records of its binding."""
        charged_as = preemptibility.word(self._is_preemptible(entry))
        records: dict[str, str] = {CHARGED_PREEMPTIBILITY_ANNOTATION: charged_as}
        meta = pod.metadata
        unit = exclusive.exclusive_unit(meta.annotations, meta.labels)
        levels = self._job.exclusive_levels(entry.sub_group, unit)
        if levels and entry.exclusive is not False:
            held = exclusive.HeldDomains(levels=levels)
            records[EXCLUSIVE_DOMAINS_ANNOTATION] = held.record(meta.uid)
        annotations = {**records, **meta.annotations}
        return msgspec.structs.replace(
            pod, metadata=msgspec.structs.replace(meta, annotations=annotations)
        )

    def _is_preemptible(self, entry: ScenarioPod) -> bool:
        for said in (entry.charged_preemptible, entry.preemptible, self._job.own_preemptible):
            if said is not None:
                return said
        return self._priority < NON_PREEMPTIBLE_FROM


class Creator:
    """Creates objects in `store`. `clock` returns seconds since the epoch."""

    def __init__(self, scenario: Scenario, store: Objects, clock: Callable[[], float]) -> None:
        self._scenario, self._store, self._clock = scenario, store, clock
        self._node_pool = scenario.config.to_configuration().node_pool
        self._pod_keys = pod_keys(scenario)
        self.given = given_objects(scenario)
        self.claims = ClaimKeeper(store)
        self.numa = NumaNodes(store.put)
        self.nodes: dict[str, ScenarioNode] = {}
        """The entries of nodes, with the changes of events."""
        self.gpus: dict[str, int] = {}
        """Pod -> whole GPUs by its entry."""

    def populate(self) -> None:
        """Create all initial objects of the scenario."""
        scenario, put, now = self._scenario, self._store.put, self._clock()
        self._put_classes_and_namespaces()
        for index, queue in enumerate(scenario.queues):
            put(objects.queue_object(queue, now - len(scenario.queues) + index))
        for entry in scenario.nodes:
            for name in expand(entry.name, entry.count):
                self.put_node(name, entry)
        for tree in scenario.topologies:
            put(topology.topology_object(tree))
        for hyper_node in scenario.hyper_nodes:
            put(topology.hyper_node_object(hyper_node))
        for item in raw_objects_of(scenario, now):
            self._put(item)
        for job, created_at in zip(scenario.jobs, self._creation_times(), strict=True):
            self.create_job(job, created_at)
        for item in self.given.items:
            self._put(item)
        self._create_requests()
        self.numa.publish()

    def name_of(self, namespace: str, name: str) -> str:
        """Return the name by which the scenario knows the pod `name` of `namespace`."""
        return self._pod_keys.get((namespace, name), name)

    def put_node(self, name: str, entry: ScenarioNode) -> None:
        """Create the node of `entry`, or change it."""
        self.nodes[name] = entry
        self._store.put(objects.node_object(entry, name, self._clock()))
        self.numa.put_node(name, entry)

    def create_job(self, job: ScenarioJob, created_at: float) -> None:
        """Create the PodGroups and pods of an entry; `created_at` of the first PodGroup."""
        now, priority = self._clock(), self._scenario.priority(job.priority) or 0
        for offset, name in enumerate(expand(job.name, job.count)):
            at = created_at + offset
            stale_since = None if job.stale_for is None else now - job.stale_for
            group = objects.group_object(job, name, self._node_pool, at, stale_since)
            self._store.put(group)
            charges = JobCharges(group, priority)
            pods_at = at if job.pending_for is None else now - job.pending_for
            entries = [entry for entry in job.pods for _ in range(entry.count)]
            for index, entry in enumerate(entries):
                # A pod with an expected runtime and no past one has just started.
                expected = group.spec.expected_runtime_seconds
                is_timed = job.runtime is not None or expected is not None
                runs = entry.state in ON_NODE and is_timed
                who = PodIdentity(
                    name,
                    job.namespace,
                    f"{name}-{index}",
                    priority=priority,
                    created_at=pods_at,
                    bound_at=now - (job.runtime or 0.0) if runs else None,
                    spread_devices=job.spread_devices,
                    shared_devices=self._shared_devices(entry.node),
                    recreate=job.recreate,
                )
                self._create_pod(who, entry, charges)

    def _put(self, item: KubeObject) -> None:
        if isinstance(item, ResourceClaimTemplate):  # the scheduler does not watch them
            self.claims.templates[key_of(item.metadata)] = item
        else:
            self._store.put(item)

    def _put_classes_and_namespaces(self) -> None:
        classes = {**BUILT_IN_PRIORITIES, **self._scenario.priority_classes}
        if self._scenario.objects_of(PRIORITY_CLASSES):
            classes = self._scenario.priority_classes
        for name, value in classes.items():
            meta = Meta(name=name, uid=objects.object_uid("priorityclass", "", name))
            self._store.put(PriorityClass(metadata=meta, value=value))
        for name, labels in self._scenario.namespaces.items():
            uid = objects.object_uid("namespace", "", name)
            self._store.put(Namespace(metadata=Meta(name=name, uid=uid, labels=labels)))

    def _creation_times(self) -> list[float]:
        """Return the creation time of each entry of `jobs`; they ascend, however long jobs wait."""
        times: list[float] = []
        newer = now = self._clock()
        for job in reversed(self._scenario.jobs):
            newer = min(newer, now - (job.pending_for or 0.0)) - job.count
            times.append(newer)
        return times[::-1]

    def _shared_devices(self, node_name: str) -> tuple[ScenarioDevice, ...] | None:
        """Return the devices of a node, in a scenario about HAMi's protocol."""
        if not shares.shares_by_hami(self._scenario):
            return None
        node = self.nodes.get(node_name)
        return hami.with_memory(node) if node is not None else ()

    def _create_pod(self, who: PodIdentity, entry: ScenarioPod, charges: JobCharges) -> None:
        """Create a pod. `charges`: of its job, for a pod that begins on a node."""
        pod = objects.pod_object(entry, who, node_pool=self._node_pool, now=self._clock())
        pod = self.claims.complete(pod, entry.claims)
        if entry.state in ON_NODE:
            pod = self._with_zones(pod, entry)
            if not entry.scheduler_name:
                pod = charges.on(pod, entry)
        self.gpus[who.name] = entry.gpus
        self._store.put(pod)

    def _with_zones(self, pod: Pod, entry: ScenarioPod) -> Pod:
        """Return a pod that begins on a node with the record of its NUMA zones, if it has some."""
        held = self.numa.start(pod, entry.node, entry.numa)
        if held is None or not held.zones or entry.scheduler_name:
            return pod
        record = held.placement().record(pod.metadata.uid)
        annotations = {NUMA_ZONES_ANNOTATION: record, **pod.metadata.annotations}
        metadata = msgspec.structs.replace(pod.metadata, annotations=annotations)
        return msgspec.structs.replace(pod, metadata=metadata)

    def _create_requests(self) -> None:
        metas = (pod.metadata for pod in self._store.pods.values())
        known = {self.name_of(meta.namespace, meta.name): meta for meta in metas}
        for entry in self._scenario.bind_requests:
            pods = [known[name] for name in entry.pods if name in known]
            if pods:  # given pods may be unreadable
                self._store.put(objects.request_object(entry, pods, self._clock()))


def objects_of(scenario: Scenario) -> list[KubeObject]:
    """Return all objects with which `scenario` begins."""
    store, now = Objects(lambda _: None), scenario.now.timestamp()
    Creator(scenario, store, lambda: now).populate()
    return store.everything()


def snapshot_of(scenario: Scenario) -> ClusterSnapshot:
    """Return the cluster with which `scenario` begins."""
    return ClusterSnapshot.of(objects_of(scenario))
