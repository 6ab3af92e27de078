"""Random changes of the objects of an API server, with one watch a kind in any interleaving.

The events of each kind arrive in order; the watches of different kinds are not in step.
"""

from collections import defaultdict, deque
from collections.abc import Mapping
from typing import Any

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from bindery.api.configuration import SchedulerConfiguration
from bindery.api.names import (
    CHARGED_GROUP_ANNOTATION,
    CHARGED_PREEMPTIBILITY_ANNOTATION,
    CHARGED_QUEUE_ANNOTATION,
    POD_GROUP_ANNOTATION,
    PREEMPTIBLE_ANNOTATION,
    QUEUE_LABEL,
    SUB_GROUP_LABEL,
)
from bindery.kube.objects import podspec
from bindery.kube.objects import watched as kube
from bindery.kube.objects.bindrequests import BindRequest, CommittedStatement, StatementStatus
from bindery.kube.objects.podgroups import Mark, Member, PodGroup, SubGroup
from bindery.kube.objects.queues import Queue
from bindery.kube.watches.store import Change, EventType
from bindery.scheduler.cache.cluster import Cluster
from bindery.scheduler.cache.feed import statement_changes
from bindery.scheduler.cache.holds import LINGER_S
from bindery.scheduler.model.jobs import TaskStatus
from tests.scheduler.recounting import recount, view
from tests.scheduler.schedulerworld import (
    CONTROLLER,
    NOW,
    group,
    node,
    pod,
    queue,
    request,
    shared_request,
)

NODES = ("n0", "n1", "n2")
QUEUES = ("default", "q0", "q1")
GROUPS = ("g0", "g1")
GROUP_SPECS: list[dict[str, Any]] = [
    {},
    {"preemptibility": "NonPreemptible"},
    {"roles": {"worker": 1}, "preemption_delay_seconds": 5.0},
    {"sub_groups": [SubGroup(name="left", min_member=1)], "min_sub_group": 1},
    {"sub_groups": [SubGroup(name="left", parent="left")]},
    {"staleness_grace_period_seconds": 9.0, "expected_runtime_seconds": 60.0},
    {"members": [Member(controller=CONTROLLER.uid)]},
    {"members": [Member(controller=CONTROLLER.uid, pod_labels={"part": "left"})]},
    {
        "members": [
            Member(label=Mark(key="team", value="a")),
            Member(scheduling_group="upstream"),
        ],
        "sub_groups": [
            SubGroup(name="left", min_member=1, pod_labels={"part": "left"}),
            SubGroup(name="right", min_member=1, pod_labels={"team": "a"}),
        ],
    },
    {"members": [Member(pod="uid-3"), Member(pod="uid-4", controller="both")]},
]
POD_SPECS: list[dict[str, Any]] = [
    {},
    {},
    {"preemptible": True},
    {"preemptible": False},
    {"priority": 200},
    {"role": "worker", "sub_group": "left"},
    {"labels": {"team": "a"}},
    {"labels": {"team": "a", "part": "left"}, "controlled": False},
    {"scheduling_group": podspec.SchedulingGroup(pod_group_name="upstream"), "controlled": False},
]
LABELS: list[dict[str, str]] = [{QUEUE_LABEL: "q1"}, {"team": "a"}, {"part": "left"}]
Key = tuple[type[kube.KubeObject], str]


def fresh(objects: list[kube.KubeObject], configuration: SchedulerConfiguration) -> Cluster:
    """Return a new cache with `objects`."""
    cluster = Cluster(configuration, lambda: NOW)
    for item in objects:
        apply(cluster, Change(EventType.ADDED, item, None))
    return cluster


def apply(cluster: Cluster, change: Change[kube.KubeObject]) -> None:
    """Apply a change as the feed does."""
    for each in statement_changes(change):
        cluster.apply(each)


