"""What happens in a history, drawn from its seed, as data that can be printed and made smaller.

Nothing here runs: `history` plays a plan. A part that is taken out of a plan leaves the chance of
the others as it was, because each draws from a generator of its own.
"""

from dataclasses import dataclass, field, replace
from enum import StrEnum
from random import Random
from typing import Final

from tests.histories.needs import plans as needs_plans
from tests.histories.needs.plans import Ground, Needs, NeedyGang, Trouble

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


_FIRST_FAULTS: Final = tuple(FaultKind)[:10]
_FIRST_ACTS: Final = tuple(ActKind)[:6]
_LATER_FAULTS: Final = tuple(FaultKind)[10:15]
_LATER_ACTS: Final = tuple(ActKind)[6:11]
_BURST: Final = 22
"""More gangs than are committed one by one at the same time."""
_CALLS: Final = {
    "create bindrequests": "scheduler",
    "create pods/eviction": "scheduler",
    "patch pods": "scheduler",
    "delete bindrequests": "scheduler",
    "create pods/binding": "binder",
    "patch bindrequests": "binder",
    "create pods": "binder",
    "delete pods": "binder",
    "create podgroups": "grouper",
}
"""Call at which a process dies or freezes -> the kind of process."""


def draw(seed: int) -> Plan:
    """Draw the plan of a seed."""
    chance = Random(f"plan {seed}")
    nodes = chance.randint(2, 5)
    gangs = tuple(_gang(chance, number) for number in range(chance.randint(3, 7)))
    needs = needs_plans.draw(seed)
    plan = Plan(
        seed=seed,
        nodes=nodes,
        cores=chance.choice((4, 8)),
        gpus=chance.choice((0, 2, 4)),
        limit_cores=chance.randint(3, 10),
        gangs=(*gangs, *map(_needy, needs.gangs)),
        faults=tuple(
            sorted((_fault(chance) for _ in range(chance.randint(1, 6))), key=lambda f: f.at_s)
        ),
        acts=tuple(_act(chance) for _ in range(chance.randint(0, 4))),
        skew_s=tuple(chance.choice((0.0, 0.0, chance.uniform(-5, 5))) for _ in PROCESSES),
        ground=needs.ground,
        troubles=needs.troubles,
    )
    return _with_hard(_with_more(plan, Random(f"faults {seed}")), Random(f"hard {seed}"))


def _gang(chance: Random, number: int) -> GangPlan:
    size = chance.randint(1, 5)
    kind = chance.choice(("plain", "plain", "whole", "share"))
    return GangPlan(
        name=f"g{number}",
        size=size,
        minimum=chance.choice((size, size, chance.randint(1, size))),
        queue=chance.choice(("limited", "a", "b")),
        cores=chance.randint(1, 3),
        gpus=chance.randint(1, 2) if kind == "whole" else 0,
        fraction=chance.choice(("0.25", "0.5", "0.7")) if kind == "share" else "",
        run_s=chance.choice((None, chance.uniform(1, 60))),
        at_s=chance.choice((0.0, chance.uniform(0, 60))),
        is_job=chance.random() < 0.3,
        is_pod_first=chance.random() < 0.3,
    )


def _needy(gang: NeedyGang) -> GangPlan:
    return GangPlan(
        name=gang.name, size=gang.size, minimum=gang.minimum, queue=gang.queue, cores=gang.cores,
        gpus=0, fraction="", run_s=gang.run_s, at_s=gang.at_s, is_job=gang.is_job,
        is_pod_first=False, needs=gang.needs,
    )  # fmt: skip


def _fault(chance: Random) -> Fault:
    return Fault(
        kind=chance.choice((FaultKind.KILL, *_FIRST_FAULTS)),
        process=chance.choice(PROCESSES),
        at_s=chance.choice((chance.uniform(0, 5), chance.uniform(0, QUIET_AFTER_S * 0.7))),
        seconds=chance.choice((chance.uniform(0.1, 3), chance.uniform(3, QUIET_AFTER_S * 0.3))),
        after_steps=chance.randint(1, 400),
    )


def _act(chance: Random) -> Act:
    return Act(
        kind=chance.choice(_FIRST_ACTS),
        target=chance.randrange(1000),
        at_s=chance.choice((chance.uniform(0, 5), chance.uniform(0, QUIET_AFTER_S * 0.7))),
        seconds=chance.uniform(0.5, 30),
    )


