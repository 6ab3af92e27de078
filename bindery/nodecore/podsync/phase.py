"""The phase and the conditions of a pod, from the reports of its containers.

Source: `getPhase` and `status/generate.go` of the kubelet, Kubernetes 1.36.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from bindery.nodecore.podsync.actions import needs_sandbox
from bindery.nodecore.podsync.facts import ContainerRules, PodRules, RuntimePod
from bindery.nodecore.podsync.restarts import restarts_after
from bindery.nodecore.podsync.statuses import ContainerReport, Reports, Running, Terminated, Waiting

PENDING: Final = "Pending"
RUNNING: Final = "Running"
SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"

READY: Final = "Ready"
INITIALIZED: Final = "Initialized"
CONTAINERS_READY: Final = "ContainersReady"
POD_SCHEDULED: Final = "PodScheduled"
READY_TO_START: Final = "PodReadyToStartContainers"

_TRUE: Final = "True"
_FALSE: Final = "False"
_COMPLETED: Final = "PodCompleted"
_FAILED_REASON: Final = "PodFailed"


@dataclass(frozen=True)
class PodCondition:
    """A condition of a pod, without its times. `status` is True or False, as text."""

    type: str
    status: str
    reason: str = ""
    message: str = ""


@dataclass
class _Counts:
    pending: int = 0
    pending_sidecars: int = 0
    failed_for_good: bool = False
    unknown: int = 0
    running: int = 0
    waiting: int = 0
    stopped: int = 0
    restarting: int = 0
    succeeded: int = 0


def phase(rules: PodRules, reports: Reports, *, is_terminal: bool, was_initialized: bool) -> str:
    """Return the phase of a pod.

    `reports`: of init and app containers. `is_terminal`: its containers are not started again,
    whatever their policy. `was_initialized`: an app container of the newest sandbox has started.
    """
    by_name = {one.name: one for one in reports}
    counts = _Counts()
    for container in rules.init_containers:
        report = by_name.get(container.name)
        if container.is_sidecar:
            _count_sidecar(report, counts)
        else:
            _count_init(rules, container, report, counts)
    for container in rules.containers:
        _count_app(rules, container, by_name.get(container.name), counts)
    if counts.failed_for_good:
        return FAILED
    if counts.pending or (counts.pending_sidecars and not was_initialized) or counts.waiting:
        return PENDING
    if counts.running and not counts.unknown:
        return RUNNING
    if counts.stopped and not counts.running and not counts.unknown:
        if counts.restarting and not is_terminal:
            return RUNNING
        return SUCCEEDED if counts.stopped == counts.succeeded else FAILED
    return PENDING


def _ended(report: ContainerReport) -> Terminated | None:
    """Return how a container ended that has ended, or waits for its restart."""
    if isinstance(report.state, Terminated):
        return report.state
    return report.last if isinstance(report.state, Waiting) else None


def _count_init(
    rules: PodRules, container: ContainerRules, report: ContainerReport | None, counts: _Counts
) -> None:
    ended = _ended(report) if report is not None else None
    if ended is None:
        counts.pending += 1
    elif ended.exit_code != 0 and not restarts_after(rules, container, ended.exit_code):
        counts.failed_for_good = True


def _count_sidecar(report: ContainerReport | None, counts: _Counts) -> None:
    if report is None:
        counts.unknown += 1
    elif isinstance(report.state, Running):
        counts.running += 1
        counts.pending_sidecars += not report.started
    elif isinstance(report.state, Waiting) and report.last is None:
        counts.pending_sidecars += 1
        counts.waiting += 1


def _count_app(
    rules: PodRules, container: ContainerRules, report: ContainerReport | None, counts: _Counts
) -> None:
    if report is None:
        counts.unknown += 1
        return
    ended = _ended(report)
    if isinstance(report.state, Running):
        counts.running += 1
    elif ended is None:
        counts.waiting += 1
    else:
        counts.stopped += 1
        counts.restarting += restarts_after(rules, container, ended.exit_code)
        counts.succeeded += isinstance(report.state, Terminated) and ended.exit_code == 0


@dataclass(frozen=True)
class Conditions:
    """What the conditions follow from. `gates`: condition -> its status, of other writers."""

    rules: PodRules
    seen: RuntimePod
    phase: str
    apps: Reports
    inits: Reports
    gates: Mapping[str, str] = field(default_factory=dict)

    def all(self) -> list[PodCondition]:
        """Return the conditions that the kubelet writes, in its order."""
        needs_new = needs_sandbox(self.rules, self.seen)[0]
        return [
            PodCondition(READY_TO_START, _FALSE if needs_new else _TRUE),
            self._initialized(),
            self._ready(),
            self._containers_ready(CONTAINERS_READY),
            PodCondition(POD_SCHEDULED, _TRUE),
        ]

    def _initialized(self) -> PodCondition:
        reports = {one.name: one for one in self.inits}
        unknown = [one.name for one in self.rules.init_containers if one.name not in reports]
        incomplete = [
            one.name
            for one in self.rules.init_containers
            if one.name in reports and not _is_done(one, reports[one.name])
        ]
        if self.phase == SUCCEEDED and not unknown:
            return PodCondition(INITIALIZED, _TRUE, _COMPLETED)
        if any(_has_started(one) for one in self.apps):
            return PodCondition(INITIALIZED, _TRUE)
        message = _message(unknown, incomplete, "incomplete")
        if message:
            return PodCondition(INITIALIZED, _FALSE, "ContainersNotInitialized", message)
        return PodCondition(INITIALIZED, _TRUE)

    def _containers_ready(self, kind: str) -> PodCondition:
        reports = {one.name: one for one in (*self.inits, *self.apps)}
        sidecars = [one for one in self.rules.init_containers if one.is_sidecar]
        watched = [one.name for one in (*sidecars, *self.rules.containers)]
        unknown = [name for name in watched if name not in reports]
        unready = [name for name in watched if name in reports and not reports[name].ready]
        if self.phase == SUCCEEDED and not unknown:
            return PodCondition(kind, _FALSE, _COMPLETED)
        if self.phase == FAILED:
            return PodCondition(kind, _FALSE, _FAILED_REASON)
        message = _message(unknown, unready, "unready")
        if message:
            return PodCondition(kind, _FALSE, "ContainersNotReady", message)
        return PodCondition(kind, _TRUE)

    def _ready(self) -> PodCondition:
        ready = self._containers_ready(READY)
        if ready.status != _TRUE:
            return ready
        problems = []
        for gate in self.rules.readiness_gates:
            status = self.gates.get(gate)
            if status is None:
                problems.append(
                    f'corresponding condition of pod readiness gate "{gate}" does not exist.'
                )
            elif status != _TRUE:
                problems.append(
                    f'the status of pod readiness gate "{gate}" is not "True", but {status}'
                )
        if problems:
            return PodCondition(READY, _FALSE, "ReadinessGatesNotReady", ", ".join(problems))
        return ready


def _is_done(container: ContainerRules, report: ContainerReport) -> bool:
    return bool(report.started) if container.is_sidecar else report.ready


def _has_started(report: ContainerReport) -> bool:
    """Return whether an app container has ever run."""
    is_there = isinstance(report.state, Running | Terminated)
    return bool(report.started) or is_there or report.last is not None


def _message(unknown: Sequence[str], others: Sequence[str], word: str) -> str:
    texts = []
    if unknown:
        texts.append(f"containers with unknown status: [{' '.join(unknown)}]")
    if others:
        texts.append(f"containers with {word} status: [{' '.join(others)}]")
    return ", ".join(texts)