def recorded(
    meta: kube.Meta, queue: str, group: str = "", charged_as: str = "Preemptible"
) -> kube.Meta:
    """Return `meta` with the queue that the binder has charged the pod to; `group`: a UID."""
    annotations = {**meta.annotations, CHARGED_QUEUE_ANNOTATION: queue}
    annotations[CHARGED_PREEMPTIBILITY_ANNOTATION] = charged_as
    if group:
        annotations[CHARGED_GROUP_ANNOTATION] = group
    return msgspec.structs.replace(meta, annotations=annotations)


class CacheMachine(RuleBasedStateMachine):
    """The cache follows, event by event."""

    @initialize(trusts_records=st.booleans())
    def begin(self, trusts_records: bool) -> None:
        self.configuration = SchedulerConfiguration(tenancy_policy_enforced=trusts_records)
        self.truth: dict[Key, kube.KubeObject] = {}
        self.untold: defaultdict[type[kube.KubeObject], deque[Change[Any]]] = defaultdict(deque)
        self.cluster = fresh([], self.configuration)
        self.count = 0

    # -- the API server ------------------------------------------------------------------------

    def put(self, item: kube.KubeObject) -> None:
        key = (type(item), item.metadata.name)
        previous = self.truth.get(key)
        self.truth[key] = item
        kind = EventType.ADDED if previous is None else EventType.MODIFIED
        self.untold[type(item)].append(Change(kind, item, previous))

    def drop(self, item: kube.KubeObject) -> None:
        del self.truth[type(item), item.metadata.name]
        self.untold[type(item)].append(Change(EventType.DELETED, item, item))

    def all_of(self, kind: type[Any]) -> list[Any]:
        return [item for (of, _), item in sorted(self.truth.items(), key=str) if of is kind]

    def new_uid(self) -> str:
        self.count += 1
        return f"uid-{self.count}"

    # -- nodes, queues, groups -----------------------------------------------------------------

    @rule(
        name=st.sampled_from(NODES),
        cpu=st.integers(1, 9),
        gpu=st.integers(0, 2),
        model=st.sampled_from([None, "H100", "A100"]),
    )
    def put_node(self, name: str, cpu: int, gpu: int, model: str | None) -> None:
        more = {"example.com/rare": cpu} if gpu else {}
        self.put(node(name, cpu, gpu, model=model, more=more))

    @rule(name=st.sampled_from(NODES))
    def drop_node(self, name: str) -> None:
        if (kube.Node, name) in self.truth:
            self.drop(self.truth[kube.Node, name])

    @rule(name=st.sampled_from(QUEUES), parent=st.sampled_from([None, *QUEUES]))
    def put_queue(self, name: str, parent: str | None) -> None:
        self.put(queue(name, parent=parent, cpu=4))

    @rule(name=st.sampled_from(QUEUES))
    def drop_queue(self, name: str) -> None:
        if (Queue, name) in self.truth:
            self.drop(self.truth[Queue, name])

    @rule(
        name=st.sampled_from(GROUPS),
        minimum=st.integers(-1, 3),
        of=st.sampled_from(QUEUES),
        says=st.sampled_from(GROUP_SPECS),
        charged=st.sampled_from(["", "q0"]),
        created=st.sampled_from(["2025-06-15T14:00:00Z", "2025-06-15T15:00:00Z"]),
    )
    def put_group(
        self, *, name: str, minimum: int, of: str, says: dict[str, Any], charged: str, created: str
    ) -> None:
        old = self.truth.get((PodGroup, name))
        uid = old.metadata.uid if old is not None else self.new_uid()
        high = "high" if minimum else None
        self.put(
            group(
                name,
                minimum,
                of,
                uid=uid,
                priority_class=high,
                charged=charged,
                created=created,
                **says,
            )
        )

    @rule(value=st.sampled_from([50, 100]))
    def put_priority_class(self, value: int) -> None:
        self.put(kube.PriorityClass(metadata=kube.Meta(name="high"), value=value))

    @rule()
    def drop_priority_class(self) -> None:
        if (kube.PriorityClass, "high") in self.truth:
            self.drop(self.truth[kube.PriorityClass, "high"])

    @rule(name=st.sampled_from(GROUPS))
    def drop_group(self, name: str) -> None:
        if (PodGroup, name) in self.truth:
            self.drop(self.truth[PodGroup, name])

    # -- pods ----------------------------------------------------------------------------------

    @rule(
        name=st.sampled_from([f"p{i}" for i in range(6)]),
        of=st.sampled_from([None, *GROUPS]),
        in_queue=st.sampled_from([None, *QUEUES]),
        cpu=st.integers(1, 3),
        gpu=st.integers(0, 1),
        gated=st.booleans(),
        says=st.sampled_from(POD_SPECS),
        scheduler=st.sampled_from(["bindery", "bindery", "other"]),
        on=st.sampled_from(["", "", *NODES]),
    )
    def create_pod(
        self,
        *,
        name: str,
        of: str | None,
        in_queue: str | None,
        cpu: int,
        gpu: int,
        gated: bool,
        says: dict[str, Any],
        scheduler: str,
        on: str,
    ) -> None:
        old = self.truth.get((kube.Pod, name))
        if old is not None:
            self.drop(old)
        uid = self.new_uid()
        self.put(
            pod(
                name,
                cpu,
                gpu,
                group=of,
                queue=in_queue,
                uid=uid,
                gated=gated and not on,
                scheduler=scheduler,
                on=on,
                **says,
            )
        )

    def _pod(self, data: st.DataObject) -> kube.Pod:
        pods: list[kube.Pod] = self.all_of(kube.Pod)
        return data.draw(st.sampled_from(pods))

    @precondition(lambda self: self.all_of(kube.Pod))
    @rule(
        data=st.data(),
        what=st.sampled_from(["ungate", "bind", "relabel", "regroup", "finish", "fail", "leave"]),
        to=st.sampled_from([*NODES, "unknown"]),
        charged=st.sampled_from(QUEUES),
        labels=st.sampled_from(LABELS),
    )
    def change_pod(
        self, data: st.DataObject, what: str, to: str, charged: str, labels: dict[str, str]
    ) -> None:
        old = self._pod(data)
        meta, spec, status = old.metadata, old.spec, old.status
        replace = msgspec.structs.replace
        if what == "ungate":
            spec = replace(spec, scheduling_gates=None)
        elif what == "bind":
            if spec.node_name or spec.scheduling_gates:
                return
            spec = replace(spec, node_name=to)
            word = "NonPreemptible" if charged == "q1" else "Preemptible"
            meta = recorded(meta, charged, self._group_of(meta), word)
        elif what == "relabel":
            meta = replace(meta, labels=labels)
        elif what == "regroup":
            record = meta.annotations.get(CHARGED_QUEUE_ANNOTATION)
            meta = replace(meta, annotations={"scheduling.bindery.dev/pod-group": "g1"})
            of = old.metadata.annotations.get(CHARGED_GROUP_ANNOTATION, "")
            word = old.metadata.annotations.get(CHARGED_PREEMPTIBILITY_ANNOTATION, "")
            meta = recorded(meta, record, of, word) if record else meta
        elif what == "leave":
            meta = replace(meta, deletion_timestamp="2025-06-15T15:06:41Z")
        else:
            status = replace(status, phase="Succeeded" if what == "finish" else "Failed")
        self.put(replace(old, metadata=meta, spec=spec, status=status))

    def _group_of(self, meta: kube.Meta) -> str:
        """Return the UID of the PodGroup that a pod names."""
        name = meta.annotations.get(POD_GROUP_ANNOTATION, "")
        found = self.truth.get((PodGroup, name))
        return found.metadata.uid if found is not None else ""

    @precondition(lambda self: self.all_of(kube.Pod))
    @rule(data=st.data())
    def drop_pod(self, data: st.DataObject) -> None:
        self.drop(self._pod(data))

    # -- requests ------------------------------------------------------------------------------

    @precondition(lambda self: self.all_of(kube.Pod))
    @rule(data=st.data(), to=st.sampled_from([*NODES, "unknown"]), charges=st.sampled_from(QUEUES))
    def create_request(self, data: st.DataObject, to: str, charges: str) -> None:
        pods = self.all_of(kube.Pod)
        statements = []
        for _ in range(data.draw(st.integers(1, 3), "Statements")):
            chosen = data.draw(st.lists(st.sampled_from(pods), min_size=1, max_size=3))
            uids = {pod.metadata.uid: to for pod in chosen if not pod.spec.node_name}
            if uids:
                self.count += 1
                statements.append(request(f"r{self.count}", uids, queue=charges))
        if statements:
            self.put(shared_request(statements[0].metadata.name, *statements))

    @precondition(lambda self: self.all_of(BindRequest))
    @rule(data=st.data(), succeeds=st.booleans())
    def finish_statement(self, data: st.DataObject, succeeds: bool) -> None:
        stored: BindRequest = data.draw(st.sampled_from(self.all_of(BindRequest)))
        statements = list(stored.each())
        index = data.draw(st.integers(0, len(statements) - 1), "Statement")
        item = statements[index]
        if item.is_final:
            return
        bound = self._bind(item) if succeeds else []
        status = StatementStatus(
            phase="Succeeded" if bound else "Failed",
            bound_pods=bound,
            completion_time="2025-06-15T15:00:00Z",
        )
        statements[index] = msgspec.structs.replace(item, status=status)
        self.put(shared_request(stored.metadata.name, *statements))

    def _bind(self, item: CommittedStatement) -> list[str]:
        """Bind what can be bound of `item`; return the UIDs."""
        by_uid = {pod.metadata.uid: pod for pod in self.all_of(kube.Pod)}
        bound = []
        for place in item.spec.pods:
            found = by_uid.get(place.pod_uid)
            if found is not None and not found.spec.node_name and not found.spec.scheduling_gates:
                spec = msgspec.structs.replace(found.spec, node_name=place.selected_node)
                meta = recorded(found.metadata, item.spec.queue)
                self.put(msgspec.structs.replace(found, metadata=meta, spec=spec))
                bound.append(place.pod_uid)
        return bound

    @precondition(lambda self: self.all_of(BindRequest))
    @rule(data=st.data())
    def drop_request(self, data: st.DataObject) -> None:
        self.drop(data.draw(st.sampled_from(self.all_of(BindRequest))))

    # -- the watches ---------------------------------------------------------------------------

    @precondition(lambda self: any(self.untold.values()))
    @rule(data=st.data(), most=st.integers(1, 6))
    def tell(self, data: st.DataObject, most: int) -> None:
        kinds = sorted((kind for kind, changes in self.untold.items() if changes), key=str)
        changes = self.untold[data.draw(st.sampled_from(kinds))]
        for _ in range(min(most, len(changes))):
            apply(self.cluster, changes.popleft())

    @invariant()
    def columns_are_what_the_pods_say(self) -> None:
        if hasattr(self, "cluster"):
            assert view(self.cluster.state) == recount(self.cluster.state)

    def teardown(self) -> None:
        if not hasattr(self, "cluster"):
            return
        for changes in self.untold.values():
            for change in changes:
                apply(self.cluster, change)
        expected = fresh(list(self.truth.values()), self.configuration)
        for each in (self.cluster, expected):  # the holds of deleted requests stay for a moment
            each.note_time(NOW + LINGER_S)
        assert view(self.cluster.state) == recount(self.cluster.state)
        if self.configuration.tenancy_policy_enforced:  # else it goes by what it has seen
            assert view(self.cluster.state) == view(expected.state)
        assert self.cluster.groups == expected.groups
        assert self.cluster.pods == expected.pods
        assert self.cluster.queues == expected.queues
        self._statuses_are_those_of_the_objects()

    def _statuses_are_those_of_the_objects(self) -> None:
        """Compare with a reading of pods and requests that shares nothing with the cache's."""
        classes = {each.metadata.name: each.value for each in self.all_of(kube.PriorityClass)}
        groups = {each.metadata.name: each for each in self.all_of(PodGroup)}
        live = {
            place.pod_uid
            for stored in self.all_of(BindRequest)
            for item in stored.each()
            if item.status.phase == "Pending"
            for place in item.spec.pods
        }
        for item in self.all_of(kube.Pod):
            task = self.cluster.state.tasks.get(item.metadata.uid)
            leaving = item.metadata.deletion_timestamp is not None
            if item.status.phase in ("Succeeded", "Failed"):
                wanted = TaskStatus(item.status.phase)
            elif item.spec.node_name:
                wanted = TaskStatus.RELEASING if leaving else TaskStatus.RUNNING
            elif leaving:
                assert task is None
                continue
            elif item.spec.scheduling_gates:
                wanted = TaskStatus.GATED
            else:
                wanted = TaskStatus.BINDING if item.metadata.uid in live else TaskStatus.PENDING
            if task is not None:
                assert task.status is wanted
                if task.is_ours:
                    of = group_of(item, groups)
                    assert task.job[1:] == (of or item.metadata.name, bool(of))
                    assert task.sub_group == sub_group_of(item, groups.get(of))
                    asks = may_be_evicted(item, groups.get(of), classes)
                    if self.configuration.tenancy_policy_enforced or not wanted.holds_room:
                        assert task.is_preemptible == charged_as(item, wanted, asks=asks)
            else:
                assert item.spec.scheduler_name == "other"
                assert not wanted.holds_room or wanted is TaskStatus.BINDING


