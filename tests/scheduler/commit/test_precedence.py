"""A gang is bound whole or not at all, with any outcome of its requests and extra pods."""

import random
from collections import Counter, defaultdict
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from bindery.api.bindrequest import Phase
from bindery.kube.objects import watched as kube
from bindery.kube.objects.bindrequests import CommittedStatement, PodBinding, StatementStatus
from bindery.kube.objects.podgroups import SubGroup
from bindery.scheduler.commit.drafts import StatementDraft
from bindery.scheduler.commit.stale import stale_requests
from bindery.scheduler.engine import Engine
from bindery.scheduler.model.jobs import Job, Tally, TaskStatus, Uid
from tests.scheduler.plannedworlds import World, worlds
from tests.scheduler.schedulerworld import (
    NOW,
    add,
    as_created,
    delete,
    engine_with,
    gang,
    group,
    modify,
    node,
    pod,
    request,
)
from tests.sizes import examples

HALVES = [SubGroup(name="left", min_member=2), SubGroup(name="right", min_member=2)]
ELASTIC: list[kube.KubeObject] = [
    *gang("elastic", 6, 3),
    group("led", 1, roles={"master": 1}),
    pod("led-0", group="led", role="master"),
    *(pod(f"led-{i}", group="led", role="worker") for i in range(1, 4)),
    group("halves", 0, sub_groups=HALVES, min_sub_group=1),
    *(pod(f"halves-{half}-{i}", group="halves", sub_group=half)
      for half in ("left", "right") for i in range(3)),
]  # fmt: skip
"""Gangs with extra pods: alike, with roles, with alternative sub-groups."""
BIND_REQUESTS = st.fixed_dictionaries(
    {"max_pods": st.integers(1, 5), "merge_above": st.integers(0, 3)}
)


@dataclass
class Binder:
    """Carries out Statements by chance, in the order that they ask for."""

    engine: Engine
    pods: dict[str, kube.Pod]
    chance: random.Random
    ended: dict[str, Phase] = field(default_factory=dict)
    """Statement -> its outcome."""

    def step(self) -> None:
        """Let some Statements come to their end."""
        statements: defaultdict[str, list[CommittedStatement]] = defaultdict(list)
        for item in self.engine.cluster.holds.statements.values():
            if not Phase(item.status.phase).is_final:
                statements[item.spec.id].append(item)
        order = sorted(statements)
        self.chance.shuffle(order)
        for identity in order:
            self._carry_out(identity, statements[identity])

    def _carry_out(self, identity: str, parts: list[CommittedStatement]) -> None:
        before = parts[0].spec.after
        is_lost = before is not None and self.ended.get(before) is Phase.FAILED
        waits = before is not None and before not in self.ended
        if waits or (not is_lost and self.chance.random() < 0.4):
            return
        uids = [p.pod_uid for part in parts for p in part.spec.pods]
        if is_lost or self.chance.random() < 0.4:
            bound = set[str]()
        elif parts[0].spec.min_bound == 0:
            bound = {uid for uid in uids if self.chance.random() < 0.6}
        else:
            bound = set(uids)
        self.ended[identity] = Phase.SUCCEEDED if bound else Phase.FAILED
        for part in parts:
            mine = [p.pod_uid for p in part.spec.pods if p.pod_uid in bound]
            status = StatementStatus(phase=self.ended[identity].value, bound_pods=mine)
            modify(self.engine.cluster, replace(part, status=status))
            for place in part.spec.pods:
                if place.pod_uid in bound:
                    self._bind(place)

    def _bind(self, place: PodBinding) -> None:
        item = self.pods[place.pod_uid]
        spec = replace(item.spec, node_name=place.selected_node)
        modify(self.engine.cluster, replace(item, spec=spec))


def bound_of(job: Job) -> Tally:
    tally = Tally()
    for task in job.tasks.values():
        if task.status is TaskStatus.RUNNING:
            tally.count(task, 1)
    return tally


@given(worlds(), BIND_REQUESTS, st.randoms(use_true_random=False))
@settings(max_examples=examples(21), deadline=None)
def test_no_gang_is_ever_partly_bound(
    world: World, bind_request: dict[str, int], chance: random.Random
) -> None:
    items = [*world.objects, node("roomy", 30), *ELASTIC]
    # Without evictions, which may well take a pod from a gang that is bound.
    engine = engine_with(*items, bind_request=bind_request, actions=["allocate", "backfill"])
    cluster = engine.cluster
    pods = {item.metadata.uid: item for item in items if isinstance(item, kube.Pod)}
    begun = {task.job for task in cluster.state.tasks.values() if task.pod_node}
    binder = Binder(engine, pods, chance)
    for cycle in range(4):
        add(cluster, *(as_created(draft) for draft in engine.cycle()))
        binder.step()
        late = pod(f"late-{cycle}", group="elastic")
        pods[late.metadata.uid] = late
        add(cluster, late)

        for job in cluster.state.jobs.values():
            bound = bound_of(job)
            if not bound.total or job.key in begun or not job.exists or job.invalid:
                continue
            assert job.is_met_by(bound)
            for leaf in job.tree.leaves() if job.tree is not None else ():
                assert not bound.groups[leaf.name] or job.lacking_of(leaf, bound) <= 0


def planned(*items: kube.KubeObject, **bind_request: int) -> list[StatementDraft]:
    return list(engine_with(node("n", 64), *items, bind_request=bind_request).cycle())


