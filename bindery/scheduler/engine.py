"""The engine: one planning cycle, from an open session to drafts of Statements and reports.

The process, the scenario runner and the benchmarks use the same engine. No I/O: the caller makes
BindRequests of the drafts that a cycle yields, and reports failures back to the engine.
"""

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

from bindery.api.configuration import SchedulerConfiguration
from bindery.kube.objects.bindrequests import PodBinding
from bindery.kube.objects.resources import Resource
from bindery.kube.objects.watched import KubeObject, Pod
from bindery.scheduler.actions import registry as actions
from bindery.scheduler.actions.holding import hold_rooms
from bindery.scheduler.cache.cluster import Cluster
from bindery.scheduler.cache.defects import DefectStage, of_job
from bindery.scheduler.cache.failures import SPARE_S
from bindery.scheduler.commit.drafts import Committer, StatementDraft
from bindery.scheduler.ledgers.base import OperationKind
from bindery.scheduler.model.evictions import Eviction
from bindery.scheduler.model.jobs import Job, JobKey, TaskStatus, Uid
from bindery.scheduler.model.reasons import JobReason
from bindery.scheduler.model.shapes import Need
from bindery.scheduler.model.verdicts import Refusal
from bindery.scheduler.planning.effects import bind_effects
from bindery.scheduler.planning.filter_cache import FilterCache
from bindery.scheduler.planning.job_reports import job_report
from bindery.scheduler.planning.reports import CycleReport, JobReport, RefusedPlan
from bindery.scheduler.planning.rounds import Deadline, Position, Round, Turn
from bindery.scheduler.planning.session import Session
from bindery.scheduler.planning.statement import Commit
from bindery.scheduler.plugins import registry
from bindery.scheduler.plugins.findings import HasFindings
from bindery.scheduler.plugins.interface.state import Watches
from bindery.scheduler.usage.source import past_usage

_NOT_TRIED_YET = Refusal(
    JobReason.NOT_TRIED_YET, "planning takes several cycles at present and has not reached it yet"
)