def charged_as(item: kube.Pod, status: TaskStatus, *, asks: bool) -> bool:
    """Return whether a pod counts as preemptible. The requests charge all pods as preemptible."""
    record = item.metadata.annotations.get(CHARGED_PREEMPTIBILITY_ANNOTATION)
    if status is TaskStatus.BINDING or (status.holds_room and record is None):
        return True
    return record == "Preemptible" if status.holds_room else asks


def group_of(item: kube.Pod, groups: Mapping[str, PodGroup]) -> str:
    """Return the PodGroup of `item`: that of its annotation, else the oldest that selects it."""
    named = item.metadata.annotations.get(POD_GROUP_ANNOTATION)
    if named:
        return named
    found = [each for each in groups.values() if any(selects(m, item) for m in each.spec.members)]
    found.sort(key=lambda each: (each.metadata.creation_timestamp or "", each.metadata.name))
    return found[0].metadata.name if found else ""


def selects(member: Member, item: kube.Pod) -> bool:
    meta = item.metadata
    if member.pod is not None:
        matches = member.pod == meta.uid and member.controller is None
    elif member.controller is not None:
        matches = any(o.controller and o.uid == member.controller for o in meta.owner_references)
    elif member.label is not None:
        matches = meta.labels.get(member.label.key) == member.label.value
    else:
        matches = member.scheduling_group == scheduling_group_of(item)
    return matches and member.pod_labels.items() <= meta.labels.items()


def scheduling_group_of(item: kube.Pod) -> str | None:
    named = item.spec.scheduling_group
    return named.pod_group_name if named is not None else None


def sub_group_of(item: kube.Pod, of: PodGroup | None) -> str:
    """Return the sub-group of `item`: that of its label, else the first whose labels it has."""
    named = item.metadata.labels.get(SUB_GROUP_LABEL, "")
    if named or of is None:
        return named
    for leaf in of.spec.sub_groups:
        if leaf.pod_labels and leaf.pod_labels.items() <= item.metadata.labels.items():
            return leaf.name
    return ""


def may_be_evicted(item: kube.Pod, of: PodGroup | None, classes: Mapping[str, int]) -> bool:
    """Return whether `item` may be evicted: by its annotation, else by its group, else if its
    priority is below 100.
    """
    says = item.metadata.annotations.get(PREEMPTIBLE_ANNOTATION)
    if says is not None:
        return says == "true"
    if of is not None and of.spec.preemptibility is not None:
        return of.spec.preemptibility == "Preemptible"
    priority = item.spec.priority or 0
    if of is not None and of.spec.priority_class_name is not None:
        priority = classes.get(of.spec.priority_class_name, priority)
    return priority < 100