@pytest.mark.parametrize("merge_above", [0, 9])
def test_extra_pods_are_bound_after_the_gang_that_is_committed_with_them(merge_above: int) -> None:
    first, *extras = planned(*gang("g", 6, 3), merge_above=merge_above)

    assert first.spec.after is None
    assert len(extras) == (1 if merge_above == 0 else 3)
    assert {draft.spec.after for draft in extras} == {first.spec.id}


def test_extra_pods_of_two_gangs_do_not_share_a_request() -> None:
    drafts = planned(*gang("g", 4, 2), *gang("h", 4, 2), merge_above=0)

    gangs = {d.spec.id: d.tasks[0].job for d in drafts if d.spec.min_bound is None}
    for draft in drafts:
        if draft.spec.min_bound == 0:
            assert {task.job for task in draft.tasks} == {gangs[str(draft.spec.after)]}


def test_extra_pods_of_a_bound_gang_have_no_prerequisite() -> None:
    running = [pod(f"g-{i}", group="g", on="n") for i in range(2)]
    (draft,) = planned(group("g", 2), *running, pod("g-2", group="g"))

    assert draft.spec.after is None


def test_pods_that_each_complete_the_gang_have_no_prerequisite() -> None:
    drafts = planned(*gang("g", 3, 1), merge_above=9)

    assert [draft.spec.after for draft in drafts] == [None] * 3


def test_a_lone_master_has_its_own_request_and_its_workers_are_bound_after_it() -> None:
    workers = [pod(f"g-{i}", group="g", role="worker") for i in range(1, 4)]
    master = pod("g-0", group="g", role="master")
    first, extras = planned(group("g", 1, roles={"master": 1}), master, *workers, merge_above=0)

    assert [task.name for task in first.tasks] == ["g-0"]
    assert first.spec.min_bound is None
    assert extras.spec.after == first.spec.id


def test_a_pod_created_while_its_gang_is_being_bound_is_bound_after_it() -> None:
    engine = engine_with(node("n", 64), *gang("g", 2))
    (first,) = list(engine.cycle())
    add(engine.cluster, as_created(first), pod("g-2", group="g"))
    (second,) = list(engine.cycle())
    add(engine.cluster, as_created(second), pod("g-3", group="g"))
    (third,) = list(engine.cycle())

    assert second.spec.after == third.spec.after == first.spec.id


def test_a_later_pod_has_no_prerequisite_once_the_request_has_bound_the_gang() -> None:
    engine = engine_with(node("n", 64), *gang("g", 2))
    created = as_created(*engine.cycle())
    add(engine.cluster, created, pod("g-2", group="g"))
    bound = [place.pod_uid for place in created.spec.pods]
    status = StatementStatus(phase="Succeeded", bound_pods=bound)
    modify(engine.cluster, replace(created, status=status))

    (draft,) = list(engine.cycle())

    assert draft.spec.after is None


# ---- what is left when the gang's request fails --------------------------------------------------


def with_extras(phase: str = "Pending") -> tuple[Engine, CommittedStatement]:
    """Return an engine that knows the requests of a gang and of its extra pod, a minute old.

    `phase`: that of the gang's request.
    """
    old = "2025-06-15T15:05:40Z"
    gone = request("g", {"uid-g-0": "n", "uid-g-1": "n"}, created=old, phase=phase)
    extra = request("e", {"uid-g-2": "n"}, created=old, after="g-1")
    return engine_with(node("n"), *gang("g", 3, 2), gone, extra), gone


def cleared(engine: Engine) -> dict[str, str]:
    return {s.statement.metadata.name: s.reason for s in stale_requests(engine.cluster, NOW, 600.0)}


def test_extra_pods_are_kept_while_the_gang_is_being_bound() -> None:
    engine, _ = with_extras()

    assert cleared(engine) == {}


def test_requests_of_extra_pods_are_deleted_when_the_gangs_request_has_failed() -> None:
    engine, _ = with_extras(phase="Failed")

    assert cleared(engine) == {"e": "PredecessorFailed"}


def test_requests_of_extra_pods_are_deleted_when_the_gangs_request_is_deleted() -> None:
    engine, first = with_extras()
    delete(engine.cluster, first)

    assert cleared(engine) == {"e": "PredecessorGone"}


def test_extra_pods_are_kept_when_the_gang_is_bound_and_its_request_deleted() -> None:
    engine, first = with_extras()
    modify(engine.cluster, *(pod(f"g-{i}", group="g", on="n") for i in range(2)))
    delete(engine.cluster, first)

    assert cleared(engine) == {}


def test_dependents_of_a_deleted_request_are_deleted_with_it() -> None:
    engine, _ = with_extras()
    later = request("l", {"uid-g-3": "n"}, created="2025-06-15T15:05:40Z", after="e-1")
    add(engine.cluster, pod("g-3", group="g"), later)
    delete(engine.cluster, pod("g-0", group="g"))

    assert cleared(engine) == {
        "g": "PodsGone",
        "e": "PredecessorFailed",
        "l": "PredecessorFailed",
    }


def test_a_gang_is_planned_again_after_its_extra_pods_were_given_up() -> None:
    engine, first = with_extras(phase="Failed")
    assert list(engine.cycle()) == []

    (extra,) = (
        each for each in engine.cluster.holds.statements.values() if each.metadata.name == "e"
    )
    modify(engine.cluster, replace(extra, status=StatementStatus(phase="Failed")))

    again = list(engine.cycle())
    assert Counter(task.name for draft in again for task in draft.tasks) == {
        "g-0": 1, "g-1": 1, "g-2": 1,
    }  # fmt: skip
    assert Uid(first.spec.pods[0].pod_uid) in {task.uid for task in again[0].tasks}