class Engine:
    """Plans in cycles on its own `cluster`. `clock` returns seconds since the epoch.

    `stopwatch` returns the seconds that the thread of the cycle has worked. An attempt to plan one
    job ends after `attemptSeconds` by it. Without it, attempts may take any time, and the same
    objects give the same plan.

    Raises:
        PluginConfigurationError: a configured plugin cannot be used.
        UnknownActionError: the configuration names an action that does not exist.
    """

    def __init__(
        self,
        configuration: SchedulerConfiguration,
        clock: Callable[[], float],
        stopwatch: Callable[[], float] | None = None,
    ) -> None:
        self._clock = clock
        self._stopwatch = stopwatch
        self._filters = FilterCache()
        self.cluster = Cluster(configuration, clock)
        self.past = past_usage(configuration.usage)
        """Past usage of queues."""
        self.report = CycleReport()
        self._position: Position | None = None
        """The position at which the last cycle ran out of time; None if it did not."""
        self._end_s = 0.0
        """How long the end of the last cycle took, after its actions; 0 without a deadline."""
        self._order: list[JobKey] = []
        """The waiting jobs in the order of trying, over the cycles of a round."""
        self._refusals: dict[tuple[JobKey, Uid], Refusal] = {}
        """Refusals of jobs in the last cycle with a deadline."""
        self.configure(configuration)

    def configure(self, configuration: SchedulerConfiguration) -> None:
        """Use `configuration` from the next cycle on. Node pool and scheduler name stay."""
        # Both may raise, so they come first: then the old configuration stays in use as a whole.
        made = actions.make(configuration)
        plugins = registry.load(configuration.plugins)
        self._plugins = plugins
        self.cluster.state.supported = plugins.supported
        if Need.RESOURCE_CLAIMS not in plugins.supported:
            self.cluster.state.serve(())
        self.cluster.observe(
            (watcher.watched_resources(), watcher.observe) for watcher in plugins.of(Watches)
        )
        self._actions = made
        self._first_filler = next((each for each in made if each.fills), None)
        self.configuration = configuration
        self.past.configure(configuration.usage)
        self.cluster.state.disruption = configuration.disruption
        self.cluster.state.max_stage_timeout_s = configuration.max_stage_timeout_seconds
        failures = self.cluster.failures
        failures.cooldown_s = configuration.failed_node_cooldown_seconds
        failures.set_aside.attempt_s = configuration.attempt_seconds
        self._filters = FilterCache()

    def watched_resources(self) -> tuple[Resource[Any], ...]:
        """Return the kinds that the configured plugins observe."""
        return self._plugins.watched_resources()

    def bind_effects(self, pod: Pod, binding: PodBinding) -> list[KubeObject]:
        """Return the objects that plugins expect the binder to write for `pod`, as written.

        For scenarios and whatif, which have no binder.
        """
        return bind_effects(self._plugins, pod, binding)

    def cycle(
        self,
        fencing_token: int = 0,
        inspect: Callable[[Session], None] | None = None,
        deadline: Deadline | None = None,
    ) -> Generator[StatementDraft, None, None]:
        """Run one cycle; yield the draft of each Statement, or of each of its parts, at the commit.

        `deadline`: after it, the cycle ends with the commits so far, and the next cycle continues
        there (see rounds.py). Without a deadline the cycle tries all jobs.

        `inspect` gets the session at the end, with all promises in it; it must commit nothing.

        The cluster must not be changed until the iterator is exhausted; then `report` is new. The
        pods of a yielded draft count as Binding; call `refused` if no request is created for it. A
        cycle that ends early, by `close` or by an error, undoes everything that it has not yielded.
        """
        session = self._open()
        report, kept = CycleReport(), set(self.cluster.promises.jobs)
        # A cycle that fails is not continued: the next one begins a round.
        position, self._position = self._position, None
        if deadline is not None:
            deadline.reserve(self._end_s)
        by_job = [action.name for action in self._actions if action.tries_jobs]
        turns = Round(by_job, deadline, position if deadline is not None else None)
        defects = self.cluster.defects.fresh
        try:
            with closing(session):
                yield from self._plan(session, report, fencing_token, turns)
                if inspect is not None:
                    inspect(session)
        except BaseException:
            # The session is closed by now, so a pod that was to move is on its old node again.
            for eviction in report.evictions:
                self.cluster.not_evicted(eviction.task.uid)
            for job in set(self.cluster.promises.jobs) - kept:
                self.cluster.promises.forget(job)
            raise
        finally:
            if self.cluster.defects.fresh != defects:  # an error may have left sums half changed
                self.cluster.recount()
        self._position = turns.position(each.job for each in session.reservations.of_gangs())
        for plugin in self._plugins.of(HasFindings):
            found = plugin.take_findings()
            self.cluster.problems.extend(found.problems)
            report.answers.extend(found.answers)
        report.seconds_by_plugin = self._plugins.take_seconds()
        report.is_cut = turns.is_cut
        self._end_s = turns.end_took_s()
        self.report = report

    def _plan(
        self, session: Session, report: CycleReport, fencing_token: int, turns: Round
    ) -> Generator[StatementDraft, None, None]:
        """Run all actions and fill `report`."""
        # A copy: a commit takes its job off the list, but the job still gets a report.
        waiting = list(session.state.waiting.values())
        committer = Committer(
            session,
            self.cluster,
            self.configuration.bind_request,
            self.configuration.node_pool,
            fencing_token,
        )
        try:
            hold_rooms(session)
            session.shares.divide()
            for action in self._actions:
                turn = turns.turn(action.name, fills=action.fills) if action.tries_jobs else Turn()
                if turn is None:
                    continue
                started_s = time.perf_counter()
                for commit in action.execute(session, turn):
                    report.evictions.extend(self._evictions(action.name, commit))
                    report.committed_statements += 1
                    self.cluster.failures.set_aside.forget(commit.job.key)
                    report.committed_pods += len(commit.operations)
                    with session.guarded(commit.job):
                        yield from committer.add(commit)
                    if commit.job in session.failed:  # an error in `guarded`, such as of a plugin
                        committer.release(commit)
                report.seconds_by_action[action.name] = time.perf_counter() - started_s
                if action.tries_jobs:
                    turns.finish(action.name, turn)
                if action is self._first_filler:
                    self._order = turn.order(self._order)
                if action.fills and turns.has_deadline:
                    self._recall_refusals(session, turn)
            turns.end()
            yield from committer.flush()
        finally:
            committer.abandon()
        report.took_too_long = [job.key for job in session.took_too_long]
        report.fair = session.shares.fair
        report.jobs = {job.key: self._report_of(session, job) for job in (*waiting, *session.stale)}
        self._order = [key for key in self._order if key in report.jobs]
        report.order = tuple(self._order)
        report.fair_shares = session.shares.by_queue()
        report.kept = session.kept_in_queues()
        reports = session.stage_reports.items()
        report.stages = {job.key: tuple(stages) for job, stages in reports if stages}
        self._note_places(report)

    def _recall_refusals(self, session: Session, turn: Turn) -> None:
        """Give jobs that `turn` has not tried the refusal of an earlier cycle."""
        for job in session.state.waiting.values():
            waits = job.pending and not job.promised.total and not turn.has_tried(job)
            if waits and job not in session.refusals:
                session.refusals[job] = self._refusals.get((job.key, job.uid), _NOT_TRIED_YET)
        # With the UID: a new PodGroup with the same name gets no refusal of the old one.
        self._refusals = {(job.key, job.uid): it for job, it in session.refusals.items()}

    def _report_of(self, session: Session, job: Job) -> JobReport:
        """Return the report of `job`; if reporting raises an error, a report of the error."""
        found: list[JobReport] = []

        def fail(text: str) -> None:
            why = f"reporting its status failed: {text}"
            found.append(JobReport(job.key, job.uid, False, JobReason.INTERNAL_ERROR, why, {}))

        with self.cluster.defects.held_to(DefectStage.REPORT, of_job(job.key), fail):
            found.append(job_report(session, job))
        return found[0]

    def trial(self, inspect: Callable[[Session], None] | None = None) -> Sequence[StatementDraft]:
        """Run one cycle and undo its commits; return its drafts. `report` is of it.

        For an engine that follows a cluster without writing to it. `inspect`: see `cycle`. After an
        error the engine must not be used again: commits before it are not undone.
        """
        cluster = self.cluster
        with cluster.promises.restored(), cluster.stage_rooms.restored():
            drafts = list(self.cycle(inspect=inspect))
            for draft in drafts:
                self.refused(draft)
            for eviction in self.report.evictions:
                cluster.not_evicted(eviction.task.uid)
        cluster.changed_jobs.clear()  # nothing is reported, so these would only grow
        cluster.problems.clear()
        return drafts

    def spare_protected(self, until: float) -> None:
        """Spare the pods of exhausted budgets `until`, as the loop does after the first refusal."""
        cluster = self.cluster
        tasks = cluster.state.tasks.values()
        spared = [task.uid for task in tasks if cluster.budgets.blocking(task)]
        cluster.failures.spare(spared, until)

    @contextmanager
    def session(self) -> Iterator[Session]:
        """Open a session for reading; the caller must discard all its plans."""
        session = self._open()
        try:
            yield session
        finally:
            session.close()

    def _open(self) -> Session:
        now = self._clock()
        self.cluster.note_time(now)
        self.cluster.settle_preemptibility()
        return Session(self.cluster, self._plugins, self._filters, now, self.past, self._stopwatch)

    def _evictions(self, action: str, commit: Commit) -> list[Eviction]:
        places = {
            o.task.uid: self.cluster.state.nodes.name(o.row)
            for o in commit.operations
            if o.kind is OperationKind.PIPELINE
        }
        evictions = [
            Eviction(o.task, o.reason, commit.job.key, places.get(o.task.uid, ""), action)
            for o in commit.operations
            if o.kind is OperationKind.EVICT
        ]
        for eviction in evictions:
            self.cluster.evicting(eviction.task, eviction.preemptor)
        claimants = {task.uid for task in commit.job.tasks.values()}
        own = {uid: name for uid, name in places.items() if uid in claimants}
        if own:  # also without evictions: earlier ones may have freed more room than was needed
            self.cluster.promises.make(commit.job.key, self._clock())
            self.cluster.promises.settle(commit.job.key, own)
        return evictions

    def _note_places(self, report: CycleReport) -> None:
        promises = self.cluster.promises
        for key in promises.jobs:
            job = report.jobs.get(key)
            pods = job.pods.items() if job is not None else ()
            places = {uid: pod.node for uid, pod in pods if pod.state == TaskStatus.PIPELINED.value}
            promises.settle(key, places)

    def dropped(self, plan: RefusedPlan) -> None:
        """Record that an eviction of `plan` was refused; the rest of its pods stay.

        The pods of the refused job are not chosen as victims for a while; the others may be. The
        room of pods that were evicted stays reserved for the claimant. If a disruption budget has
        allowed more since then, its pods may be chosen at once.
        """
        self._spare(plan)
        if plan.budget_easings is not None:
            self.cluster.catch_up_on_budgets(plan.budget_easings)

    def _spare(self, plan: RefusedPlan) -> None:
        # A budget that is not computed yet may be tried again after its Retry-After.
        spare_s = SPARE_S if plan.retry_after_s is None else min(SPARE_S, plan.retry_after_s)
        cluster, until = self.cluster, self._clock() + spare_s
        refused, claimant = plan.refused.task, plan.refused.preemptor
        for eviction in plan.left:
            cluster.not_evicted(eviction.task.uid)
        if not plan.is_begun:  # no pod was evicted, so there is no room to keep
            cluster.promises.forget(claimant)
        if claimant == refused.job:  # the rest of a broken gang: no other job needs the room
            cluster.failures.spare([e.task.uid for e in plan.left], until)
            return
        spared = [e.task.uid for e in plan.left if e.task.job == refused.job]
        cluster.failures.spare(spared, until)
        text = f"no room was made: {_refusal_text(plan)}"
        cluster.failures.note_refused_room(claimant, until, text, spared)

    def evicted(self, eviction: Eviction) -> None:
        """Record that the pod of `eviction` has been evicted."""
        self.cluster.eviction_history.note(eviction, self._clock())
        self.cluster.changed_jobs.add(eviction.task.job)

    def refused(self, draft: StatementDraft) -> None:
        """Record that the request could not be created; its pods are planned again."""
        self.cluster.forget(draft.key)


def _refusal_text(plan: RefusedPlan) -> str:
    """Return which eviction of `plan` was refused; the claimant reads no names of others."""
    refused = plan.refused.task
    if refused.namespace == plan.refused.preemptor.namespace:
        return f"pod {refused.name} is not evicted: {plan.problem}"
    return f"a pod of queue {refused.queue} is not evicted: the API server has refused it"
