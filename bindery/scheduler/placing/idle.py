"""Placing pods on idle room, or on room that is being released; explains what does not fit.

The pods of a claim are placed in their order, each on its best node. A pod without a place is left
out with all equal pods, and the next candidates are tried until too few are left. At last the first
candidates are tried again, the largest first.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice

from bindery.scheduler.ledgers.base import LedgerRefusalError, OperationKind
from bindery.scheduler.model.holdings import is_elastic
from bindery.scheduler.model.jobs import Job, Task
from bindery.scheduler.model.reasons import ABOVE_LIMIT_ALONE, JobReason
from bindery.scheduler.model.shapes import Shape
from bindery.scheduler.model.verdicts import Refusal
from bindery.scheduler.placing.best import best_plan
from bindery.scheduler.placing.by_size import largest_first
from bindery.scheduler.placing.claims import Choice, RoomClaim, later_refusal
from bindery.scheduler.placing.domains import (
    ANYWHERE,
    DomainChoices,
    DomainFinders,
    PodDomains,
    need_domains,
)
from bindery.scheduler.planning.explain import no_place_text, node_reasons
from bindery.scheduler.planning.hopeless import EmptyNodes
from bindery.scheduler.planning.session import Session
from bindery.scheduler.planning.statement import Savepoint, Statement, promise

TAKEN = "reserved for gangs that come first"
_NO_NODES = Refusal(JobReason.UNSCHEDULABLE, "a plugin leaves it no nodes to try")
_MOST_TRIED = 256
"""In how many choices of domains a claim is tried before it fails in this cycle."""
_MOST_PLANS = 8
"""How many plans are compared."""


@dataclass(frozen=True, slots=True)
class _Shortage:
    """How many equal pods fitted when a gang of them failed, and why no more."""

    fitted: int
    text: str
    task: Task | None = None
    """The pod that did not fit; None if it was a pod of an earlier gang."""

    def refusal(self, claim: RoomClaim) -> Refusal:
        """Return the refusal of the job of `claim`. In a tree, the sub-group of the pod counts."""
        asked, task, text = len(claim.tasks), self.task, self.text
        if task is not None:
            asked = sum(each.sub_group == task.sub_group for each in claim.tasks)
        if asked > 1:
            text = f"{self.fitted} of {asked} pods fit; for the next one {text}"
        if task is not None and task.is_future:
            leaf = task.sub_group
            of_task = (s for s in claim.later if leaf in {each.name for each in s.group.leaves()})
            for stage in of_task:
                return later_refusal(stage, text)
        return Refusal(JobReason.UNSCHEDULABLE, text)


@dataclass(slots=True)
class Attempt:
    """One attempt to place pods in some domains."""

    statement: Statement
    choice: Choice
    finders: DomainFinders
    opening: set[int] = field(default_factory=set)
    """Rows that a ledger opens only after releases, and that are promised from now on."""
    closed: dict[Shape, list[int]] = field(default_factory=dict)
    """Shape -> rows that a ledger opens only after releases, and that are tried last."""

    def closed_now(self, task: Task, session: Session) -> list[int]:
        """Return the rows that ledgers have closed to pods equal to `task` until releases."""
        alone = session.placement.is_filtered(task.shape)
        return [] if alone else self.closed.setdefault(task.shape, [])

    def is_of_equals(self, task: Task) -> bool:
        """Return whether all pods have the shape of `task`, and the result holds for any job."""
        part = self.choice.part
        candidates = part.candidates if part.extra is None else (part.extra,)
        placed = (operation.task for operation in self.statement.operations)
        return self.finders.of(task).speaks_for_others(task) and all(
            each.shape is task.shape for each in (*candidates, *placed)
        )


class IdleRoom:
    """Places the pods of jobs, and remembers attempts that cannot succeed again in this session.

    `allow`: returns whether reservations permit the place of a pod that was just placed.
    """

    def __init__(self, session: Session, allow: Callable[[Task], bool]) -> None:
        self._session = session
        self._allow = allow
        self._shortages: dict[Shape, _Shortage] = {}
        """Allocate only takes room, so these bounds hold until the session ends."""
        self._unfit: dict[Shape, str] = {}
        """Why no node takes a pod, even if it is empty."""
        self._over_quota: list[Task] = []
        """Extra pods that are planned as preemptible, as they are over the quota."""

    @contextmanager
    def without_bounds(self) -> Iterator[None]:
        """Forget inside the block what did not fit: other room is open there."""
        known, self._shortages = self._shortages, {}
        try:
            yield
        finally:
            self._shortages = known

    def end(self, *, is_kept: bool) -> None:
        """End an attempt; `is_kept`: whether its plan is kept."""
        for task in self._over_quota:
            task.is_preemptible = is_kept
        self._over_quota.clear()

    def has_refused_equals(self, job: Job) -> bool:
        """Return whether the only pod of `job` fits nowhere, as an equal one did not; note why.

        An attempt would come to the same result: on a full cluster, for each of thousands of jobs.
        """
        is_plain = job.tree is None and not job.roles and not job.is_constrained
        if not self._shortages or not is_plain or len(job.pending) != 1 or job.missing != 1:
            return False
        (task,) = job.pending.values()
        shortage, calls = self._shortages.get(task.shape), self._session.calls
        if shortage is None or shortage.fitted:
            return False
        tasks = [task]
        if calls.task_refusal(task) is not None or calls.over_capacity(job, tasks) is not None:
            return False
        if need_domains(self._session, job, tasks):
            return False
        if not self._session.placement.finder(job).speaks_for_others(task):
            return False
        self._session.refusals[job] = Refusal(JobReason.UNSCHEDULABLE, shortage.text)
        return True

    def place(self, choice: Choice, statement: Statement) -> bool:
        """Place the pods of `choice` in `statement` and return True, or none and note why."""
        session, job, start = self._session, choice.part.job, statement.savepoint()
        anywhere = Attempt(statement, choice, DomainFinders(session, job, ANYWHERE))
        first: RoomClaim | None = None
        problem: Refusal | _Shortage | Task | None = None
        while (claim := choice.next()) is not None:
            first, problem = first or claim, problem or choice.refusal
            stopped = self._refused(anywhere, claim) or self._try(anywhere, claim)
            if stopped is None:
                return True
            problem = problem or stopped
        problem = problem or choice.refusal
        if isinstance(problem, Task) and first is not None:
            problem = self.shortage(anywhere, problem)
            session.give_up(job, statement.operations)
        statement.rollback(start)
        if first is not None and isinstance(problem, _Shortage):
            if self._placed_by_size(anywhere, first):
                return True
            problem = problem.refusal(first)
        if isinstance(problem, Refusal):
            session.refusals[job] = problem
        return False

    def _try(self, anywhere: Attempt, claim: RoomClaim) -> Refusal | _Shortage | Task | None:
        """Place `claim`; if it does not fit, leave out a pod and return why, or the pod."""
        choice, job, start = anywhere.choice, claim.job, anywhere.statement.savepoint()
        if need_domains(self._session, job, claim.tasks):
            return self._place_in_domains(anywhere, claim)
        lost = self.fill(anywhere, claim.tasks)
        if lost is None:
            return None
        if not choice.leave_out(claim, lost):
            choice.stop()
        elif job.tree is not None:  # another sub-group may need the room
            shortage = self.shortage(anywhere, lost)
            self._session.give_up(job, anywhere.statement.operations)
            anywhere.statement.rollback(start)
            return shortage
        # What is placed stays: the next claim has only the pods that are missing then.
        return lost

    def _placed_by_size(self, anywhere: Attempt, claim: RoomClaim) -> bool:
        """Place `claim`, the largest pods first, or nothing; return whether."""
        tasks = largest_first(claim.tasks, self._session.cluster_total)
        if not tasks or self._session.calls.over_capacity(claim.job, tasks) is not None:
            return False
        start = anywhere.statement.savepoint()
        if self.fill(anywhere, tasks) is None:
            return True
        anywhere.statement.rollback(start)
        return False

    def _place_in_domains(self, anywhere: Attempt, claim: RoomClaim) -> Refusal | None:
        session, choice = self._session, anywhere.choice
        domains = DomainChoices(session, claim.job)
        source = _InDomains(session, self, anywhere, claim, domains)
        offered = islice(domains.of(claim.tasks), _MOST_TRIED)
        if best_plan(anywhere.statement, offered, source) is not None:
            return None
        lost, refusal, ask = source.lost, source.refusal, domains.unmet
        if ask is not None:
            refusal = session.calls.no_domain(ask)
        if lost is None:
            lost = domains.lost(claim.tasks)
        if not choice.leave_out(claim, lost):
            choice.stop()
        return refusal or _NO_NODES

    # -- one claim -----------------------------------------------------------------------------

    def fill(self, attempt: Attempt, tasks: Sequence[Task]) -> Task | None:
        """Place `tasks` in order; return the first without a place. What is placed stays."""
        kept = self._session.memory.promised_rows(attempt.choice.part.job)
        for task in tasks:
            if not self._is_placed(attempt, task, kept.get(task.uid)):
                return task
        return None

    def _is_placed(self, attempt: Attempt, task: Task, kept_row: int | None) -> bool:
        """Place `task` on the best node that all ledgers accept; return False if there is none.

        `kept_row`: the node with room that was promised to it earlier.
        """
        statement, finder = attempt.statement, attempt.finders.of(task)
        later = attempt.closed_now(task, self._session)
        while True:
            place = finder.best_or_kept(task, kept_row)
            if (place is None or not place.fits_now) and any(
                promise(statement, task, row) for row in later
            ):
                # Equal pods that follow are promised such nodes, too.
                attempt.opening.update(later)
                for row in later:
                    finder.readmit(task, row)
                later.clear()
                return True
            if place is None:
                return False
            try:
                if place.fits_now and place.row not in attempt.opening:
                    statement.allocate(task, place.row)
                else:
                    statement.pipeline(task, place.row)
            except LedgerRefusalError as refusal:
                finder.exclude(task, place.row, str(refusal))
                if refusal.fits_later:  # idle room elsewhere is better than a promise
                    later.append(place.row)
            else:
                if self._allow(task):
                    return True
                statement.rollback(Savepoint(statement.savepoint() - 1))
                finder.exclude(task, place.row, TAKEN)

    # -- what holds a claim back ---------------------------------------------------------------

    def _refused(self, anywhere: Attempt, claim: RoomClaim) -> Refusal | _Shortage | None:
        """Leave out pods if `claim` need not be tried, and return why; None if it must be."""
        calls, choice, job = self._session.calls, anywhere.choice, claim.job
        over = calls.over_capacity(job, claim.tasks)
        if over is not None and self._may_run_over_quota(claim, over):
            over = calls.over_capacity(job, claim.tasks)
        if over is not None:
            unfit = None if ABOVE_LIMIT_ALONE in over.message else self._never_fits(claim.tasks)
            if unfit is not None:  # to wait for the queue would not help
                choice.barred.add_equal(unfit)
                text = f"{self._unfit_text(anywhere, unfit)}; besides, {over.message}"
                return Refusal(JobReason.FITS_NO_NODE, text)
            choice.leave_out_excess(claim, lambda some: calls.over_capacity(job, some) is None)
            return over
        for stage in claim.later:
            shortage = self._session.futures.shortage(job, stage)
            if shortage is not None:
                choice.stop()
                return later_refusal(stage, shortage)
        # Saves an attempt for each of many equal gangs in a full cluster.
        known = self._known_shortage(anywhere, claim.tasks)
        if known is not None:
            choice.barred.add_equal(claim.tasks[0])
        return known

    def _may_run_over_quota(self, claim: RoomClaim, over: Refusal) -> bool:
        """Let extra pods of a non-preemptible gang be preemptible where they exceed the quota.

        The gang keeps its minimum in the quota; a pod's own annotation comes first.
        """
        is_extra = is_elastic(claim.job) and claim.job.is_satisfied
        if over.reason != JobReason.NON_PREEMPTIBLE_OVER_QUOTA or not is_extra:
            return False
        pinned = [task for task in claim.tasks if not task.is_preemptible]
        if any(task.own_preemptible is not None for task in pinned):
            return False
        for task in pinned:
            task.is_preemptible = True
        self._over_quota += pinned
        return True

    def _never_fits(self, tasks: Sequence[Task]) -> Task | None:
        """Return the first of `tasks` that no node takes, even if it is empty; None if all fit."""
        empty = self._session.once(EmptyNodes, EmptyNodes)
        return next((task for task in tasks if not empty.take(task.shape)), None)

    def _unfit_text(self, anywhere: Attempt, task: Task) -> str:
        """Return why no node takes `task`."""
        text = self._unfit.get(task.shape)
        if text is None:
            finder = anywhere.finders.of(task)
            counts = node_reasons(self._session, self._session.placement, finder, task)
            text = self._unfit[task.shape] = no_place_text(self._session, counts)
        return text

    def _known_shortage(self, anywhere: Attempt, tasks: Sequence[Task]) -> _Shortage | None:
        """Return why `tasks` cannot fit, if an earlier gang of equal pods has failed."""
        shortage = self._shortages.get(tasks[0].shape)
        if shortage is None or not anywhere.is_of_equals(tasks[0]):
            return None
        is_known = len(anywhere.statement.operations) + len(tasks) > shortage.fitted
        return shortage if is_known else None

    def shortage(self, attempt: Attempt, lost: Task) -> _Shortage:
        """Return why `lost` does not fit, while the pods that fit are still placed."""
        session = self._session
        counts = node_reasons(session, session.placement, attempt.finders.of(lost), lost)
        text, operations = no_place_text(session, counts), attempt.statement.operations
        if attempt.is_of_equals(lost):
            self._shortages[lost.shape] = _Shortage(len(operations), text)
        fitted = sum(operation.task.sub_group == lost.sub_group for operation in operations)
        return _Shortage(fitted, text, lost)


@dataclass(frozen=True, slots=True)
class _IdlePlan:
    """A plan in some domains."""

    rank: int
    """Of the domain of the whole claim."""
    waits: bool
    """Whether pods wait for releases."""
    rank_inside: int
    """Sum of the ranks of the narrower domains."""

    @property
    def is_ideal(self) -> bool:
        """Whether nothing can be better."""
        return not self.waits and self.rank_inside == 0


class _InDomains:
    """Idle room in each choice of domains for `claim`."""

    def __init__(
        self,
        session: Session,
        room: IdleRoom,
        anywhere: Attempt,
        claim: RoomClaim,
        choices: DomainChoices,
    ) -> None:
        self._session = session
        self._choices = choices
        self._room = room
        self._anywhere = anywhere
        self._claim = claim
        self._start = anywhere.statement.savepoint()
        self._most = -1
        self.lost: Task | None = None
        """The pod without a place in the domains in which most pods fitted."""
        self.refusal: Refusal | None = None
        """Why; None if nothing was tried."""

    def plan(self, domains: PodDomains) -> _IdlePlan | None:
        """Place the claim in `domains`."""
        session, statement, claim = self._session, self._anywhere.statement, self._claim
        choice = self._anywhere.choice
        attempt = Attempt(statement, choice, DomainFinders(session, claim.job, domains))
        lost = self._room.fill(attempt, claim.tasks)
        if lost is not None:
            self._note(attempt, lost)
            statement.rollback(self._start)
            tasks = largest_first(claim.tasks, session.cluster_total)
            if not tasks or self._room.fill(attempt, tasks) is not None:
                self._choices.reject(lost)
                return None
        operations = statement.operations[self._start :]
        waits = any(each.kind is OperationKind.PIPELINE for each in operations)
        return _IdlePlan(domains.whole.rank, waits, domains.rank - domains.whole.rank)

    def is_better(self, plan: _IdlePlan, than: _IdlePlan) -> bool:
        """Return whether less of `plan` waits, or its pods are closer."""
        return (plan.waits, plan.rank_inside) < (than.waits, than.rank_inside)

    def is_enough(self, best: _IdlePlan, plans: int, coming: PodDomains) -> bool:
        """Return whether enough plans were compared, or the domains that come are worse."""
        return plans >= _MOST_PLANS or coming.whole.rank > best.rank

    def _note(self, attempt: Attempt, lost: Task) -> None:
        placed = len(attempt.statement.operations)
        if placed > self._most:
            self._most, self.lost = placed, lost
            shortage = self._room.shortage(attempt, lost)
            self.refusal = shortage.refusal(self._claim)
            self._session.give_up(self._claim.job, attempt.statement.operations)
