"""I11: what one plugin forbids stays forbidden, whatever others say and wherever they stand."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from contestedworlds import play, scenarios
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bindery.scenario.faults import Faults
from bindery.scenario.format import Scenario
from bindery.scenario.planning import Planner
from bindery.scheduler.engine import Engine
from bindery.scheduler.ledgers.base import LedgerRefusalError, Operation
from bindery.scheduler.model.jobs import Job, Task
from bindery.scheduler.plugins.interface import NodeFailure, Refusal
from bindery.scheduler.plugins.registry import PluginSet, load
from bindery.scheduler.session import Session

JOBS = [f"j{i}" for i in range(10)]
NODES = [f"node{i}" for i in range(4)]
HELD = ("Pipelined", "Binding")


def some(items: Sequence[Any]) -> st.SearchStrategy[frozenset[Any]]:
    return st.frozensets(st.sampled_from(items), max_size=4)


@dataclass
class Vetoes:
    """A plugin that forbids at every extension point that can forbid; all by name."""

    invalid_jobs: frozenset[str]
    jobs_over_capacity: frozenset[str]
    jobs_not_ready: frozenset[str]
    jobs_not_pipelined: frozenset[str]
    jobs_not_starving: frozenset[str]
    spared_jobs: frozenset[str]
    spared_from: frozenset[tuple[str, str]]
    """Victim job and the job that may not have it evicted."""
    job_nodes: frozenset[tuple[str, str]]
    ledger_nodes: frozenset[tuple[str, str]]
    """Job and node."""
    name: str = field(default="vetoes", init=False)

    def invalid(self, session: Session, job: Job) -> Refusal | None:  # noqa: ARG002
        return Refusal("Forbidden", "") if job.key.name in self.invalid_jobs else None

    def over_capacity(
        self,
        session: Session,  # noqa: ARG002
        job: Job,
        tasks: Sequence[Task],  # noqa: ARG002
    ) -> Refusal | None:
        return Refusal("Forbidden", "") if job.key.name in self.jobs_over_capacity else None

    def is_ready(self, session: Session, job: Job) -> bool:  # noqa: ARG002
        return job.key.name not in self.jobs_not_ready

    def is_pipelined(self, session: Session, job: Job) -> bool:  # noqa: ARG002
        return job.key.name not in self.jobs_not_pipelined

    def is_starving(self, session: Session, job: Job) -> bool:  # noqa: ARG002
        return job.key.name not in self.jobs_not_starving

    def may_evict(self, session: Session, victim: Task, preemptor: Job, action: str) -> bool:  # noqa: ARG002
        pair = victim.job.name, preemptor.key.name
        return pair[0] not in self.spared_jobs and pair not in self.spared_from

    def job_node_failures(self, session: Session, job: Job) -> Iterator[NodeFailure]:
        rows = session.state.nodes.rows
        nodes = np.zeros(len(session.state.nodes.nodes), dtype=np.bool_)
        nodes[[row for name, row in rows.items() if (job.key.name, name) in self.job_nodes]] = True
        yield NodeFailure("are forbidden", nodes)

    def ledger(self, session: Session) -> "VetoLedger":
        return VetoLedger(self, session)


@dataclass
class VetoLedger:
    """Takes nothing of some jobs on some nodes."""

    vetoes: Vetoes
    session: Session
    name: str = "vetoes"

    def apply(self, operation: Operation) -> None:
        place = operation.task.job.name, self.session.state.nodes.name(operation.row)
        if operation.kind.value != "evict" and place in self.vetoes.ledger_nodes:
            raise LedgerRefusalError("is forbidden")

    def revert(self, operation: Operation) -> None:
        pass


class Consent:
    """A plugin that agrees to everything, wherever it is asked."""

    name = "consent"

    def invalid(self, *_: object) -> None:
        return None

    def over_capacity(self, *_: object) -> None:
        return None

    def is_ready(self, *_: object) -> bool:
        return True

    is_pipelined = is_starving = may_evict = is_ready

    def job_node_failures(self, *_: object) -> Sequence[NodeFailure]:
        return ()


vetoes = st.builds(
    Vetoes,
    invalid_jobs=some(JOBS),
    jobs_over_capacity=some(JOBS),
    jobs_not_ready=some(JOBS),
    jobs_not_pipelined=some(JOBS),
    jobs_not_starving=some(JOBS),
    spared_jobs=some(JOBS),
    spared_from=some([(one, other) for one in JOBS for other in JOBS]),
    job_nodes=some([(job, node) for job in JOBS for node in NODES]),
    ledger_nodes=some([(job, node) for job in JOBS for node in NODES]),
)


def planner_with(scenario: Scenario, order: Sequence[object]) -> Planner:
    """Return a planner whose engine has `order` among its plugins; None: the built-in ones."""
    planner = Planner(scenario, Faults(()))
    built_in = load(planner.engine.configuration.plugins)
    plugins = [
        plugin for each in order for plugin in (built_in.plugins if each is None else [each])
    ]
    planner.engine._plugins = PluginSet(plugins, built_in.seconds)  # type: ignore[arg-type]  # plugins are told apart by what they offer
    return planner


def assert_all_hold(engine: Engine, forbids: Vetoes) -> None:
    """Check the last cycle's plans against everything that is forbidden."""
    report = engine.report
    for eviction in report.evictions:
        victim, preemptor = eviction.task.job.name, eviction.preemptor.name
        assert victim not in forbids.spared_jobs
        assert (victim, preemptor) not in forbids.spared_from
        assert preemptor not in forbids.jobs_not_starving
        assert (victim, eviction.moves_to) not in forbids.job_nodes | forbids.ledger_nodes
    moving = {eviction.task.uid for eviction in report.evictions}  # others are served by that
    for key, job in report.jobs.items():
        states = {pod.state for uid, pod in job.pods.items() if uid not in moving}
        planned = [pod for pod in job.pods.values() if pod.state in HELD]
        if key.name in forbids.invalid_jobs | forbids.jobs_over_capacity:
            assert not planned
        assert key.name not in forbids.jobs_not_ready or "Binding" not in states
        assert key.name not in forbids.jobs_not_pipelined or "Pipelined" not in states
        for pod in planned:
            assert (key.name, pod.node) not in forbids.job_nodes | forbids.ledger_nodes


@given(scenarios(), vetoes, st.permutations([None, "vetoes", "consent"]))
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_what_a_plugin_forbids_no_other_can_allow(
    scenario: Scenario, forbids: Vetoes, order: Sequence[str | None]
) -> None:
    chosen = {None: None, "vetoes": forbids, "consent": Consent()}
    planner = planner_with(scenario, [chosen[each] for each in order])

    for _ in play(planner, 4):
        assert_all_hold(planner.engine, forbids)


@given(scenarios(), vetoes)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_where_a_plugin_that_forbids_stands_makes_no_difference(
    scenario: Scenario, forbids: Vetoes
) -> None:
    one, other = (planner_with(scenario, order) for order in ((forbids, None), (None, forbids)))

    for _ in zip(play(one, 4), play(other, 4), strict=True):
        assert one.observe().pods.keys() == other.observe().pods.keys()
        places = [
            {name: (pod.state, pod.node) for name, pod in each.observe().pods.items()}
            for each in (one, other)
        ]
        assert places[0] == places[1]
