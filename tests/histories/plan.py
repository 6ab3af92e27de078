"""What happens in a history, as data that can be printed and made smaller.

Nothing here runs: `drawing` makes the plan of a seed, and `history` plays it.
"""

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from tests.histories.needs.plans import Ground, Needs, Trouble

EPOCH_S: Final = 1_800_000_000.0
"""The wall clock at the beginning of every history."""
QUIET_AFTER_S: Final = 120.0
"""The last fault and the last act come before; then everything has to come to rest."""
NODE_PREFIX: Final = "n"
PRIORITIES: Final = ("low", "high")
_PARTS: Final = ("gangs", "faults", "acts", "troubles")
"""Fields of a plan from which a part can be taken."""
PROCESSES: Final = ("scheduler-0", "scheduler-1", "binder-0", "binder-1", "grouper", "agent")


class FaultKind(StrEnum):
    """What befalls one process, or its way to the API server."""

    KILL = "kill"
    FREEZE = "freeze"
    CUT = "cut"
    """No connection can be made."""
    LOSE_ANSWERS = "lose answers"
    """Requests take effect and their answers are lost, each with a chance of one in three."""
    LOSE_REQUESTS = "lose requests"
    """Requests are lost before the API server sees them, each with a chance of one in three."""
    THROTTLE = "throttle"
    """429 with or without Retry-After, each with a chance of one in two."""
    FAIL = "fail"
    """500, each with a chance of one in two; half of them take effect."""
    EXPIRE = "expire"
    """410 for lists and watches that begin."""
    LAG = "lag"
    """Watches lag by up to `seconds`."""
    BREAK_WATCHES = "break watches"
    """All watches are cut, within a line if there is one."""
    DELAY = "delay requests"
    """Requests reach the API server late: by up to `seconds`, but for `LATEST_S`."""
    OLD_ANSWERS = "old answers"
    """Answers come late, so that reads show the past."""
    CONFLICT = "conflict"
    """409 for writes of a resourceVersion, each with a chance of one in two."""
    REBUILD_CACHE = "rebuild watch cache"
    """Watches are cut and none begins; afterwards 410 for all earlier versions: each kind is
    listed again, without what happened in between."""
    JUMP = "jump"
    """The wall clock of the machine jumps: by `seconds`, or back; and returns afterwards."""
    REFUSE = "refuse creations"
    """403 for creations of BindRequests, as for a quota, each with a chance of one in two."""
    LOSE_COMMITS = "lose commits"
    """Creations of BindRequests are lost."""
    STOP = "stop"
    """The process has to stop, ends in order, and is back after `seconds`. If it has not ended
    by then, it is killed, as by a kubelet."""


class CallFate(StrEnum):
    """What becomes of the call at which a process dies or freezes."""

    ARRIVES = "arrives"
    IS_LOST = "is lost"
    IS_LATE = "is late"
    """It arrives `seconds` later, where fencing tokens make it harmless; else `LATEST_S` later."""


LATEST_S: Final = 4.0
"""How late a request may be that no fencing token protects. A leader stops 5 s before its Lease
ends, so that its requests arrive before the next one leads."""


@dataclass(frozen=True)
class Fault:
    """One fault. It begins at `at_s`; a process that was killed is back after `seconds`."""

    kind: FaultKind
    process: str
    at_s: float
    seconds: float
    after_steps: int = 0
    """KILL: further steps of the event loop after `at_s`."""
    at_call: str = ""
    """KILL, FREEZE: verb and resource of the call after `at_s` at which it strikes. `process` is
    then a kind of process: that one of them which calls. Empty: no call."""
    fate: CallFate = CallFate.ARRIVES

    def __str__(self) -> str:
        when = f" at {self.at_call}, which {self.fate}" if self.at_call else ""
        return f"{self.at_s:7.3f} s  {self.kind} {self.process}{when} for {self.seconds:.3f} s"


class ActKind(StrEnum):
    """What people and controllers do at the worst moment."""

    DELETE_GANG = "delete gang"
    DELETE_POD = "delete pod"
    RECREATE_GANG = "delete and re-create gang"
    CORDON = "cordon"
    LOSE_NODE = "lose node"
    """The Node object goes, and comes back under its name with another UID."""
    EDIT_QUEUE = "edit queue"
    SCALE_GANG = "scale gang"
    """The minimum of a PodGroup changes, or how many pods of a Job run at once."""
    EDIT_LIMIT = "edit limit"
    CHANGE_PRIORITY = "change priority"
    TAKE_ROOM = "take room"
    """A pod of another scheduler takes cores of a node, which may refuse pods that are planned."""
    STOP_BINDING = "stop binding"
    """A BindRequest, or a pod in one, is deleted while the binder is at work."""
    DELETE_GROUP = "delete PodGroup"
    """Its pods stay."""
    DELETE_BOUND = "delete when bound"
    """The pods of a gang are deleted as soon as one of them is bound."""
    SILENCE_GPUS = "silence GPUs"
    """The device plugin of a node gives no GPUs to reservations."""


@dataclass(frozen=True)
class Act:
    """One act at `at_s` upon the object number `target` of its kind."""

    kind: ActKind
    target: int
    at_s: float
    seconds: float = 0.0
    """Until it is undone, if it is."""

    def __str__(self) -> str:
        return f"{self.at_s:7.3f} s  {self.kind} {self.target}"


@dataclass(frozen=True)
class GangPlan:
    """A gang and its pods."""

    name: str
    size: int
    minimum: int
    queue: str
    cores: int
    gpus: int
    fraction: str
    """Of a GPU, for each pod; empty: none."""
    run_s: float | None
    at_s: float
    is_job: bool
    """Whether it is a Job, for which the grouper makes the PodGroup."""
    is_pod_first: bool
    priority: str = ""
    """Name of its PriorityClass, one of `PRIORITIES`; empty: none."""
    preemptibility: str = ""
    keeps: int | None = None
    """How many pods its disruption budget keeps; None: it has no budget."""
    needs: Needs | None = None
    """What its pods need beside cores and GPUs."""


@dataclass(frozen=True)
class Plan:
    """A history before it is played."""

    seed: int
    nodes: int
    cores: int
    gpus: int
    limit_cores: int
    """Limit of the queue `limited`."""
    gangs: tuple[GangPlan, ...]
    faults: tuple[Fault, ...]
    acts: tuple[Act, ...]
    skew_s: tuple[float, ...]
    """How far the wall clock of each of `PROCESSES` is ahead."""
    ground: Ground = field(default_factory=Ground)
    troubles: tuple[Trouble, ...] = ()
    max_pods: int = 500
    """Of a Statement in one BindRequest."""
    backoff_limit: int = 5
    """Of BindRequests."""
    min_runtime_s: float = 0.0
    """How long all queues protect their gangs from eviction for others."""

    def parts(self) -> int:
        """Return how much there is to take out."""
        return sum(len(getattr(self, name)) for name in _PARTS)

    def without(self, part: int) -> "Plan":
        """Return the plan without one part, counted through all lists of parts."""
        for name in _PARTS:
            parts = getattr(self, name)
            if part < len(parts):
                return replace(self, **{name: parts[:part] + parts[part + 1 :]})
            part -= len(parts)
        raise IndexError(part)

    def __str__(self) -> str:
        lines = [f"seed {self.seed}: {self.nodes} nodes of {self.cores} cores and {self.gpus} GPUs"]
        lines += [f"{each.at_s:7.3f} s  submit {each}" for each in self.gangs]
        return "\n".join([*lines, *map(str, (*self.faults, *self.acts, *self.troubles))])
