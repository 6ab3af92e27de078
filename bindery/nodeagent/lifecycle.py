"""Decides the next step of a pod on a hollow node from the pod and the clock: pure.

Called by `pods`, which executes the step and calls again when the pod changes or the time of `Wait`
has come. No state is kept between two calls: all times are counted from fields in the API server,
so a restarted agent makes the same decisions.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Final

from bindery.api import names, times
from bindery.api.states import ENDED_POD_PHASES
from bindery.nodeagent.pod_objects import AgentPod
from bindery.nodecore.admission.result import Admission

STOP_SECONDS_ANNOTATION: Final = "hollow.bindery.dev/stop-seconds"
"""Annotation of a pod on a hollow node: seconds until its containers end after the signal to stop.
They are killed at the end of the pod's grace period. Default: 0."""
EXIT_CODE_ANNOTATION: Final = "hollow.bindery.dev/exit-code"
"""Annotation of a pod on a hollow node: exit code of its containers. Default: 0 after their run
time, 143 after a signal to stop."""

# Exit codes as a shell would report them: 128 + the signal's number.
EXIT_TERMINATED: Final = 143
EXIT_KILLED: Final = 137
_LARGEST_EXIT_CODE: Final = 255


@dataclass(frozen=True)
class Refuse:
    """The node rejects the pod, or stops it for a critical pod."""

    answer: Admission


@dataclass(frozen=True)
class WriteRecord:
    """The record differs from the resources that the pod holds."""

    held: str


@dataclass(frozen=True)
class Start:
    """The pod has just been bound: its containers run from now."""


@dataclass(frozen=True)
class Finish:
    """The containers have reached the run time in the annotation, and end."""

    exit_code: int


@dataclass(frozen=True)
class Expire:
    """The pod has reached its `activeDeadlineSeconds`: its containers are killed."""


@dataclass(frozen=True)
class ReadinessChange:
    """The pod becomes ready, or not ready, because of its readiness gates."""


@dataclass(frozen=True)
class Stop:
    """The pod is being deleted and its containers have ended: write their exit codes, which a
    finalizer's owner waits for.
    """

    exit_code: int


@dataclass(frozen=True)
class Remove:
    """The pod is being deleted and no container runs: the object can be deleted."""


@dataclass(frozen=True)
class Wait:
    """No step is due before this time, in seconds since the epoch."""

    until_s: float


@dataclass(frozen=True)
class Rest:
    """No step is due until the pod changes."""


Step = Refuse | WriteRecord | Start | Finish | Expire | ReadinessChange | Stop | Remove
Decision = Step | Wait | Rest
STEP_LABELS: Final[Mapping[type[Step], str]] = {
    Refuse: "refuse",
    WriteRecord: "record",
    Start: "start",
    Finish: "finish",
    Expire: "expire",
    ReadinessChange: "turn",
    Stop: "stop",
    Remove: "remove",
}
"""Step -> its label in metrics."""


@dataclass(frozen=True)
class MalformedAnnotation:
    """An annotation with an invalid value. The pod runs without it."""

    annotation: str
    text: str

    def __str__(self) -> str:
        wanted = (
            "an exit code, 0 to 255"
            if self.annotation == EXIT_CODE_ANNOTATION
            else "a number of seconds, 0 or more"
        )
        return f"{self.annotation}: {self.text!r} is not {wanted}"


def decide(pod: AgentPod, now_s: float) -> Decision:
    """Return the next step of `pod` at `now_s` (seconds since the epoch)."""
    if pod.metadata.deletion_timestamp is not None:
        return _decide_deleted(pod, now_s)
    if pod.status.phase in ENDED_POD_PHASES:
        return Rest()
    started_s = times.seconds(pod.status.start_time)
    if pod.status.phase != "Running" or started_s is None:
        return Start()
    return _decide_running(pod, started_s, now_s)


def malformed_annotations(pod: AgentPod) -> list[MalformedAnnotation]:
    """Return the invalid annotations of `pod`."""
    read = (
        seconds(pod, names.HOLLOW_RUN_SECONDS_ANNOTATION),
        seconds(pod, STOP_SECONDS_ANNOTATION),
        exit_code(pod),
    )
    return [value for value in read if isinstance(value, MalformedAnnotation)]


def seconds(pod: AgentPod, annotation: str) -> float | MalformedAnnotation | None:
    """Return the seconds in `annotation` of `pod`; None without the annotation."""
    text = pod.metadata.annotations.get(annotation)
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        return MalformedAnnotation(annotation, text)
    # Comparing refuses NaN and infinity too; a century is for ever.
    return value if 0 <= value <= 100 * 365 * 86400 else MalformedAnnotation(annotation, text)


def exit_code(pod: AgentPod) -> int | MalformedAnnotation | None:
    """Return the exit code in the annotation of `pod`; None without it."""
    text = pod.metadata.annotations.get(EXIT_CODE_ANNOTATION)
    if text is None:
        return None
    is_code = text.isascii() and text.isdigit() and int(text) <= _LARGEST_EXIT_CODE
    return int(text) if is_code else MalformedAnnotation(EXIT_CODE_ANNOTATION, text)


def _decide_running(pod: AgentPod, started_s: float, now_s: float) -> Decision:
    run_s = seconds(pod, names.HOLLOW_RUN_SECONDS_ANNOTATION)
    ends_s = inf if run_s is None or isinstance(run_s, MalformedAnnotation) else started_s + run_s
    deadline_s = pod.spec.active_deadline_seconds
    expires_s = inf if deadline_s is None else started_s + deadline_s
    if min(ends_s, expires_s) > now_s:
        if pod.spec.readiness_gates and pod.passes_gates != pod.is_ready:
            return ReadinessChange()
        return Rest() if ends_s == expires_s == inf else Wait(min(ends_s, expires_s))
    if expires_s < ends_s:
        return Expire()
    code = exit_code(pod)
    return Finish(0 if code is None or isinstance(code, MalformedAnnotation) else code)


def _decide_deleted(pod: AgentPod, now_s: float) -> Decision:
    meta = pod.metadata
    grace_s = meta.deletion_grace_period_seconds or 0
    # The API server sets the deletion timestamp to the end of the grace period.
    killed_s = times.seconds(meta.deletion_timestamp) or now_s
    runs = pod.status.phase == "Running"
    stop_s = seconds(pod, STOP_SECONDS_ANNOTATION) if runs else 0.0
    wanted_s = 0.0 if stop_s is None or isinstance(stop_s, MalformedAnnotation) else stop_s
    ends_s = min(killed_s - grace_s + wanted_s, killed_s)
    if now_s < ends_s:
        return Wait(ends_s)
    if not meta.finalizers:
        return Remove()
    # A finalizer keeps the object: its owner, such as the Job controller, waits for the end.
    if pod.status.phase not in ENDED_POD_PHASES:
        code = exit_code(pod)
        stopped = EXIT_TERMINATED if code is None or isinstance(code, MalformedAnnotation) else code
        return Stop(EXIT_KILLED if wanted_s > grace_s else stopped)
    return Remove() if grace_s > 0 else Rest()
