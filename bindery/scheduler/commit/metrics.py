"""The scheduler's Prometheus metrics."""

from collections import Counter as Tally
from collections.abc import Collection, Iterable

from prometheus_client import Counter, Gauge, Histogram

from bindery.api.times import seconds
from bindery.scheduler.cache.defects import DefectStage
from bindery.scheduler.commit.drafts import StatementDraft
from bindery.scheduler.model.node_refusals import TOPOLOGY_REASONS
from bindery.scheduler.planning.reports import CycleReport

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)

CYCLE_SECONDS = Histogram(
    "bindery_cycle_seconds",
    "Time of one planning cycle, without waiting for its commits.",
    buckets=_SECONDS,
)
ACTION_SECONDS = Histogram(
    "bindery_action_seconds", "Time of one action in a cycle.", ["action"], buckets=_SECONDS
)
PLUGIN_SECONDS = Counter("bindery_plugin_seconds_total", "Time spent in a plugin.", ["plugin"])
PLANNED_PODS = Counter("bindery_planned_pods_total", "Pods in committed Statements.")
STATEMENTS = Counter("bindery_statements_total", "Statements committed.")
PENDING_PODS = Gauge("bindery_pending_pods", "Pods that wait, by their job's reason.", ["reason"])
REQUESTS = Counter(
    "bindery_scheduler_bindrequests_total",
    "BindRequests by the outcome of their creation or deletion.",
    ["outcome"],
)
EVICTIONS = Counter("bindery_evictions_total", "Requested evictions, by outcome.", ["outcome"])
OBJECT_ERRORS = Counter(
    "bindery_object_errors_total",
    "Unexpected errors with one object, which was then left out, by stage and kind.",
    ["stage", "kind"],
)
CUT_CYCLES = Counter(
    "bindery_cut_cycles_total", "Cycles that ran out of time and were continued by the next."
)
SET_ASIDE = Counter(
    "bindery_jobs_set_aside_total",
    "Times a job was set aside because planning it took longer than attemptSeconds.",
)
COMMIT_SECONDS = Histogram(
    "bindery_commit_latency_seconds",
    "Time from the creation of the newest pod of a Statement to its commit, by queue. The time "
    "after it is the binder's bindery_bindrequest_seconds.",
    ["queue"],
    buckets=(0.5, 1, 2, 3, 5, 10, 30, 60, 300, 900, 3600, 14400, 86400),
)
EVICTED_PODS = Counter(
    "bindery_evicted_pods_total",
    "Evicted pods, by action and by the queue that they were charged to.",
    ["action", "queue"],
)
NUMA_PREDICTIONS = Counter(
    "bindery_numa_predictions_total",
    "Pods with predicted NUMA zones about which their node has decided.",
)
WRONG_PREDICTIONS = Counter(
    "bindery_numa_predictions_wrong_total",
    "Pods with predicted NUMA zones that their node refused, by the node's reason, or gave others.",
    ["reason"],
)
UNSTARTED_PODS = Gauge(
    "bindery_unstarted_pods", "Bound pods whose containers have not started in time."
)
CYCLE_ERRORS = Counter("bindery_cycle_errors_total", "Cycles that ended in an error.")
CONFIGURATION_ERRORS = Counter(
    "bindery_configuration_errors_total", "Times a changed configuration could not be used."
)
CONFIGURATION_UNUSABLE = Gauge(
    "bindery_configuration_unusable",
    "1 while the last change of the configuration file cannot be used, else 0.",
)
LEADING = Gauge("bindery_leading", "1 while this process plans, else 0.")


_WAITING = frozenset({"Pending", "Pipelined", "Gated"})


def begin(kinds: Iterable[str]) -> None:
    """Export errors as 0, so that alerts see the first one; `kinds`: of the watched objects."""
    for kind in kinds:
        OBJECT_ERRORS.labels(DefectStage.INTAKE, kind)
    for stage in (DefectStage.PLANNING, DefectStage.REPORT):
        for kind in ("Pod", "PodGroup"):
            OBJECT_ERRORS.labels(stage, kind)
    for reason in TOPOLOGY_REASONS:
        WRONG_PREDICTIONS.labels(reason)


def end_term() -> None:
    """Withdraw what only the process that leads knows: its last values would stay for ever."""
    LEADING.set(0)
    UNSTARTED_PODS.set(0)
    PENDING_PODS.clear()


def record_commit(draft: StatementDraft, now: float) -> None:
    """Record the time that the pods of a Statement waited for its commit."""
    created = [at for task in draft.tasks if (at := seconds(task.created)) is not None]
    # Only the first part of a split Statement counts, so that each commit counts once.
    if created and not draft.spec.part:
        COMMIT_SECONDS.labels(draft.spec.queue).observe(max(now - max(created), 0.0))


def drop_queues(known: Collection[str]) -> None:
    """Drop the series of queues that are not in `known`."""
    for family in (COMMIT_SECONDS, EVICTED_PODS):
        samples = (sample for metric in family.collect() for sample in metric.samples)
        for queue in {sample.labels["queue"] for sample in samples}.difference(known):
            family.remove_by_labels({"queue": queue})


def record(report: CycleReport, cycle_s: float) -> None:
    """Record the times and results of one cycle."""
    CYCLE_SECONDS.observe(cycle_s)
    for action, action_s in report.seconds_by_action.items():
        ACTION_SECONDS.labels(action).observe(action_s)
    for plugin, plugin_s in report.seconds_by_plugin.items():
        PLUGIN_SECONDS.labels(plugin).inc(plugin_s)
    CUT_CYCLES.inc(report.is_cut)
    SET_ASIDE.inc(len(report.took_too_long))
    for answer in report.answers:
        NUMA_PREDICTIONS.inc(answer.is_first)
        if answer.reason:
            WRONG_PREDICTIONS.labels(answer.reason).inc()
    PLANNED_PODS.inc(report.committed_pods)
    STATEMENTS.inc(report.committed_statements)
    pending: Tally[str] = Tally()
    for job in report.jobs.values():
        waiting = sum(pod.state in _WAITING for pod in job.pods.values())
        if waiting:
            # Extra pods wait for a reason of their own, while their gang is scheduled.
            pending[(job.satisfied and job.waits_for) or job.reason] += waiting
    PENDING_PODS.clear()  # drops reasons that no job has any more
    for reason, count in pending.items():
        PENDING_PODS.labels(reason).set(count)
