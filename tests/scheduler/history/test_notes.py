"""What the history notes of a cluster that plans, evicts and lets gangs wait."""

from collections.abc import Sequence

import msgspec

from bindery.kube.objects.watched import KubeObject
from bindery.scheduler.engine import Engine
from bindery.scheduler.history.entries import NO_GANG, HistoryEntry, HistoryKind
from bindery.scheduler.history.notes import LOOK_EVERY_S, HistoryNotes
from bindery.scheduler.history.record import HistoryRecord
from bindery.scheduler.history.trends import WAITING_GANGS
from bindery.scheduler.model.evictions import Eviction
from bindery.scheduler.model.jobs import JobKey, Uid
from tests.scheduler.schedulerworld import (
    NAMESPACE,
    NOW,
    Clock,
    add,
    as_created,
    delete,
    engine_with,
    gang,
    modify,
    node,
    pod,
    queue,
)


class Noted:
    """A scheduler's engine with the notes of its cycles."""

    def __init__(self, *items: KubeObject) -> None:
        self.clock = Clock()
        self.engine: Engine = engine_with(*items, clock=self.clock)
        self.record = HistoryRecord(86_400.0)
        self.notes = HistoryNotes(self.engine.cluster, self.record, self.clock)

    def cycle(self, phase: str | None = "Succeeded", seconds: float = LOOK_EVERY_S) -> None:
        """Plan, and `seconds` later see the requests in `phase`; None: they are refused."""
        drafts = list(self.engine.cycle())
        for draft in drafts:
            self.notes.committed(draft)
        self.notes.after_cycle(self.engine.report)
        for draft in drafts:
            if phase is None:
                self.engine.refused(draft)
                continue
            made = as_created(draft)
            add(self.engine.cluster, made)
            status = msgspec.structs.replace(made.status, phase=phase)
            modify(self.engine.cluster, msgspec.structs.replace(made, status=status))
        self.clock.now += seconds

    def entries(self, kind: HistoryKind) -> Sequence[HistoryEntry]:
        return [entry for entry in self.record.past().entries if entry.kind is kind]


def test_a_plan_has_the_gang_its_nodes_and_its_outcome() -> None:
    noted = Noted(node("n1", gpu=8), node("n2", gpu=8), *gang("train", 4, cpu=4))
    noted.cycle()
    noted.cycle()

    (plan,) = noted.entries(HistoryKind.PLANNED)
    assert plan.gang == (NAMESPACE, "train", "default", True)
    assert (plan.pods, plan.nodes, plan.node_count) == (4, ("n1", "n2"), 2)
    assert plan.reason == "Succeeded"
    assert (plan.since, plan.until) == (NOW, NOW + LOOK_EVERY_S)


def test_a_plan_whose_request_failed_has_that_outcome() -> None:
    noted = Noted(node("n1"), *gang("train", 2, cpu=1))
    noted.cycle(phase="Failed")
    noted.cycle()

    assert [plan.reason for plan in noted.entries(HistoryKind.PLANNED)][:1] == ["Failed"]


def test_a_plan_that_is_still_being_bound_has_no_entry_yet() -> None:
    noted = Noted(node("n1"), *gang("train", 2, cpu=1))
    noted.cycle(phase="Pending")
    noted.cycle()

    assert noted.entries(HistoryKind.PLANNED) == []


def test_a_plan_whose_request_was_refused_is_forgotten() -> None:
    noted = Noted(node("n1"), *gang("train", 2, cpu=1))
    noted.cycle(phase=None)
    noted.cycle(phase="Pending")

    assert noted.entries(HistoryKind.PLANNED) == []


def test_a_plan_whose_request_is_gone_before_the_next_look_is_known_by_its_pods() -> None:
    noted = Noted(node("n1"), *gang("train", 2, cpu=1))
    drafts = list(noted.engine.cycle())
    for draft in drafts:
        noted.notes.committed(draft)
        noted.engine.cluster.forget(draft.key)
    for index in range(2):
        modify(noted.engine.cluster, pod(f"train-{index}", cpu=1, group="train", on="n1"))
    noted.clock.now += LOOK_EVERY_S
    noted.notes.after_cycle(noted.engine.report)

    assert [plan.reason for plan in noted.entries(HistoryKind.PLANNED)] == ["Succeeded"]


