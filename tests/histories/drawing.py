"""Draws what happens in a history from its seed.

A part that is taken out of a plan leaves the chance of the others as it was, because each draws
from a generator of its own.
"""

from collections.abc import Iterable
from dataclasses import replace
from random import Random
from typing import Final

from tests.histories.needs import plans as needs_plans
from tests.histories.needs.plans import Needs, NeedyGang, StageNeed
from tests.histories.plan import (
    PRIORITIES,
    PROCESSES,
    QUIET_AFTER_S,
    Act,
    ActKind,
    CallFate,
    Fault,
    FaultKind,
    GangPlan,
    Plan,
)

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


_COMMON: Final = (
    FaultKind.FAIL,
    FaultKind.LOSE_ANSWERS,
    FaultKind.LOSE_REQUESTS,
    FaultKind.CONFLICT,
    FaultKind.CONFLICT,
)
"""What befalls all processes of a kind at once."""
_ASKED: Final = (
    ("binder", "get pods"),
    ("binder", "get nodes"),
    ("scheduler", "create pods/eviction"),
)
"""Kind of process, and a call after whose answer it binds or evicts."""


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
        faults=_in_order(_fault(chance) for _ in range(chance.randint(1, 6))),
        acts=tuple(_act(chance) for _ in range(chance.randint(0, 4))),
        skew_s=tuple(chance.choice((0.0, 0.0, chance.uniform(-5, 5))) for _ in PROCESSES),
        ground=needs.ground,
        troubles=needs.troubles,
    )
    hard = _with_hard(_with_more(plan, Random(f"faults {seed}")), Random(f"hard {seed}"))
    plan = _with_runtimes(_with_stops(hard, Random(f"stops {seed}")), Random(f"runtimes {seed}"))
    plan = _with_deletions(plan, Random(f"deletions {seed}"))
    return _with_failures(plan, Random(f"failures {seed}"))


