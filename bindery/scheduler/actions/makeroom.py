"""What reclaim, preempt and consolidation share: waiting jobs in order, one search each."""

from collections import Counter
from collections.abc import Hashable, Iterator
from enum import Enum

from bindery.scheduler.actions.base import Commit, WorkList
from bindery.scheduler.model.columns import BoolColumn
from bindery.scheduler.model.jobs import Job
from bindery.scheduler.rounds import Turn
from bindery.scheduler.session import Session
from bindery.scheduler.solver.bounds import exceeds_idle
from bindery.scheduler.solver.rearrange import Rearrangement
from bindery.scheduler.solver.rules import Claim, Rule
from bindery.scheduler.solver.search import Search
from bindery.scheduler.solver.victims import VictimTable
from bindery.scheduler.statement import Statement


class MakeRoom:
    """Serves waiting jobs that could not be placed, by evicting others as `rule` allows."""

    tries_jobs = True
    fills = False

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self.name = rule.name

    def execute(self, session: Session, turn: Turn) -> Iterator[Commit]:
        """Try each waiting job once; yield the plans that were committed."""
        candidates = (
            job
            for job in session.state.waiting.values()
            if job not in session.failed and _may_try(session, job)
        )
        waiting = turn.members(candidates)
        if not waiting:
            return
        failed: set[Hashable] = set()
        for job in turn.take(WorkList(session, waiting)):
            made: Commit | _Outcome = _Outcome.NO_PLAN
            if job not in session.failed:
                with session.guarded(job):
                    made = self._serve(session, job, failed)
            if isinstance(made, Commit):
                failed.clear()
                yield made

    def _serve(self, session: Session, job: Job, failed: set[Hashable]) -> "Commit | _Outcome":
        """Return the committed plan for `job`. `failed`: likenesses of claims without a plan."""
        claim = Claim(job, tuple(session.next_pods(job)))
        likeness = _likeness(session, claim)
        if not claim.tasks or likeness in failed or self._rule.refuse(session, claim):
            return _Outcome.NO_PLAN
        made = self._try(session, claim)
        if made is _Outcome.NO_PLAN and likeness is not None:
            failed.add(likeness)
        return made

    def could_serve(self, session: Session, job: Job) -> bool:
        """Return whether there is a plan now that makes room for `job`. Nothing is changed."""
        with session.guarded(job):
            return self._could_serve(session, job)
        return False

    def _could_serve(self, session: Session, job: Job) -> bool:
        claim = Claim(job, tuple(session.next_pods(job)))
        if not _may_try(session, job) or self._rule.refuse(session, claim):
            return False
        with (
            session.reservations.lifted(lambda each: each.job is job),
            session.statement() as trial,
        ):
            start = trial.savepoint()
            if self._rule.moves_all and exceeds_idle(session, claim):
                return False
            for domain in session.domains(job):
                for search in self._searches(session, trial, claim, domain):
                    if search.run():
                        return True
                    trial.rollback(start)
        return False

    def _try(self, session: Session, claim: Claim) -> "Commit | _Outcome":
        """Return the committed plan for `claim`; what is reserved for its job counts as free."""
        with session.reservations.lifted(lambda each: each.job is claim.job):
            if self._rule.moves_all and exceeds_idle(session, claim):
                return _Outcome.NO_PLAN
            for domain in session.domains(claim.job):
                made = self._search(session, claim, domain)
                if made is not _Outcome.NO_PLAN:
                    return made
        return _Outcome.NO_PLAN

    def _search(
        self, session: Session, claim: Claim, domain: BoolColumn | None
    ) -> "Commit | _Outcome":
        """Return the committed plan for `claim`; first one in which all victims may just go."""
        with session.statement() as statement:
            start = statement.savepoint()
            for search in self._searches(session, statement, claim, domain):
                if not search.run():
                    statement.rollback(start)
                    continue
                votes = (p.is_pipelined(session, claim.job) for p in session.plugins.pipelining)
                if not all(votes):
                    return _Outcome.HELD_BACK
                _table(session).gone(search.gone)
                session.promised(claim.job)
                is_gang = len(claim.tasks) > 1
                return Commit(claim.job, session.commit(statement), is_gang)
        return _Outcome.NO_PLAN

    def _searches(
        self, session: Session, statement: Statement, claim: Claim, domain: BoolColumn | None
    ) -> Iterator[Search | Rearrangement]:
        """Yield what is tried one after the other; first a plan in which all victims may just go.

        Each begins with `statement` as it was.
        """
        table = _table(session)
        if self._rule.moves_all:
            yield Rearrangement(session, statement, claim, self._rule, table, domain)
        for with_moves in (False, True) if _has_idle(session, claim) else (False,):
            yield Search(
                session, statement, claim, self._rule, table, with_moves=with_moves, domain=domain
            )


class _Outcome(Enum):
    """What became of a claim for which nothing was committed."""

    NO_PLAN = "no plan"
    HELD_BACK = "held back"
    """There was a plan, but a plugin does not want its promises kept."""


def _table(session: Session) -> VictimTable:
    """Return who could be evicted, the same for all actions of a session."""
    session.victims = session.victims or VictimTable(session)
    return session.victims


def _has_idle(session: Session, claim: Claim) -> bool:
    """Return whether of all that `claim` asks for something is idle, so that others could move."""
    idle = session.state.nodes.idle
    return all(bool((idle[index] > 0).any()) for index in claim.request)


def _likeness(session: Session, claim: Claim) -> Hashable:
    """Return what claims that fare equally share; None for one with wishes of its own."""
    if session.plugins.domains or session.plugins.victim_filters:
        return None
    if session.placement.finder(claim.job).is_restricted or session.reservations.of(claim.job):
        return None
    if any(session.placement.is_filtered(task.shape) for task in claim.tasks):
        return None
    shapes = Counter((task.shape, task.is_preemptible) for task in claim.tasks)
    return session.queue_row(claim.job), session.priority(claim.job), frozenset(shapes.items())


def _may_try(session: Session, job: Job) -> bool:
    """Return whether `job` is sound, still waits, and no pod of it waits for room already."""
    with session.guarded(job):
        return _is_starving(session, job)
    return False


def _is_starving(session: Session, job: Job) -> bool:
    if not job.pending or job.promised.total or session.has_tried_enough(job):
        return False
    if any(session.task_refusal(task) is not None for task in job.pending.values()):
        return False
    plugins = session.plugins
    if not all(plugin.is_starving(session, job) for plugin in plugins.starvation):
        return False
    return all(plugin.invalid(session, job) is None for plugin in plugins.validity)