def test_a_wait_ends_with_its_reason_and_how_long_it_was() -> None:
    noted = Noted(node("n1", cpu=2), *gang("train", 4, cpu=1))
    for _ in range(4):
        noted.cycle()
    add(noted.engine.cluster, node("n2", cpu=8))
    noted.cycle()

    (wait,) = noted.entries(HistoryKind.WAITED)
    assert (wait.gang.name, wait.reason, wait.seconds) == ("train", "Unschedulable", 40.0)
    assert "nodes" in wait.message


def test_a_short_wait_has_no_entry() -> None:
    noted = Noted(node("n1", cpu=2), *gang("train", 4, cpu=1))
    noted.cycle(seconds=1.0)
    add(noted.engine.cluster, node("n2", cpu=8))
    noted.cycle()

    assert noted.entries(HistoryKind.WAITED) == []


def test_the_wait_of_a_deleted_gang_ends() -> None:
    train = gang("train", 4, cpu=1)
    noted = Noted(node("n1", cpu=2), *train)
    noted.cycle()
    noted.cycle()
    delete(noted.engine.cluster, *train)
    noted.cycle()

    assert [wait.seconds for wait in noted.entries(HistoryKind.WAITED)] == [20.0]


def test_evictions_name_the_action_and_the_gang_that_got_the_room() -> None:
    noted = Noted(node("n1"), *gang("train", 2, cpu=1), *gang("serve", 2, cpu=1, queue="other"))
    tasks = [noted.engine.cluster.state.tasks[Uid(uid)] for uid in ("uid-train-0", "uid-train-1")]
    serve, train = (JobKey(NAMESPACE, name, True) for name in ("serve", "train"))

    noted.notes.evicted([Eviction(task, "", serve, action="reclaim") for task in tasks])
    noted.notes.evicted([Eviction(tasks[0], "", train, "n2", "stalegangeviction")])

    claimed, own = noted.entries(HistoryKind.EVICTED)
    assert (claimed.gang.name, claimed.pods, claimed.reason) == ("train", 2, "reclaim")
    assert claimed.claimant == (NAMESPACE, "serve", "other", True)
    assert (own.claimant, own.moved) == (NO_GANG, 1)


def test_trends_have_what_queues_held_and_how_many_gangs_waited() -> None:
    noted = Noted(
        node("n1", cpu=8, gpu=8),
        queue("org"),
        queue("team", parent="org"),
        *gang("big", 1, cpu=100, queue="team"),
        *gang("train", 2, cpu=3, queue="team"),
    )
    for _ in range(3):
        noted.cycle()

    trends = noted.record.past().trends
    at = {queue: index for index, queue in enumerate(trends.queues)}
    means = {
        row: trends.held[:, index].sum(axis=0) / trends.capacity[:, index].sum()
        for index, row in enumerate(trends.resources)
    }
    for name in ("org", "team"):
        assert means["allocated/cpu"][at[name]] == 6.0
        assert means["pending/cpu"][at[name]] == 100.0
        assert means[WAITING_GANGS][at[name]] == 1.0


def test_a_new_term_begins_without_what_the_last_one_saw() -> None:
    noted = Noted(node("n1", cpu=2), *gang("train", 4, cpu=1))
    noted.cycle()
    noted.cycle()
    noted.notes.begin()
    add(noted.engine.cluster, node("n2", cpu=8))
    noted.cycle()

    assert noted.entries(HistoryKind.WAITED) == []


def test_the_queue_of_a_hostile_gang_is_escaped_and_cut() -> None:
    name = "\x1b[31m\u202e" + "q" * 1_000
    noted = Noted(node("n1", cpu=2), *gang("train", 4, cpu=1, queue=name))
    for _ in range(3):
        noted.cycle()
    delete(noted.engine.cluster, *gang("train", 4, cpu=1, queue=name))
    noted.cycle()

    (wait,) = noted.entries(HistoryKind.WAITED)
    assert len(wait.gang.queue) == 253
    assert wait.gang.queue.startswith("\\x1b[31m\\u202eqqq")