def _in_order(faults: Iterable[Fault]) -> tuple[Fault, ...]:
    return tuple(sorted(faults, key=lambda fault: fault.at_s))


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
    return replace(plan, faults=_in_order(faults), acts=tuple(acts))


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
    if (kept := Random(f"kept {plan.seed}")).random() < 0.06:
        return _kept_room(plan, kept)
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
    if (woken := Random(f"woken {plan.seed}")).random() < 0.1:
        faults.append(_long_sleep(woken))
    if lost < 0.1:
        faults += [Fault(FaultKind.LOSE_COMMITS, name, 0.0, 70.0) for name in PROCESSES[:2]]
    is_scarce, gpus = scarce < 0.2, chance.randint(1, 2)
    return replace(
        plan,
        max_pods=max_pods if split < 0.25 else plan.max_pods,
        faults=_in_order((*plan.faults, *faults)),
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


def _long_sleep(chance: Random) -> Fault:
    """Draw that a leader wakes after its Lease with the answer that it has waited for."""
    process, call = chance.choice(_ASKED)
    at_s, seconds = chance.uniform(0, 20), chance.uniform(21, 30)
    return Fault(FaultKind.FREEZE, process, at_s, seconds, at_call=call)


def _death_between_parts(chance: Random) -> Fault:
    at_s, seconds = chance.uniform(0, 40), chance.uniform(0.1, 20)
    fate = chance.choice((CallFate.ARRIVES, CallFate.IS_LOST))
    call = "create bindrequests"
    return Fault(FaultKind.KILL, "scheduler", at_s, seconds, at_call=call, fate=fate)


def _kept_room(plan: Plan, chance: Random) -> Plan:
    """Return a plan in which gangs come that fit only into the room kept for a later stage."""
    stage = StageNeed(
        workers=chance.randint(1, 3), worker_cores=2, condition=chance.choice(("Ready", "Bound")),
        delay_s=chance.uniform(2, 40), timeout_s=30.0,
    )  # fmt: skip
    first = replace(
        _gang(chance, 0), name="kept0", size=1, minimum=1, queue="a", cores=1, gpus=0, fraction="",
        run_s=None, at_s=0.0, is_job=False, needs=Needs(stage=stage),
    )  # fmt: skip
    rivals = tuple(
        replace(
            _gang(chance, number), name=f"rival{number}", queue="b", cores=chance.randint(1, 2),
            gpus=0, fraction="", run_s=chance.choice((None, 5.0)), at_s=chance.uniform(2, 30),
        )
        for number in range(1, 6)
    )  # fmt: skip
    others = (fault for fault in plan.faults if not fault.process.startswith("scheduler"))
    return replace(
        plan, nodes=1, cores=8, gangs=(first, *rivals), faults=tuple(others), acts=(), troubles=(),
    )  # fmt: skip


def _sharers(chance: Random, number: int) -> GangPlan:
    """Draw a gang of GPU shares that comes and goes."""
    size = chance.randint(2, 3)
    fraction, run_s = chance.choice(("0.3", "0.5", "0.7", "0.7")), chance.uniform(2, 25)
    return replace(
        _gang(chance, number), name=f"share{number}", size=size, minimum=size, cores=1, gpus=0,
        fraction=fraction, run_s=run_s, at_s=chance.uniform(0, 60), is_job=chance.random() < 0.5,
    )  # fmt: skip


def _with_stops(plan: Plan, chance: Random) -> Plan:
    """Let a sixth of the histories stop a process in order, half of them with slow requests."""
    if chance.random() >= 1 / 6:
        return plan
    name = chance.choice((*PROCESSES[:5], *PROCESSES[2:4]))
    at_s, seconds = chance.uniform(0, 60), chance.choice((chance.uniform(0.5, 8), 25.0))
    stop = Fault(FaultKind.STOP, name, at_s, seconds)
    if chance.random() < 0.6:
        kind = name.partition("-")[0]
        call = chance.choice([call for call, caller in _CALLS.items() if caller == kind])
        stop = replace(stop, process=kind, at_s=chance.choice((0.0, at_s)), at_call=call)
    slow = Fault(FaultKind.DELAY, name, max(0.0, stop.at_s - 1), 30.0)
    faults = (*plan.faults, stop, *((slow,) if chance.random() < 0.5 else ()))
    return replace(plan, faults=_in_order(faults))


def _with_runtimes(plan: Plan, chance: Random) -> Plan:
    """Let queues protect running gangs in a quarter of the histories whose gangs evict others."""
    if chance.random() >= 1 / 4 or not any(gang.priority for gang in plan.gangs):
        return plan
    return replace(plan, min_runtime_s=40.0)


def _with_deletions(plan: Plan, chance: Random) -> Plan:
    """Let people delete gangs that are being bound, in an eighth of the histories."""
    if chance.random() >= 1 / 8:
        return plan
    deletions = (
        Act(ActKind.DELETE_BOUND, 0, chance.uniform(0, 60), chance.uniform(0, 100))
        for _ in range(3)
    )
    return replace(plan, acts=(*plan.acts, *deletions))


def _with_failures(plan: Plan, chance: Random) -> Plan:
    """Let requests of all schedulers or binders fail for a while, in a sixth of the histories.

    Meanwhile bindings are stopped, so that roll-backs and clean-up meet the failures.
    """
    if chance.random() >= 1 / 6:
        return plan
    fault, kind = chance.choice(_COMMON), chance.choice(("scheduler", "binder"))
    at_s, seconds = chance.uniform(0, 60), chance.uniform(2, 20)
    faults = [Fault(fault, name, at_s, seconds) for name in PROCESSES if name.startswith(kind)]
    stops = (
        Act(
            ActKind.STOP_BINDING, chance.randrange(1000), at_s + chance.uniform(0, seconds / 2),
            chance.uniform(0, 300),
        )
        for _ in range(2)
    )  # fmt: skip
    return replace(
        plan,
        faults=_in_order((*plan.faults, *faults)),
        acts=(*plan.acts, *stops),
    )
