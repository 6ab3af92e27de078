"""What gangs hold beside their pods is charged to their queues, and follows the plan exactly."""

from contextlib import suppress

import numpy as np
from hypothesis import given, settings

from bindery.api.names import GPU_RESOURCE
from bindery.scenario.events import Faults
from bindery.scenario.format import Scenario
from bindery.scenario.planning import Planner
from bindery.scheduler.actions.holding import hold_rooms
from bindery.scheduler.ledgers.base import LedgerRefusalError
from bindery.scheduler.model.jobs import TaskStatus
from bindery.scheduler.planning.session import Session
from tests.scheduler.contestedworlds import play
from tests.scheduler.heldworlds import scenarios
from tests.sizes import examples

some_clusters = settings(max_examples=examples(14), deadline=None)


def gpus_by_queue(session: Session) -> dict[str, int]:
    """Return what queues hold by their pods, domains and kept rooms, added up one by one."""
    state, gpu = session.state, session.state.axis.index(GPU_RESOURCE)
    held: dict[str, int] = dict.fromkeys((entry.name for entry in state.queues.entries), 0)
    domains = session.calls.held_domains()
    for job in state.jobs.values():
        rows = domains.get(job.key)
        if rows is not None:
            held[job.queue] += int(state.nodes.allocatable[gpu, rows].sum())
        for task in job.tasks.values():
            is_inside = rows is not None and bool(rows[task.row])
            if (task.status.is_active or task.status is TaskStatus.PIPELINED) and not is_inside:
                request = dict(
                    zip(task.shape.request.indices, task.shape.request.amounts, strict=True)
                )
                held[task.queue] += request.get(gpu, 0)
    for job, rows_of_room in session.stage_rooms:
        assert job.key not in domains, "these worlds have no exclusive gangs with stages"
        held[job.queue] += sum(
            int(each.needs[gpu, list(rows_of_room)].sum())
            for each in session.reservations.of_stages()
            if each.job is job
        )
    return held


def charged(session: Session) -> dict[str, int]:
    gpu = session.state.axis.index(GPU_RESOURCE)
    names = [entry.name for entry in session.state.queues.entries]
    return dict(zip(names, session.queue_ledger.allocated[gpu].tolist(), strict=True))


@some_clusters
@given(scenarios())
def test_queues_hold_what_their_gangs_hold_and_get_it_back_exactly(scenario: Scenario) -> None:
    planner = Planner(scenario, Faults(()))
    for _ in play(planner, 5):
        with planner.engine.session() as session:
            hold_rooms(session)
            ledger = session.queue_ledger
            before = ledger.allocated.copy(), ledger.non_preemptible.copy()
            assert charged(session) == gpus_by_queue(session)
            with session.statement() as trial:
                for task in list(session.state.tasks.values()):
                    with suppress(LedgerRefusalError):
                        trial.evict(task, "a trial")
                        assert charged(session) == gpus_by_queue(session)
            assert np.array_equal(ledger.allocated, before[0])
            assert np.array_equal(ledger.non_preemptible, before[1])


@some_clusters
@given(scenarios())
def test_no_queue_gets_above_its_limit_by_a_domain(scenario: Scenario) -> None:
    limited = scenario.model_copy(
        update={
            "queues": tuple(
                each.model_copy(update={"gpu": each.gpu.model_copy(update={"limit": "4"})})
                for each in scenario.queues
            )
        }
    )
    planner, held = Planner(limited, Faults(())), dict[str, int]()
    for _ in play(planner, 6):
        with planner.engine.session() as session:
            hold_rooms(session)
            now = charged(session)
        over = {name: amount for name, amount in now.items() if amount > 4000 and name != "default"}
        assert all(amount <= held.get(name, amount) for name, amount in over.items())
        held = now
