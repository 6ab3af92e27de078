"""I11: a refusal by one plugin is final, with any other plugins in any order."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bindery.scenario.events import Faults
from bindery.scenario.format import Scenario
from bindery.scenario.planning import Planner
from bindery.scheduler.engine import Engine
from bindery.scheduler.ledgers.base import LedgerRefusalError, Operation
from bindery.scheduler.model.domains import Domain, Freeable
from bindery.scheduler.model.jobs import Job, Task
from bindery.scheduler.model.state import PlanState
from bindery.scheduler.model.verdicts import NodeFailure, Refusal
from bindery.scheduler.planning.session import Session
from bindery.scheduler.plugins.interface.nodes import NextPods
from bindery.scheduler.plugins.registry import PluginSet, load
from tests.scheduler.contestedworlds import play, scenarios
from tests.sizes import examples

JOBS = [f"j{i}" for i in range(10)]
NODES = [f"node{i}" for i in range(4)]
CONFINED_TO = NODES[1:3]
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
    confined_jobs: frozenset[str] = frozenset()
    """Jobs of which pods are placed on one and the same node of `CONFINED_TO`."""
    name: str = field(default="vetoes", init=False)

    def domains_of(self, job: str) -> Sequence[str]:
        """Return the nodes that a pod of `job` may be placed on."""
        return CONFINED_TO if job in self.confined_jobs else NODES

    def gang_domains(
        self,
        session: Session,
        job: Job,
        pods: NextPods,  # noqa: ARG002
        freeable: Freeable | None,  # noqa: ARG002
    ) -> Sequence[Domain] | None:
        if job.key.name not in self.confined_jobs:
            return None
        rows = session.state.nodes.rows
        masks = np.zeros((len(CONFINED_TO), len(session.state.nodes.nodes)), dtype=np.bool_)
        for mask, node in zip(masks, CONFINED_TO, strict=True):
            mask[[rows[node]] if node in rows else []] = True
        return [Domain(mask) for mask in masks]

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

    def ledger(self, session: Session, state: PlanState) -> "VetoLedger":  # noqa: ARG002
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
    confined_jobs=some(JOBS),
)

NOTHING: frozenset[Any] = frozenset()


def runs(name: str, gpus: int, *nodes: str) -> dict[str, Any]:
    """Return a job of which every pod runs on one of `nodes`."""
    pods = [{"gpus": gpus, "state": "Running", "node": node} for node in nodes]
    return {"name": name, "queue": "q0", "minMember": 0, "pods": pods}


def waits(name: str, gpus: int) -> dict[str, Any]:
    """Return a job of one pod that waits."""
    return {"name": name, "queue": "q0", "minMember": 0, "pods": [{"gpus": gpus}]}


def cluster(gpus: Sequence[int], *jobs: dict[str, Any]) -> Scenario:
    """Return nodes with `gpus`, and `jobs` in one queue."""
    nodes = [{"name": f"node{i}", "gpus": count} for i, count in enumerate(gpus)]
    gpu = {"quota": 0, "weight": 0}
    queues = [{"name": "q0", "gpu": gpu}]
    return Scenario.model_validate({"nodes": nodes, "queues": queues, "jobs": list(jobs)})


ROOM_BY_A_MOVE = cluster([2, 4], waits("j2", 4), runs("j3", 2, "node1"))
"""Only j3 can make room for j2, by moving to node0."""
HELD_BACK_THOUGH_IT_FITS = cluster(
    [1, 2, 4, 2],
    waits("j0", 1),
    runs("j1", 2, "node1"),
    waits("j2", 3),
    runs("j3", 2, "node2", "node2"),
)
"""j0 needs no room that others would have to make."""


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
        if eviction.moves_to:
            assert victim not in forbids.invalid_jobs | forbids.jobs_over_capacity
            assert victim not in forbids.jobs_not_ready | forbids.jobs_not_pipelined
            assert eviction.moves_to in forbids.domains_of(victim)
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
            assert pod.node in forbids.domains_of(key.name)


@example(
    scenario=ROOM_BY_A_MOVE,
    forbids=Vetoes(frozenset({"j3"}), *[NOTHING] * 8),
    order=[None, "vetoes", "consent"],
)
@example(
    scenario=HELD_BACK_THOUGH_IT_FITS,
    forbids=Vetoes(frozenset({"j3"}), NOTHING, frozenset({"j0"}), *[NOTHING] * 6),
    order=[None, "vetoes", "consent"],
)
@given(scenarios(), vetoes, st.permutations([None, "vetoes", "consent"]))
@settings(max_examples=examples(18), deadline=None)
def test_no_plugin_can_override_the_refusal_of_another_plugin(
    scenario: Scenario, forbids: Vetoes, order: Sequence[str | None]
) -> None:
    chosen = {None: None, "vetoes": forbids, "consent": Consent()}
    planner = planner_with(scenario, [chosen[each] for each in order])

    for _ in play(planner, 4):
        assert_all_hold(planner.engine, forbids)


@given(scenarios(), vetoes)
@settings(max_examples=examples(10), deadline=None)
def test_the_position_of_a_forbidding_plugin_does_not_change_the_plan(
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


def test_no_pod_moves_for_a_fitting_job_that_is_held_back() -> None:
    forbids = Vetoes(NOTHING, NOTHING, frozenset({"j0"}), *[NOTHING] * 6)
    planner = planner_with(HELD_BACK_THOUGH_IT_FITS, [None, forbids])

    for _ in play(planner, 2):
        assert planner.engine.report.evictions == []
