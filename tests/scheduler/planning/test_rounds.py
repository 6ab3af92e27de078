"""A cycle that runs out of time: its commits are whole, and the next one continues it."""

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bindery.api.times import timestamp
from bindery.kube.objects import watched as kube
from bindery.scheduler.commit.drafts import StatementDraft
from bindery.scheduler.commit.requests import as_stored
from bindery.scheduler.engine import Engine
from bindery.scheduler.model.jobs import Job, Task
from bindery.scheduler.model.verdicts import Refusal
from bindery.scheduler.planning.rounds import Deadline
from bindery.scheduler.planning.session import Session
from bindery.scheduler.plugins.registry import PluginSet, load
from bindery.scheduler.status.conditions import pending_writes
from tests.scheduler.plannedworlds import World, worlds
from tests.scheduler.recounting import recount, view
from tests.scheduler.schedulerworld import (
    NOW,
    Clock,
    add,
    as_created,
    configuration,
    delete,
    engine_with,
    gang,
    node,
    pod,
    queue,
    report_of,
)
from tests.sizes import examples

SETTINGS = settings(
    max_examples=examples(8),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
BY_JOB = ("allocate", "backfill", "consolidation", "reclaim", "preempt")


class Slow:
    """A plugin for which looking at a job takes a second; it notes which jobs it was asked for."""

    name = "slow"

    def __init__(self) -> None:
        self.now_s = 0.0
        self.asked: list[str] = []

    def invalid(self, session: Session, job: Job) -> Refusal | None:  # noqa: ARG002
        self.now_s += 1.0
        self.asked.append(job.key.name)
        return None

    def deadline(self, budget_s: float) -> Deadline:
        """Return a deadline by the time that this plugin takes."""
        return Deadline(budget_s, lambda: self.now_s)


def slowed(engine: Engine, plugin: Slow | None = None) -> Slow:
    """Let `engine` plan with a slow plugin; return it."""
    built_in, slow = load(configuration().plugins), plugin or Slow()
    engine._plugins = PluginSet([*built_in.plugins, slow], built_in.seconds)
    return slow


def names(drafts: list[StatementDraft]) -> list[str]:
    return sorted(task.job.name for draft in drafts for task in draft.tasks)


def cut_cycle(engine: Engine, slow: Slow, budget_s: float) -> list[StatementDraft]:
    return list(engine.cycle(deadline=slow.deadline(budget_s)))


def test_a_cycle_that_runs_out_of_time_is_continued_by_the_next_one() -> None:
    engine = engine_with(node("n", 8), *(item for i in range(5) for item in gang(f"g{i}", 1)))
    slow = slowed(engine)

    assert names(cut_cycle(engine, slow, 2)) == ["g0", "g1"]
    assert engine.report.is_cut
    assert names(cut_cycle(engine, slow, 2)) == ["g2", "g3"]
    assert names(cut_cycle(engine, slow, 2)) == ["g4"]
    assert not engine.report.is_cut


def test_a_cycle_tries_at_least_one_job_in_any_time() -> None:
    engine = engine_with(node("n", 8), *gang("g0", 3), *gang("g1", 3))
    slow = slowed(engine)

    first, second = (cut_cycle(engine, slow, 0) for _ in range(2))

    assert names(first) == ["g0"] * 3
    assert names(second) == ["g1"] * 3


def test_jobs_with_promises_take_no_time_from_the_continued_action() -> None:
    engine = engine_with(
        queue("rich", quotas={"cpu": 0}),
        queue("poor", quotas={"cpu": 20}),
        node("n", 20),
        *(pod(f"runs{i:02}", queue="rich", on="n") for i in range(20)),
        *(pod(f"waits{i:02}", queue="poor") for i in range(20)),
    )
    slow, counts = slowed(engine), list[int]()

    for _ in range(40):  # the pods that are evicted stay: ever more jobs have promised room
        cut_cycle(engine, slow, 4)
        counts.append(len(engine.report.evictions))

    assert sum(counts) == 20
    assert max(index for index, count in enumerate(counts) if count) < 20


def test_a_cycle_without_a_deadline_tries_all_jobs_after_any_earlier_cycle() -> None:
    engine = engine_with(node("n", 2), *(item for i in range(4) for item in gang(f"g{i}", 3)))
    slow = slowed(engine)
    cut_cycle(engine, slow, 2)
    slow.asked.clear()

    list(engine.cycle())

    assert slow.asked[:4] == ["g0", "g1", "g2", "g3"]
    assert not engine.report.is_cut


def test_newly_created_jobs_are_tried_in_the_next_cycle() -> None:
    """A round over many jobs takes many cycles, and new jobs do not wait for its end."""
    engine = engine_with(node("n", 9), *(item for i in range(3) for item in gang(f"g{i}", 1)))
    slow = slowed(engine)
    assert names(cut_cycle(engine, slow, 0)) == ["g0"]

    add(engine.cluster, *gang("late", 1))

    assert names(cut_cycle(engine, slow, 0)) == ["g1", "late"]
    assert names(cut_cycle(engine, slow, 0)) == ["g2"]


def test_a_round_keeps_its_part_of_each_cycle_beside_endless_new_jobs() -> None:
    engine = engine_with(node("n", 50), *(item for i in range(3) for item in gang(f"g{i}", 1)))
    slow = slowed(engine)
    cut_cycle(engine, slow, 0)
    served = []
    for number in range(2):
        add(engine.cluster, *(item for i in range(9) for item in gang(f"late{number}{i}", 1)))
        served += names(cut_cycle(engine, slow, 4))

    assert {"g1", "g2"} <= set(served)
    assert len([name for name in served if name.startswith("late")]) >= 4


def test_a_new_job_that_does_not_fit_waits_for_the_next_round() -> None:
    engine = engine_with(node("n", 3), *(item for i in range(3) for item in gang(f"g{i}", 1)))
    slow = slowed(engine)
    cut_cycle(engine, slow, 0)
    add(engine.cluster, *gang("too-large", 4))
    cut_cycle(engine, slow, 0)
    slow.asked.clear()

    cut_cycle(engine, slow, 0)

    assert slow.asked == ["g2"]


def test_an_untried_job_keeps_its_reason_and_a_new_one_is_reported_as_untried() -> None:
    engine = engine_with(node("n", 1), *gang("a", 2), *gang("b", 3))
    slow = slowed(engine)
    list(engine.cycle(deadline=slow.deadline(99)))
    reason = report_of(engine, "b").message
    assert report_of(engine, "b").reason == "Unschedulable"
    add(engine.cluster, *gang("c", 4))

    cut_cycle(engine, slow, 0)

    assert engine.report.is_cut
    assert report_of(engine, "b").message == reason
    assert report_of(engine, "c").reason == "NotTriedYet"
    said = {w.meta.name for w in pending_writes(engine.cluster, engine.report, NOW)}
    assert said.isdisjoint({"c", *(f"c-{i}" for i in range(4))})


def test_idle_room_is_used_while_a_later_action_is_continued() -> None:
    engine = engine_with(
        queue("rich", quotas={"cpu": 0}),
        queue("poor", quotas={"cpu": 8}),
        node("n", 8),
        *(pod(f"runs{i}", queue="rich", on="n") for i in range(8)),
        *(pod(f"waits{i}", queue="poor") for i in range(4)),
    )
    slow = slowed(engine)
    while not (engine.report.is_cut and engine._position and engine._position.action == "reclaim"):
        cut_cycle(engine, slow, 4)
    add(engine.cluster, node("new", 8))

    drafts = cut_cycle(engine, slow, 6)

    assert drafts
    assert {task.name for draft in drafts for task in draft.tasks} <= {
        f"waits{i}" for i in range(4)
    }


def test_promised_room_is_kept_in_the_cycles_that_continue() -> None:
    clock = Clock()
    engine = engine_with(
        queue("rich", quotas={"cpu": 0}),
        queue("poor", quotas={"cpu": 4}),
        node("n", 4),
        *(pod(f"runs{i}", queue="rich", on="n") for i in range(4)),
        *(pod(f"waits{i}", queue="poor") for i in range(4)),
        clock=clock,
    )
    slow = slowed(engine)
    evicted: list[str] = []

    for _ in range(40):
        assert not cut_cycle(engine, slow, 0)
        evicted += [eviction.task.name for eviction in engine.report.evictions]

    assert sorted(evicted) == [f"runs{i}" for i in range(4)]


def test_reserved_room_is_kept_in_the_cycles_that_continue() -> None:
    bound = kube.Condition(
        type="PodScheduled", status="True", last_transition_time=timestamp(NOW - 600)
    )
    engine = engine_with(
        node("n", 4),
        pod("runs", cpu=2, on="n", conditions=[bound], active_deadline_seconds=3600),
        *gang("a-large", 1, cpu=4),
        *(item for i in range(5) for item in gang(f"b{i}", 1, cpu=2)),
    )
    slow = slowed(engine)

    for _ in range(20):
        assert not cut_cycle(engine, slow, 0)
        assert report_of(engine, "a-large").reservation is not None


@given(worlds(foreign=False), st.integers(0, 3))
@SETTINGS
def test_cycles_that_run_out_of_time_commit_whole_gangs_and_keep_sums_correct(
    world: World, budget_s: int
) -> None:
    engine = engine_with(*world.objects)
    slow, state = slowed(engine), engine.cluster.state

    for _ in range(6):
        for draft in cut_cycle(engine, slow, budget_s):
            if draft.spec.pod_group is not None:
                assert state.jobs[draft.tasks[0].job].is_satisfied
            add(engine.cluster, as_created(draft))
        assert view(state) == recount(state)
        assert not state.nodes.pipelined.any()


@given(worlds(most_jobs=3), st.integers(0, 3), st.integers(0, 4))
@SETTINGS
def test_every_action_tries_every_waiting_job_within_a_bounded_number_of_cycles(
    world: World, budget_s: int, cycles_before: int
) -> None:
    engine = engine_with(*world.objects)
    slow, noted = slowed(engine), TurnsTaken(engine)
    for _ in range(cycles_before):
        cut_cycle(engine, slow, budget_s)
    waiting = {job.key.name for job in engine.cluster.state.waiting.values() if job.pending}
    jobs = len(engine.cluster.state.waiting) + 1  # with the one that always comes
    noted.clear()
    served: set[str] = set()

    for number in range(2 * len(BY_JOB) * (jobs + 1)):  # the round under way, and a whole one
        newcomer = gang(f"a{number}", 1, cpu=99)
        add(engine.cluster, *newcomer)
        cut_cycle(engine, slow, budget_s)
        delete(engine.cluster, *newcomer)
        # A job with promised room is served in each cycle, before the turn of the others.
        served |= {key.name for key in engine.cluster.promises.jobs}

    assert waiting <= noted.tried["allocate"] | served
    assert noted.executed.issuperset(BY_JOB)


class TurnsTaken:
    """Notes which actions of `engine` have turns, and which jobs they take up."""

    def __init__(self, engine: Engine) -> None:
        self.tried: defaultdict[str, set[str]] = defaultdict(set)
        self.executed: set[str] = set()
        for action in engine._actions:
            self._note(action)

    def clear(self) -> None:
        self.tried.clear()
        self.executed.clear()

    def _note(self, action: Any) -> None:
        execute = action.execute

        def noted(session: Session, turn: Any) -> Iterator[Any]:
            self.executed.add(action.name)
            take = turn.take

            def taken(work: Iterable[Job]) -> Iterator[Job]:
                for job in take(work):
                    self.tried[action.name].add(job.key.name)
                    yield job

            turn.take = taken
            yield from execute(session, turn)

        action.execute = noted


@given(worlds())
@SETTINGS
def test_plans_without_a_deadline_and_with_a_distant_one_are_equal(world: World) -> None:
    one, other = engine_with(*world.objects), engine_with(*world.objects)

    for _ in range(2):
        plans = list(one.cycle()), list(other.cycle(deadline=Deadline(1e9, time.monotonic)))
        assert [as_stored(draft) for draft in plans[0]] == [as_stored(d) for d in plans[1]]
        assert one.report.jobs == other.report.jobs


def test_a_deadline_is_measured_by_its_clock() -> None:
    now_s = 0.0
    deadline = Deadline(4.0, lambda: now_s)
    assert not deadline.has_passed()

    now_s = 2.0
    assert not deadline.has_passed()

    now_s = 4.0
    assert deadline.has_passed()


def test_a_part_of_the_budget_is_kept_for_the_end_of_the_cycle() -> None:
    now_s = 0.0
    deadline = Deadline(10.0, lambda: now_s)
    deadline.reserve(1.5)

    now_s = 8.4
    assert not deadline.has_passed()

    now_s = 8.5
    assert deadline.has_passed()


def test_most_of_the_budget_is_for_jobs_however_long_the_end_takes() -> None:
    now_s = 0.0
    deadline = Deadline(10.0, lambda: now_s)
    deadline.reserve(60.0)

    now_s = 7.9
    assert not deadline.has_passed()

    now_s = 8.0
    assert deadline.has_passed()


class SlowToReport(Slow):
    """Takes an eighth of a second also to explain why a pod waits."""

    def explain_wait(self, session: Session, job: Job, task: Task, message: str) -> None:  # noqa: ARG002
        self.now_s += 0.125


def test_a_cycle_leaves_as_much_time_for_its_reports_as_the_last_one_needed() -> None:
    engine = engine_with(node("n", 40), *(item for i in range(30) for item in gang(f"g{i}", 1)))
    slow = slowed(engine, SlowToReport())

    assert len(names(cut_cycle(engine, slow, 10))) == 10
    assert len(names(cut_cycle(engine, slow, 10))) == 8  # the 20 reports took more than a fifth