def _with_more(plan: Plan, chance: Random) -> Plan:
    """Add the later kinds of faults and acts, so that the draws before it stay."""
    kind = chance.random()
    if kind < 0.5:
        plan = _contested(plan)
    elif kind < 0.58:
        plan = _burst(plan, Random(f"burst {plan.seed}"))
    faults = [*plan.faults, *(_later_fault(chance) for _ in range(chance.randint(0, 2)))]
    if chance.random() < 0.5:
        faults.append(_fault_at_call(chance))
    acts = [*plan.acts, *(_later_act(chance) for _ in range(chance.randint(0, 2)))]
    if chance.random() < 0.4:
        acts.append(replace(_act(chance), kind=ActKind.STOP_BINDING))
    for act in acts:
        if act.kind is ActKind.LOSE_NODE and chance.random() < 0.6:
            at_s = min(act.at_s + chance.uniform(0.1, 15), QUIET_AFTER_S * 0.9)
            faults.append(Fault(FaultKind.KILL, "agent", at_s, chance.uniform(0.1, 3), 1))
    faults.sort(key=lambda fault: fault.at_s)
    return replace(plan, faults=tuple(faults), acts=tuple(acts))


def _contested(plan: Plan) -> Plan:
    """Return a plan whose gangs evict each other: of two priorities, on few nodes."""
    gangs = (_rival(gang, Random(f"rival {plan.seed} {gang.name}")) for gang in plan.gangs)
    return replace(plan, nodes=min(plan.nodes, 2), gangs=tuple(gangs))


def _rival(gang: GangPlan, chance: Random) -> GangPlan:
    is_low, size = chance.random() < 0.5, min(gang.size, 3)
    has_gpus = chance.random() < 0.4
    allows_job = gang.needs is None or gang.needs.allows_job
    return replace(
        gang,
        size=size,
        minimum=min(gang.minimum, size),
        queue=chance.choice(("a", "a", "b", gang.queue)),
        cores=2,
        gpus=gang.gpus if has_gpus else 0,
        fraction=gang.fraction if has_gpus else "",
        priority=PRIORITIES[not is_low],
        preemptibility=chance.choice(("", "", "NonPreemptible")),
        keeps=chance.choice((None, None, 0, size - 1, size)),
        run_s=None if is_low else gang.run_s,
        at_s=0.0 if is_low else gang.at_s + chance.uniform(5, 40),
        is_job=gang.is_job or (allows_job and chance.random() < 0.3),
    )


def _burst(plan: Plan, chance: Random) -> Plan:
    """Return a plan with so many gangs at once that they share BindRequests.

    A binder stops when it begins to bind, and gangs go meanwhile, so that some are withdrawn.
    """
    first = plan.gangs[:2]
    more = tuple(
        replace(
            _gang(chance, len(first) + number), size=1, minimum=1, cores=1, gpus=0,
            fraction="", is_job=False, at_s=1.0, queue="b",
        )
        for number in range(_BURST)
    )  # fmt: skip
    seconds = chance.uniform(8, 25)
    stop = Fault(
        FaultKind.FREEZE, "binder", 0.5, seconds, at_call="create pods/binding",
        fate=chance.choice(tuple(CallFate)),
    )  # fmt: skip
    acts = tuple(
        Act(ActKind.DELETE_GANG, chance.randrange(1000), chance.uniform(1.5, 6)) for _ in range(6)
    )
    if Random(f"long {plan.seed}").random() < 0.5:
        return _long_burst(plan, more, replace(stop, seconds=60.0), acts)
    return replace(
        plan, nodes=4, cores=8, gangs=first + more, faults=(*plan.faults, stop),
        acts=plan.acts + acts,
    )  # fmt: skip


def _long_burst(
    plan: Plan, gangs: tuple[GangPlan, ...], stop: Fault, acts: tuple[Act, ...]
) -> Plan:
    """Return a plan in which gangs go that share a request, or lose their PodGroups, while no
    binder works for long.

    Nearly all gangs are planned in one cycle, once the node is ready.
    """
    death = Fault(FaultKind.KILL, "binder-0", 0.4, 80.0, 1)
    doubled = (replace(gang, name=name, at_s=0.0) for gang in gangs for name in _pair(gang.name))
    return replace(
        plan, nodes=1, cores=64, gangs=tuple(doubled), faults=(death, stop),
        acts=tuple(
            replace(act, at_s=act.at_s + 4, kind=kind)
            for kind in (ActKind.DELETE_GANG, ActKind.DELETE_GROUP)
            for act in acts
        ),
    )  # fmt: skip


def _pair(name: str) -> tuple[str, str]:
    return name, f"{name}-other"


def _later_fault(chance: Random) -> Fault:
    kind = chance.choice(_LATER_FAULTS)
    return replace(_fault(chance), kind=kind)


