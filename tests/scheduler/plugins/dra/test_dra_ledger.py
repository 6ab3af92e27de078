"""The ledger of claims: an undone Statement leaves devices and claims as before."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from bindery.scenario.events import Faults
from bindery.scenario.format import Scenario
from bindery.scenario.planning import Planner
from bindery.scheduler.ledgers.base import LedgerRefusalError
from bindery.scheduler.model.jobs import Task
from bindery.scheduler.planning.session import Session
from bindery.scheduler.planning.statement import Statement
from bindery.scheduler.plugins.dra.ledger import ClaimLedger
from bindery.scheduler.plugins.dra.usage import DeviceId
from tests.sizes import examples

NODES = ("node0", "node1")
DEVICES = [DeviceId("d.example.com", node, name) for node in NODES for name in ("x", "y")]
ASKS = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "any"}}]}}


def held(node: str, device: str) -> dict[str, Any]:
    result = {"request": "r", "driver": "d.example.com", "pool": node, "device": device}
    only = {"key": "metadata.name", "operator": "In", "values": [node]}
    return {
        "allocation": {
            "devices": {"results": [result]},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [only]}]},
        },
    }


def claim(name: str, status: dict[str, Any] | None = None) -> dict[str, Any]:
    item = {"kind": "ResourceClaim", "metadata": {"name": name}, "spec": ASKS}
    return {**item, "status": status} if status else item


def world() -> Scenario:
    """Two nodes with two devices each: one held alone, one held by two pods, and six that wait."""
    slices = [
        {
            "kind": "ResourceSlice",
            "metadata": {"name": node},
            "spec": {
                "driver": "d.example.com",
                "nodeName": node,
                "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": "x"}, {"name": "y"}],
            },
        }
        for node in NODES
    ]
    running = [
        {"state": "Running", "node": "node0", "claims": ["alone"]},
        {"state": "Running", "node": "node1", "claims": ["both"], "count": 2},
    ]
    waiting = [{"claims": [name]} for name in ("a", "b", "c", "common", "common", "alone")]
    return Scenario.model_validate(
        {
            "name": "a world of claims",
            "nodes": [{"name": node} for node in NODES],
            "queues": [{"name": "q"}],
            "deviceClasses": [{"kind": "DeviceClass", "metadata": {"name": "any"}}],
            "resourceSlices": slices,
            "resourceClaims": [
                claim("alone", held("node0", "x")),
                claim("both", held("node1", "x")),
                *(claim(name) for name in ("a", "b", "c", "common")),
            ],
            "jobs": [
                {"name": "on", "queue": "q", "pods": running},
                {"name": "off", "queue": "q", "pods": waiting},
            ],
            "expect": {"unchanged": True},
        }
    )


@contextmanager
def opened() -> Iterator[tuple[Session, ClaimLedger, list[Task]]]:
    planner = Planner(world(), Faults([]))
    planner.cluster.populate()
    with planner.engine.session() as session:
        ledger = next(each for each in session.ledgers if isinstance(each, ClaimLedger))
        tasks = sorted(session.state.tasks.values(), key=lambda task: task.name)
        yield session, ledger, tasks


def looks(ledger: ClaimLedger, tasks: list[Task]) -> tuple[Any, ...]:
    """Return all that can be seen of the ledger."""
    devices = [(ledger.now.is_taken(each), ledger.later.is_taken(each)) for each in DEVICES]
    states = [ledger.state_of(need) for task in tasks for need in ledger.needs(task)]
    claims = [(s.allocation, frozenset(s.users), frozenset(s.leaving)) for s in states]
    return devices, claims, [ledger.handover(task) for task in tasks]


def step(statement: Statement, kind: str, task: Task, row: int) -> None:
    try:
        if kind == "allocate":
            statement.allocate(task, row)
        elif kind == "pipeline":
            statement.pipeline(task, row)
        else:
            statement.evict(task, "the test")
    except LedgerRefusalError:
        return


KINDS = st.sampled_from(["allocate", "pipeline", "evict", "save", "back"])
STEPS = st.lists(st.tuples(KINDS, st.integers(0, 8), st.integers(0, 1)), max_size=25)


@settings(max_examples=examples(14), deadline=None)
@given(steps=STEPS)
def test_undo_restores_every_device_and_every_claim(
    steps: list[tuple[str, int, int]],
) -> None:
    with opened() as (session, ledger, tasks):
        before = looks(ledger, tasks)
        with session.statement() as statement:
            saved = [(statement.savepoint(), before)]
            for kind, index, row in steps:
                if kind == "save":
                    saved.append((statement.savepoint(), looks(ledger, tasks)))
                elif kind == "back":
                    point, then = saved[-1] if len(saved) == 1 else saved.pop()
                    statement.rollback(point)
                    assert looks(ledger, tasks) == then
                else:
                    step(statement, kind, tasks[index], row)
        assert looks(ledger, tasks) == before


@settings(max_examples=examples(14), deadline=None)
@given(steps=STEPS)
def test_no_device_is_given_to_two_claims(steps: list[tuple[str, int, int]]) -> None:
    with opened() as (session, ledger, tasks), session.statement() as statement:
        for kind, index, row in steps:
            if kind in ("allocate", "pipeline", "evict"):
                step(statement, kind, tasks[index], row)
        states = {id(s): s for t in tasks for n in ledger.needs(t) for s in (ledger.state_of(n),)}
        given_away = [
            (result.pool, result.device)
            for state in states.values()
            if state.allocation is not None and not state.is_released
            for result in state.allocation.devices.results
        ]
        assert len(given_away) == len(set(given_away))


def test_an_evicted_pod_releases_its_device_only_if_no_other_pod_reserves_it() -> None:
    alone, both = DEVICES[0], DEVICES[2]
    with opened() as (session, ledger, tasks), session.statement() as statement:
        on = {task.name: task for task in tasks if task.name.startswith("on-")}
        statement.evict(on["on-0"], "the test")
        statement.evict(on["on-1"], "the test")

        assert (ledger.now.is_taken(alone), ledger.later.is_taken(alone)) == (True, False)
        assert ledger.later.is_taken(both)

        statement.evict(on["on-2"], "the test")

        assert not ledger.later.is_taken(both)


def test_shares_have_the_same_names_in_a_second_plan() -> None:
    with opened() as (session, ledger, tasks):
        task = next(task for task in tasks if task.name == "off-0")
        plans = []
        for _ in range(2):
            with session.statement() as statement:
                statement.allocate(task, 0)
                plans.append(ledger.handover(task))

    assert plans[0] is not None
    assert plans[0] == plans[1]
