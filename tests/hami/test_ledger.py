"""The ledger of HAMi's devices under Statements: undone operations leave no trace."""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from bindery.api.yamlfile import parse
from bindery.scenario.events import Faults
from bindery.scenario.files import parse_scenario
from bindery.scenario.planning import Planner
from bindery.scheduler.ledgers.base import LedgerRefusalError
from bindery.scheduler.planning.session import Session
from bindery.scheduler.plugins.hami.ledger import HamiLedger
from tests.sizes import examples

MEMORY, MEMORY_LIMIT_MIB = "nvidia.com/gpumem", 24_000

WORLD = """
resourceQuotas:
- {kind: ResourceQuota, metadata: {name: q}, spec: {hard: {limits.nvidia.com/gpumem: "24000"}}}
nodes:
- {name: "n{i}", count: 2, gpuMemory: 10000, devices: [{shares: 4}, {shares: 4}]}
jobs:
- {name: run, pods: [{count: 3, gpuMemory: 3000, state: Running, node: n0, gpu: ["0"]}]}
- {name: go, pods: [{gpuMemory: 5000, state: Releasing, node: n1, gpu: ["1"]}]}
- {name: small, pods: [{count: 4, gpuMemory: 2000, gpuCores: 20}]}
- {name: large, pods: [{count: 3, gpuDevices: 2, gpuMemory: 6000}]}
- {name: whole, pods: [{count: 2, gpus: 1}]}
"""


def planner() -> Planner:
    (document,) = parse(WORLD, "inline.yaml")
    found = Planner(parse_scenario(document), Faults(()))
    found.cluster.populate()
    return found


def ledger_of(session: Session) -> HamiLedger:
    return next(ledger for ledger in session.ledgers if isinstance(ledger, HamiLedger))


def numbers(ledger: HamiLedger) -> dict[str, dict[str, object]]:
    """Return all that is taken, without devices of which nothing is."""
    namespace: dict[str, object] = {MEMORY: ledger.budget.held("default", MEMORY)}
    return {"namespace": namespace} | {
        f"{name} {view}": {
            uuid: (each.shares, each.memory_mib, each.cores)
            for uuid, each in tally.used.items()
            if each.shares or each.memory_mib or each.cores
        }
        for name in ("n0", "n1")
        for view, tally in (("now", ledger.usage(name).now), ("later", ledger.usage(name).later))
    }


def test_running_pods_count_against_the_quota_of_their_namespace() -> None:
    with planner().engine.session() as session:
        assert ledger_of(session).budget.held("default", MEMORY) == (14_000, 9_000)


steps = st.lists(
    st.tuples(
        st.sampled_from(["allocate", "pipeline", "evict"]), st.integers(0, 99), st.booleans()
    ),
    max_size=12,
)


@settings(deadline=None, max_examples=examples(21))
@given(steps, st.integers(0, 12))
def test_undo_restores_every_device(doings: list[tuple[str, int, bool]], keep: int) -> None:
    with planner().engine.session() as session:
        ledger = ledger_of(session)
        tasks = sorted(session.state.tasks.values(), key=lambda task: task.name)
        start = numbers(ledger)
        with session.statement() as statement:
            savepoint, middle = statement.savepoint(), start
            for number, (what, which, second) in enumerate(doings):
                if number == keep:
                    savepoint, middle = statement.savepoint(), numbers(ledger)
                task = tasks[which % len(tasks)]
                try:
                    if what == "evict":
                        statement.evict(task, "test")
                    else:
                        row = session.state.nodes.rows["n1" if second else "n0"]
                        getattr(statement, what)(task, row)
                except LedgerRefusalError:
                    continue
            statement.rollback(savepoint)
            assert numbers(ledger) == middle
        assert numbers(ledger) == start


@settings(deadline=None, max_examples=examples(21))
@given(steps)
@example([("pipeline", 11, False), ("evict", 30, False), ("allocate", 59, False)])
def test_no_plan_exceeds_the_capacity_of_a_device(doings: list[tuple[str, int, bool]]) -> None:
    with planner().engine.session() as session:
        ledger = ledger_of(session)
        tasks = sorted(session.state.tasks.values(), key=lambda task: task.name)
        with session.statement() as statement:
            for what, which, second in doings:
                row = session.state.nodes.rows["n1" if second else "n0"]
                try:
                    if what == "evict":
                        statement.evict(tasks[which % len(tasks)], "test")
                    else:
                        getattr(statement, what)(tasks[which % len(tasks)], row)
                except LedgerRefusalError:
                    continue
            assert max(ledger.budget.held("default", MEMORY)) <= MEMORY_LIMIT_MIB
            for name in ("n0", "n1"):
                for tally in (ledger.usage(name).now, ledger.usage(name).later):
                    for each in tally.used.values():
                        assert each.shares <= 4
                        assert each.memory_mib <= 10_000
                        assert each.cores <= 100
