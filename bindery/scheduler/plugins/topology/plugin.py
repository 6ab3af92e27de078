"""The scheduler plugin topology: gangs in one rack, block or HyperNode.

A PodGroup and each of its sub-groups may name a tree, a level that their pods must not leave, and a
level that they should not leave. The plugin keeps the trees and offers the domains with room;
planning tries them with the same Statements as all other plans.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bindery.api import exclusive
from bindery.kube.objects.resources import NODES, Resource
from bindery.kube.objects.topology import HYPER_NODES, TOPOLOGIES
from bindery.kube.objects.watched import KubeObject
from bindery.kube.watches.store import Change
from bindery.scheduler.model.columns import BoolColumn
from bindery.scheduler.model.constraints import Constraint
from bindery.scheduler.model.domains import AskedDomain, Domain, DomainAsk
from bindery.scheduler.model.holdings import is_exclusive
from bindery.scheduler.model.jobs import Job, JobKey, Task
from bindery.scheduler.model.reasons import ABOVE_LIMIT_ALONE, JobReason
from bindery.scheduler.model.resources import PODS
from bindery.scheduler.model.state import PlanState
from bindery.scheduler.model.trees import NOWHERE
from bindery.scheduler.model.verdicts import NodeFailure, Refusal
from bindery.scheduler.plugins.topology.book import TreeBook
from bindery.scheduler.plugins.topology.candidates import Candidates
from bindery.scheduler.plugins.topology.domain_limits import domain_amounts, refusal
from bindery.scheduler.plugins.topology.exclusive import Occupancy
from bindery.scheduler.plugins.topology.levels import (
    Levels,
    TopologyProblem,
    allowed,
    padded,
    problems_text,
    ranked,
)
from bindery.scheduler.plugins.view import SessionView


class Topology:
    """Offers the domains of trees."""

    name = "topology"

    def __init__(self) -> None:
        self._book = TreeBook()

    def watched_resources(self) -> Sequence[Resource[Any]]:
        """Return nodes and the kinds that describe trees over them."""
        return (NODES, TOPOLOGIES, HYPER_NODES)

    def observe(self, change: Change[KubeObject]) -> bool:
        """Process a change; return False, because this plugin has no `node_failures`."""
        self._book.observe(change)
        return False

    def ledger(self, session: SessionView, state: PlanState) -> Occupancy:
        """Return the ledger of exclusive domains."""
        return Occupancy(session, state, self._book)

    def job_node_failures(self, session: SessionView, job: Job) -> Sequence[NodeFailure]:
        """Return the nodes in exclusive domains of other jobs."""
        occupancy = session.ledger(Occupancy)
        closed = occupancy.closed_to(job)
        if closed is None:
            return ()
        failure = NodeFailure(
            "in the exclusive domain of another gang",
            closed,
            is_lasting=False,
            is_shared=closed is occupancy.closed,
            closed_by={key: rows for key, rows in occupancy.held().items() if key != job.key},
        )
        return (failure,)

    def held_domains(self, session: SessionView) -> Mapping[JobKey, BoolColumn]:
        """Return job -> the rows of its exclusive domains."""
        return session.ledger(Occupancy).held()

    def has_held_domain(self, session: SessionView, task: Task) -> bool:
        """Return whether `task` goes into an exclusive domain that its gang has."""
        return session.ledger(Occupancy).has_domain(task)

    def asked_domains(self, session: SessionView, job: Job) -> Sequence[AskedDomain]:
        """Return the smallest exclusive domains that the waiting pods of `job` could take."""
        if self._forbidding(session, job) is not None:
            return ()
        occupancy = session.ledger(Occupancy)
        return [
            (rows, tasks)
            for rows, tasks in occupancy.asked.of(job)
            if not any(occupancy.has_domain(task) for task in tasks)
        ]

    def invalid(self, session: SessionView, job: Job) -> Refusal | None:
        """Refuse a job with a constraint that no tree can serve, or that its queue forbids."""
        forbidding = self._forbidding(session, job)
        if forbidding is not None:
            text = (
                f"it asks for an exclusive domain, and queue {forbidding} forbids exclusive domains"
            )
            return Refusal(JobReason.EXCLUSIVE_DOMAIN_FORBIDDEN, text)
        for name, constraint in job.constraints():
            for each in (constraint, constraint.segment):
                if each is None or not each.limits:
                    continue
                try:
                    allowed(self._book, session.state.nodes, each)
                except TopologyProblem as problem:
                    where = f"sub-group {name}: " if name else ""
                    return Refusal(JobReason.TOPOLOGY, f"{where}{problem}", is_lasting=True)
        return None

    def _forbidding(self, session: SessionView, job: Job) -> str | None:
        """Return the queue that forbids the exclusive domains of `job`; None for none."""
        if not job.is_constrained or not is_exclusive(job):
            return None
        chain = session.queue_ledger.chains[session.queue_row(job)]
        queues = (session.state.queues.entries[row] for row in chain)
        return next((queue.name for queue in queues if queue.forbids_exclusive), None)

    def group_domains(self, session: SessionView, ask: DomainAsk) -> Iterator[Domain]:
        """Yield the domains that may have room for the pods of `ask`, best first."""
        try:
            levels = allowed(self._book, session.state.nodes, ask.constraint)
        except TopologyProblem:  # `invalid` has refused the job
            return
        candidates = self._candidates(session, ask, levels)
        if not ask.constraint.is_exclusive:
            yield from candidates
            return
        for domain, refused in self._exclusive(session, ask, levels, candidates):
            if refused is None:
                yield domain

    def _exclusive(
        self, session: SessionView, ask: DomainAsk, levels: Levels, candidates: Candidates
    ) -> Iterator[tuple[Domain, Refusal | None]]:
        """Yield the `candidates` with what they close, each with why its queue may not hold it."""
        occupancy, level = session.ledger(Occupancy), levels.allowed[-1]
        own = occupancy.own_rows(ask.job)
        is_pinned = any(not task.is_preemptible for task in ask.tasks)
        domains = padded(levels.tree, level, len(session.state.nodes.nodes))
        for domain in candidates:
            at = int(domains[int(domain.nodes.argmax())]) if domain.nodes is not None else NOWHERE
            closes = domains == at
            name = f"{levels.name(level)} {levels.tree.names(level)[at]}"
            amounts = domain_amounts(session, closes & ~own)
            # What the queue holds may go, too, where evictions or ends are planned.
            alone = ask.freeable is not None
            refused = refusal(session, ask.job, amounts, name, is_pinned=is_pinned, alone=alone)
            yield replace(domain, closes=closes), refused

    def no_domain(self, session: SessionView, ask: DomainAsk) -> Refusal:
        """Return why `group_domains` yields nothing for `ask`."""
        try:
            levels = allowed(self._book, session.state.nodes, ask.constraint)
        except TopologyProblem as problem:
            return Refusal(JobReason.UNSCHEDULABLE, str(problem))
        if ask.constraint.is_exclusive:
            candidates = self._candidates(session, ask, levels)
            refusals = (it for _, it in self._exclusive(session, ask, levels, candidates) if it)
            if (first := next(refusals, None)) is not None:
                if first.reason == JobReason.OVER_LIMIT and self._are_all_too_large(session, ask):
                    return replace(first, message=f"{first.message}, {ABOVE_LIMIT_ALONE}")
                return first
        return Refusal(JobReason.UNSCHEDULABLE, self._no_room_text(session, ask, levels))

    def _are_all_too_large(self, session: SessionView, ask: DomainAsk) -> bool:
        """Return whether each domain of the level of `ask` is above a limit of its queue alone."""
        _, offered = session.ledger(Occupancy).asked.of_level(ask.constraint)
        chain = list(session.queue_ledger.chains[session.queue_row(ask.job)])
        least = session.shares.limit[:, chain].min(axis=1)
        least[session.state.axis.index(PODS)] = np.inf
        used = offered[:, offered.any(axis=0)]
        return bool((used > least[:, None]).any(axis=0).all())

    def _no_room_text(self, session: SessionView, ask: DomainAsk, levels: Levels) -> str:
        count, most, name = self._candidates(session, ask, levels).most(levels.allowed[-1])
        level, wrong = levels.name(levels.allowed[-1]), problems_text(levels.tree)
        text = f"none of {count} domains of {level} has room for {len(ask.tasks)} pods"
        if len(ask.beside):
            text += f" beside the {len(ask.beside)} that have a place"
        return f"{text}; the most that fit are {most}, in {name}{wrong}" if count else text + wrong

    def bind_data(self, session: SessionView, task: Task, row: int) -> Mapping[str, Any] | None:  # noqa: ARG002
        """Return the levels at which `task` is granted the domain of its node; None for none."""
        levels = session.ledger(Occupancy).asked_levels(task)
        return exclusive.HeldDomains(levels=levels).as_data() if levels else None

    def tree_positions(self, session: SessionView, constraint: Constraint) -> NDArray[np.intp]:
        """Return node row -> position in the tree of `constraint`; nodes in no domain come last."""
        rows = session.order
        tree = self._book.tree(session.state.nodes, constraint.tree)
        keys: list[NDArray[np.intp]] = [np.arange(len(rows))]
        count = len(session.state.nodes.nodes)
        for level in reversed(range(len(tree.levels) if tree is not None else 0)):
            assert tree is not None, "it has levels"
            found = ranked(tree, level, count)[rows]
            keys.append(np.where(found == NOWHERE, count, found))
        order = rows[np.lexsort(tuple(keys))]
        positions = np.zeros(count, dtype=np.intp)
        positions[order] = np.arange(len(order))
        return positions

    def _candidates(self, session: SessionView, ask: DomainAsk, levels: Levels) -> Candidates:
        if not ask.constraint.is_exclusive:
            return Candidates(session, ask, levels)
        occupancy, coming = session.ledger(Occupancy), {task.uid for task in ask.tasks}

        def is_other(task: Task) -> bool:
            return ask.is_member(task) and task.uid not in coming

        # Pods without a PodGroup may belong together, too.
        ask = replace(ask, beside=occupancy.rows_of(is_other))
        others, constraint = occupancy.others(ask.is_member), ask.constraint
        leaving = [task for task in occupancy.leaving() if not ask.is_member(task)]
        may_go = ask.freeable.pods if ask.freeable is not None else ()
        going = [(task.uid, task.row) for task in others if task.uid in may_go]
        stay = [task.row for task in others if task.uid not in may_go]
        # Room that is kept for a later stage goes with all pods of its gang.
        for job, rows in session.stage_rooms:
            keepers = [task.uid for task in job.tasks.values() if task.status.is_active]
            if job is ask.job:
                continue
            if keepers and all(uid in may_go for uid in keepers):
                going += [(uid, row) for uid in keepers for row in rows]
            else:
                stay += rows
        return Candidates(
            session,
            ask,
            levels,
            closed=occupancy.domains_with(constraint, stay),
            later=occupancy.domains_with(constraint, (task.row for task in leaving)),
            going=going,
        )
