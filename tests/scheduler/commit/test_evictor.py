"""The order of the evictor's requests, and the rest of a plan that is refused.

The end-to-end tests cover the real answers of the API server; here a stand-in answers when the test
requests it.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from bindery.kube.errors import ConflictError, NotFoundError, ThrottledError
from bindery.kube.objects.budgets import BudgetSpec, DisruptionBudget
from bindery.kube.objects.selectors import LabelSelector
from bindery.kube.objects.watched import Condition, Pod
from bindery.scheduler.commit.evictor import CONCURRENT_CALLS, Evictor
from bindery.scheduler.model.evictions import Eviction
from bindery.scheduler.model.jobs import JobKey, Task
from tests.scheduler.cache.test_budgets import budget
from tests.scheduler.schedulerworld import delete, engine_with, modify, node, pod


class Answers:
    """An Eviction API that answers one round of calls after the other."""

    def __init__(self, refuses: Sequence[str] = (), refuses_tries: Sequence[str] = ()) -> None:
        self.refuses, self.refuses_tries = refuses, refuses_tries
        self.rounds: list[list[str]] = []
        """The pods whose evictions were asked for at the same time."""
        self._open: list[tuple[str, asyncio.Event]] = []
        self.asked = asyncio.Event()

    async def patch(self, _kind: object, name: str, body: Any, **_: Any) -> None:
        self.rounds.append([f"{name} on {body['status']['nominatedNodeName']}"])

    async def evict(self, _namespace: str, name: str, _uid: str, *, dry_run: bool) -> None:
        if dry_run:
            await asyncio.sleep(0)
            if name in self.refuses_tries:
                raise ThrottledError(429, "TooManyRequests", "it would violate the budget")
            return
        answered = asyncio.Event()
        self._open.append((name, answered))
        self.asked.set()
        await answered.wait()
        if name in self.refuses:
            raise ThrottledError(429, "TooManyRequests", "it would violate the budget")

    async def answer_all(self, evictor: Evictor) -> None:
        """Answer round by round until nothing is asked any more."""
        draining = asyncio.create_task(evictor.drain())
        while not draining.done():
            for _ in range(20):  # lets everybody ask who may
                await asyncio.sleep(0)
            self.rounds.append([name for name, _ in self._open])
            for _, answered in self._open:
                answered.set()
            self._open.clear()
        self.rounds = [names for names in self.rounds if names]


class Silent:
    """An event recorder that records nothing."""

    def normal(self, *_: Any) -> None: ...
    def warning(self, *_: Any) -> None: ...


def plans(names: str, budgets: Sequence[DisruptionBudget], by: int) -> tuple[Any, list[Eviction]]:
    """Return the cluster with `budgets`, and evictions of pods named by letter, `by` for each plan.

    The letter of a pod is the label that budgets select.
    """
    pods = [
        pod(f"{letter}{i}", on="n", labels={"letter": letter}) for i, letter in enumerate(names)
    ]
    engine = engine_with(node("n", 99), *pods, *budgets)
    tasks: list[Task] = list(engine.cluster.state.tasks.values())
    return engine.cluster, [
        Eviction(task, "test", JobKey("team", f"plan{i // by}", True))
        for i, task in enumerate(tasks)
    ]


def of_letter(letter: str) -> DisruptionBudget:
    selector = LabelSelector(match_labels={"letter": letter})
    return DisruptionBudget(metadata=budget(letter).metadata, spec=BudgetSpec(selector=selector))


async def carried_out(
    names: str, *letters: str, by: int = 99, refuses: Sequence[str] = ()
) -> tuple[Answers, Evictor]:
    """Evict pods named `names`; those of `letters` have a budget each."""
    cluster, evictions = plans(names, [of_letter(letter) for letter in letters], by)
    answers: Any = Answers(refuses)
    silent: Any = Silent()
    evictor = Evictor(answers, silent, lambda: None, cluster.budgets)
    evictor.submit(evictions)
    await answers.answer_all(evictor)
    return answers, evictor


async def test_evictions_under_one_budget_are_requested_one_after_another() -> None:
    answers, _ = await carried_out("aaaaa", "a")

    assert answers.rounds == [[f"a{i}"] for i in range(5)]


async def test_evictions_of_several_plans_under_one_budget_are_sequential() -> None:
    answers, _ = await carried_out("aaaaa", "a", by=1)

    assert answers.rounds == [[f"a{i}"] for i in range(5)]


async def test_evictions_under_different_budgets_are_concurrent() -> None:
    answers, _ = await carried_out("aaabbb", "a", "b")

    # The first of a plan goes alone.
    assert answers.rounds == [["a0"], ["a1", "b3"], ["a2", "b4"], ["b5"]]


async def test_evictions_without_a_budget_are_sent_in_batches_that_double() -> None:
    answers, _ = await carried_out("a" * 50)

    assert [len(names) for names in answers.rounds] == [1, 2, 4, 8, CONCURRENT_CALLS, 16, 3]


async def test_a_refusal_ends_the_whole_plan_and_lists_the_remaining_victims_in_order() -> None:
    answers, evictor = await carried_out("aaabbb", "a", "b", refuses=["a1"])

    assert answers.rounds == [["a0"], ["a1", "b3"]]
    [refused] = evictor.refused
    assert refused.refused.task.name == "a1"
    assert [eviction.task.name for eviction in refused.left] == ["a1", "a2", "b4", "b5"]
    assert refused.is_begun


async def test_a_refusal_of_the_first_eviction_leaves_the_plan_unstarted() -> None:
    answers, evictor = await carried_out("aab", "a", refuses=["a0"])

    assert answers.rounds == [["a0"]]
    [refused] = evictor.refused
    assert not refused.is_begun
    assert len(refused.left) == 3


@pytest.mark.parametrize(("allowed", "evicted"), [(1, []), (2, ["a0", "a1"])])
async def test_a_plan_that_needs_more_of_a_budget_than_it_allows_is_not_begun(
    allowed: int, evicted: list[str]
) -> None:
    """Each dry run alone would pass, and the pods evicted first would be lost for nothing."""
    found = of_letter("a")
    status = msgspec.structs.replace(found.status, disruptions_allowed=allowed)
    cluster, evictions = plans("aa", [msgspec.structs.replace(found, status=status)], by=2)
    for task in list(cluster.state.tasks.values()):
        modify(cluster, ready_pod(task.name))
    answers: Any = Answers()
    silent: Any = Silent()
    evictor = Evictor(answers, silent, lambda: None, cluster.budgets)
    evictor.submit(evictions)

    await answers.answer_all(evictor)

    assert [name for names in answers.rounds for name in names] == evicted
    assert [each.is_begun for each in evictor.refused] == ([] if evicted else [False])


def ready_pod(name: str) -> Pod:
    found = pod(name, on="n", labels={"letter": name[0]})
    ready = Condition(type="Ready", status="True")
    return msgspec.structs.replace(
        found, status=msgspec.structs.replace(found.status, conditions=[ready])
    )


async def test_a_refusal_has_the_number_of_budget_changes_known_at_its_request() -> None:
    cluster, evictions = plans("a", [of_letter("a")], by=1)
    answers: Any = Answers(refuses=["a0"])
    silent: Any = Silent()
    evictor = Evictor(answers, silent, lambda: None, cluster.budgets)
    before = cluster.budgets.easings
    evictor.submit(evictions)
    await answers.asked.wait()

    delete(cluster, of_letter("a"))
    await answers.answer_all(evictor)

    [refused] = evictor.refused
    assert refused.budget_easings == before
    assert cluster.budgets.easings == before + 1


async def test_pods_are_nominated_before_the_first_eviction_for_them() -> None:
    """If a leader ends after one eviction, the next leader can continue the whole plan."""
    cluster, evictions = plans("a", (), by=1)
    answers: Any = Answers()
    silent: Any = Silent()
    nominated = [(pod("claimant"), "n")]
    evictor = Evictor(answers, silent, lambda: None, cluster.budgets, lambda _job: nominated)
    evictor.submit(evictions)

    await answers.answer_all(evictor)

    assert answers.rounds == [["claimant on n"], ["a0"]]


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        (pod("claimant", labels={"changed": "since"}), [["claimant on n"], ["a0"]]),
        (pod("claimant", on="elsewhere"), [["a0"]]),
        (pod("claimant", uid="second"), []),
    ],
)
async def test_a_pod_that_has_changed_is_nominated_unless_it_is_bound_or_another(
    stored: Pod, expected: list[list[str]]
) -> None:
    class Changed(Answers):
        async def patch(self, _kind: object, name: str, body: Any, **_: Any) -> None:
            raise ConflictError(409, "Conflict", f"{name} is not at {body['metadata']}")

        async def update(
            self, kind: object, name: str, _namespace: str, change: Any, **_: Any
        ) -> None:
            body = change(stored)
            if body is not None:
                await super().patch(kind, name, body)

    cluster, evictions = plans("a", (), by=1)
    answers: Any = Changed()
    silent: Any = Silent()
    evictor = Evictor(
        answers, silent, lambda: None, cluster.budgets, lambda _job: [(pod("claimant"), "n")]
    )
    evictor.submit(evictions)

    await answers.answer_all(evictor)

    assert answers.rounds == expected


async def test_no_pod_is_evicted_for_pods_that_are_gone() -> None:
    class Gone(Answers):
        async def patch(self, _kind: object, name: str, body: Any, **_: Any) -> None:
            raise NotFoundError(404, "NotFound", f"{name} is not there for {body}")

    cluster, evictions = plans("a", (), by=1)
    answers: Any = Gone()
    silent: Any = Silent()
    evictor = Evictor(
        answers, silent, lambda: None, cluster.budgets, lambda _job: [(pod("claimant"), "n")]
    )
    evictor.submit(evictions)

    await answers.answer_all(evictor)

    assert answers.rounds == []
    [refused] = evictor.refused
    assert (refused.is_begun, refused.retry_after_s) == (False, 0.0)


async def test_no_pod_is_evicted_for_a_job_that_got_other_room_during_the_dry_run() -> None:
    cluster, evictions = plans("a", (), by=1)
    answers: Any = Answers()
    silent: Any = Silent()
    room: list[list[tuple[Pod, str]] | None] = [[(pod("claimant"), "n")], None]
    evictor = Evictor(answers, silent, lambda: None, cluster.budgets, lambda _job: room.pop(0))
    evictor.submit(evictions)

    await answers.answer_all(evictor)

    assert answers.rounds == []
    assert [each.is_begun for each in evictor.refused] == [False]


async def test_a_plan_is_undecided_from_its_dry_run_until_the_loop_takes_its_refusal() -> None:
    cluster, evictions = plans("ab", (), by=1)
    answers: Any = Answers(refuses_tries=["a0"])
    silent: Any = Silent()
    evictor = Evictor(answers, silent, lambda: None, cluster.budgets)
    refused, accepted = (eviction.preemptor for eviction in evictions)
    evictor.submit(evictions)
    await asyncio.sleep(0)
    assert evictor.undecided == {refused, accepted}

    await answers.asked.wait()
    assert evictor.undecided == {refused}, "the evictions of the other have begun"
    await answers.answer_all(evictor)
    assert evictor.undecided == {refused}
    evictor.refused.clear()
    assert not evictor.undecided