def _fault_at_call(chance: Random) -> Fault:
    call = chance.choice(tuple(_CALLS))
    kind = chance.choice((FaultKind.KILL, FaultKind.FREEZE))
    return Fault(
        kind=kind,
        process=_CALLS[call],
        at_s=chance.choice((0.0, chance.uniform(0, QUIET_AFTER_S * 0.5))),
        seconds=chance.uniform(0.1, 5) if kind is FaultKind.KILL else chance.uniform(12, 30),
        at_call=call,
        fate=chance.choice(tuple(CallFate)),
    )


def _later_act(chance: Random) -> Act:
    return replace(_act(chance), kind=chance.choice(_LATER_ACTS))


def _with_hard(plan: Plan, chance: Random) -> Plan:
    """Add what defects of rollbacks, fences and commits need to show."""
    split, late, refused, silent, scarce, slow, lost = (chance.random() for _ in range(7))
    max_pods = chance.randint(1, 2)
    extra = [_refusal(chance), _death_between_parts(chance)]
    at_s, seconds = chance.uniform(0, 10), chance.uniform(30, 80)
    silence = Act(ActKind.SILENCE_GPUS, chance.randrange(1000), at_s, seconds)
    sharers = tuple(_sharers(chance, number) for number in range(chance.randint(3, 5)))
    if late < 0.1:
        return _late_commit(plan, chance)
    # Where it does not die between two parts, it is refused one of them.
    wanted = (refused < 0.2 or 0.15 <= split < 0.25, split < 0.15)
    faults = [fault for fault, is_wanted in zip(extra, wanted, strict=True) if is_wanted]
    stops: tuple[Act, ...] = ()
    delays = [Fault(FaultKind.DELAY, name, chance.uniform(0, 10), 40.0) for name in PROCESSES[2:4]]
    deletions = tuple(
        Act(ActKind.STOP_BINDING, 2 * chance.randrange(500) + 1, chance.uniform(0, 40), 400.0)
        for _ in range(3)
    )
    if slow < 0.15:
        faults, stops = faults + delays, deletions
    if lost < 0.1:
        faults += [Fault(FaultKind.LOSE_COMMITS, name, 0.0, 70.0) for name in PROCESSES[:2]]
    is_scarce, gpus = scarce < 0.2, chance.randint(1, 2)
    return replace(
        plan,
        max_pods=max_pods if split < 0.25 else plan.max_pods,
        faults=tuple(sorted((*plan.faults, *faults), key=lambda fault: fault.at_s)),
        backoff_limit=chance.choice((0, 1, 2, 5)),
        acts=(*plan.acts, *stops, *((silence,) if silent < 0.2 or is_scarce else ())),
        gpus=gpus if is_scarce else plan.gpus,
        gangs=(*plan.gangs, *sharers) if is_scarce else plan.gangs,
    )


def _late_commit(plan: Plan, chance: Random) -> Plan:
    """Return a plan in which a leader's commit arrives after the next one has found no room."""
    late = replace(
        _gang(chance, 0), name="late0", size=1, minimum=1, queue="b", cores=1, gpus=0, fraction="",
        run_s=None, at_s=chance.uniform(2, 4), is_job=False, is_pod_first=False,
    )  # fmt: skip
    kind, seconds = chance.choice((FaultKind.KILL, FaultKind.FREEZE)), chance.uniform(25, 40)
    fault = Fault(
        kind, "scheduler", 1.9, seconds, at_call="create bindrequests", fate=CallFate.IS_LATE
    )
    at_s = chance.uniform(5, 10)
    cordons = tuple(Act(ActKind.CORDON, number, at_s, 50.0) for number in range(plan.nodes))
    gangs = (late, *(gang for gang in plan.gangs if gang.at_s == 0.0))
    return replace(plan, gangs=gangs, faults=(fault,), acts=cordons)


def _refusal(chance: Random) -> Fault:
    process = chance.choice(PROCESSES[:2])
    return Fault(FaultKind.REFUSE, process, chance.uniform(0, 30), chance.uniform(5, 40))


def _death_between_parts(chance: Random) -> Fault:
    at_s, seconds = chance.uniform(0, 40), chance.uniform(0.1, 20)
    fate = chance.choice((CallFate.ARRIVES, CallFate.IS_LOST))
    call = "create bindrequests"
    return Fault(FaultKind.KILL, "scheduler", at_s, seconds, at_call=call, fate=fate)


def _sharers(chance: Random, number: int) -> GangPlan:
    """Draw a gang of GPU shares that comes and goes."""
    size = chance.randint(2, 3)
    fraction, run_s = chance.choice(("0.3", "0.5", "0.7", "0.7")), chance.uniform(2, 25)
    return replace(
        _gang(chance, number), name=f"share{number}", size=size, minimum=size, cores=1, gpus=0,
        fraction=fraction, run_s=run_s, at_s=chance.uniform(0, 60), is_job=chance.random() < 0.5,
    )  # fmt: skip
