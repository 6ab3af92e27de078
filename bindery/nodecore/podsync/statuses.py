"""The status of containers in the API, from their states in the runtime.

Source: how the kubelet of Kubernetes 1.36 converts statuses, and its probe manager. Times are
seconds since the epoch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from bindery.nodecore.podsync.facts import (
    NO_LIMITS,
    ContainerRules,
    PodRules,
    ProbeVerdict,
    ProbeVerdicts,
    RuntimeContainer,
    RuntimeLimits,
    RuntimePod,
    RuntimeState,
    RuntimeUser,
)
from bindery.nodecore.podsync.restarts import is_due

CONTAINER_CREATING: Final = "ContainerCreating"
POD_INITIALIZING: Final = "PodInitializing"
STATUS_UNKNOWN: Final = "ContainerStatusUnknown"
COMPLETED: Final = "Completed"
_LOST_CODE: Final = 137
_LOST: Final = (
    "The container could not be located when the pod was deleted.  The container used to be Running"
)
_LOST_AT_END: Final = "The container could not be located when the pod was terminated"
_LOST_INIT: Final = (
    "Unable to get init container status from container runtime and pod has been initialized, "
    "treat it as exited normally"
)


@dataclass(frozen=True)
class Waiting:
    """The container has not started, or will be started again."""

    reason: str = ""
    message: str = ""


@dataclass(frozen=True)
class Running:
    """The container runs."""

    started_s: float


@dataclass(frozen=True)
class Terminated:
    """The container has ended; times are 0 if they are not known."""

    exit_code: int
    reason: str = ""
    message: str = ""
    started_s: float = 0.0
    finished_s: float = 0.0
    container_id: str = ""


State = Waiting | Running | Terminated


@dataclass(frozen=True)
class ContainerReport:
    """`v1.ContainerStatus`, as far as it is decided here.

    Attributes:
        last: how the previous container ended.
        started: None before it has been decided.
        user: None if the runtime does not report it.
        limits: what is set while it runs.
    """

    name: str
    image: str
    state: State
    last: Terminated | None = None
    restart_count: int = 0
    image_ref: str = ""
    container_id: str = ""
    ready: bool = False
    started: bool | None = None
    user: RuntimeUser | None = None
    limits: RuntimeLimits = NO_LIMITS


@dataclass(frozen=True)
class StartFailure:
    """Why the last attempt to start a container failed; `reason` is one CamelCase word."""

    reason: str
    message: str


Reports = Sequence[ContainerReport]
Failures = Mapping[str, StartFailure]


def app_reports(
    rules: PodRules, seen: RuntimePod, before: Reports, failures: Failures
) -> list[ContainerReport]:
    """Return the reports of the app containers, in alphabetical order as in the kubelet.

    `before`: the last reports. `failures`: container -> why it was not started.
    """
    reports = _reports(rules, rules.containers, seen, before)
    for container in rules.containers:
        _enter_failure(reports, container, rules, seen, failures)
    return sorted(reports.values(), key=lambda one: one.name)


def init_reports(
    rules: PodRules, seen: RuntimePod, before: Reports, failures: Failures
) -> list[ContainerReport]:
    """Return the reports of the init containers, in their order."""
    reports = _reports(rules, rules.init_containers, seen, before)
    has_app_containers = any(seen.container(one.name) for one in rules.containers)
    for container in rules.init_containers:
        found = seen.container(container.name)
        report = reports[container.name]
        if found is not None and found.state is RuntimeState.EXITED and found.exit_code == 0:
            continue
        is_lost = found is None and has_app_containers and not container.is_sidecar
        if is_lost and isinstance(report.state, Waiting):
            ended = Terminated(0, COMPLETED, _LOST_INIT)
            reports[container.name] = replace(report, state=ended)
            continue
        _enter_failure(reports, container, rules, seen, failures)
    return [reports[one.name] for one in rules.init_containers]


def with_readiness(
    rules: PodRules,
    apps: Reports,
    inits: Reports,
    verdicts: ProbeVerdicts,
) -> tuple[list[ContainerReport], list[ContainerReport]]:
    """Return the reports of app and init containers with `started` and `ready`."""
    of_name = {one.name: one for one in (*rules.init_containers, *rules.containers)}
    ready_apps = [_with_probes(of_name[one.name], one, verdicts) for one in apps]
    ready_inits = []
    for report in inits:
        container = of_name[report.name]
        changed = _with_probes(container, report, verdicts)
        if not container.is_sidecar:
            state = report.state
            is_done = isinstance(state, Terminated) and state.exit_code == 0
            changed = replace(changed, ready=is_done)
        ready_inits.append(changed)
    return ready_apps, ready_inits


def at_end(
    rules: PodRules, apps: Reports, inits: Reports
) -> tuple[list[ContainerReport], list[ContainerReport]]:
    """Return the last reports of a pod: containers of which no end is known count as failed.

    App containers of a pod that never got past its init containers stay as they are, and so do the
    last init containers that never started. Source: the status manager's `TerminatePod`.
    """
    started = [index for index, one in enumerate(inits) if _has_started(one)]
    last = max(started, default=0)
    return (
        [_failed(one) for one in apps] if _was_initialized(rules, apps, inits) else list(apps),
        [_failed(one) if index <= last else one for index, one in enumerate(inits)],
    )


def _was_initialized(rules: PodRules, apps: Reports, inits: Reports) -> bool:
    if not inits or any(_has_started(one) for one in apps):
        return True
    if rules.init_containers[-1].is_sidecar:
        return isinstance(inits[-1].state, Running) and inits[-1].started is True
    return any(
        isinstance(ended, Terminated) and ended.exit_code == 0
        for ended in (inits[-1].state, inits[-1].last)
    )


def _has_started(report: ContainerReport) -> bool:
    return not isinstance(report.state, Waiting) or report.last is not None


def _failed(report: ContainerReport) -> ContainerReport:
    if isinstance(report.state, Terminated):
        return report
    return replace(report, state=Terminated(_LOST_CODE, STATUS_UNKNOWN, _LOST_AT_END))


def _with_probes(
    container: ContainerRules, report: ContainerReport, verdicts: ProbeVerdicts
) -> ContainerReport:
    if not isinstance(report.state, Running):
        return replace(report, started=False, ready=False)
    startup = verdicts.startup.get(report.container_id)
    started = (
        startup is ProbeVerdict.SUCCESS if startup is not None else not container.has_startup_probe
    )
    if not started:
        return replace(report, started=False, ready=False)
    readiness = verdicts.readiness.get(report.container_id)
    ready = not container.has_readiness_probe or readiness is ProbeVerdict.SUCCESS
    return replace(report, started=True, ready=ready)


def _reports(
    rules: PodRules, containers: Sequence[ContainerRules], seen: RuntimePod, before: Reports
) -> dict[str, ContainerReport]:
    old = {one.name: one for one in before}
    waiting = Waiting(POD_INITIALIZING if rules.init_containers else CONTAINER_CREATING)
    reports = {}
    for container in containers:
        found = [one for one in seen.containers if one.name == container.name][:2]
        known = old.get(container.name)
        if not found:
            reports[container.name] = _unseen(rules, container, known, waiting)
            continue
        report = _report(found[0], known)
        if len(found) > 1:
            ended = _report(found[1], known).state
            report = replace(report, last=ended if isinstance(ended, Terminated) else report.last)
        reports[container.name] = report
    return reports


def _unseen(
    rules: PodRules, container: ContainerRules, known: ContainerReport | None, waiting: Waiting
) -> ContainerReport:
    """Return the report of a container that the runtime does not have."""
    report = ContainerReport(container.name, container.image, waiting)
    if known is None:
        return report
    if isinstance(known.state, Terminated):
        return known
    report = replace(report, restart_count=known.restart_count, last=known.last)
    if isinstance(known.state, Running) and known.last is None:
        # It ran and is gone: without an end the pod would become Pending again.
        count = known.restart_count + (0 if rules.is_deleted else 1)
        ended = Terminated(_LOST_CODE, STATUS_UNKNOWN, _LOST)
        report = replace(report, last=ended, restart_count=count)
    return report


def _report(found: RuntimeContainer, known: ContainerReport | None) -> ContainerReport:
    count = max(found.attempt, known.restart_count if known is not None else 0)
    last = known.last if known is not None else None
    if known is not None and known.container_id != found.id and isinstance(known.state, Terminated):
        last = known.state
    state: State
    if found.state is RuntimeState.RUNNING:
        state = Running(found.started_s)
    elif found.state is RuntimeState.EXITED:
        state = Terminated(
            found.exit_code,
            found.reason,
            found.message,
            found.started_s,
            found.finished_s,
            found.id,
        )
    elif (
        found.state is RuntimeState.UNKNOWN
        and known is not None
        and isinstance(known.state, Running)
    ):
        state = Terminated(_LOST_CODE, STATUS_UNKNOWN, _LOST_AT_END)
        count = known.restart_count + 1
    else:
        state = Waiting()
    return ContainerReport(
        found.name,
        found.image,
        state,
        last,
        count,
        found.image_ref,
        found.id,
        user=found.user,
        limits=found.limits,
    )


def _enter_failure(
    reports: dict[str, ContainerReport],
    container: ContainerRules,
    rules: PodRules,
    seen: RuntimePod,
    failures: Failures,
) -> None:
    """Make a container that is started again wait for the reason of its failure."""
    failure = failures.get(container.name)
    if failure is None or not is_due(rules, container, seen):
        return
    report = reports[container.name]
    last = report.state if isinstance(report.state, Terminated) else report.last
    waiting = Waiting(failure.reason, failure.message)
    reports[container.name] = replace(report, state=waiting, last=last)
