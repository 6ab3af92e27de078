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

QUIET_AFTER_S: Final = 120.0
"""The last fault and the last act come before; then everything has to come to rest."""
NODE_PREFIX: Final = "n"
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


@dataclass(frozen=True)
class Fault:
    """One fault. It begins at `at_s`; a process that was killed is back after `seconds`."""

    kind: FaultKind
    process: str
    at_s: float
    seconds: float
    after_steps: int = 0
    """KILL: further steps of the event loop after `at_s`."""

    def __str__(self) -> str:
        return f"{self.at_s:7.3f} s  {self.kind} {self.process} for {self.seconds:.3f} s"


class ActKind(StrEnum):
    """What people and controllers do at the worst moment."""

    DELETE_GANG = "delete gang"
    DELETE_POD = "delete pod"
    RECREATE_GANG = "delete and re-create gang"
    CORDON = "cordon"
    LOSE_NODE = "lose node"
    """The Node object goes, and comes back under its name with another UID."""
    EDIT_QUEUE = "edit queue"


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


def draw(seed: int) -> Plan:
    """Draw the plan of a seed."""
    chance = Random(f"plan {seed}")
    nodes = chance.randint(2, 5)
    gangs = tuple(_gang(chance, number) for number in range(chance.randint(3, 7)))
    needs = needs_plans.draw(seed)
    return Plan(
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
        kind=chance.choice((FaultKind.KILL, *FaultKind)),
        process=chance.choice(PROCESSES),
        at_s=chance.choice((chance.uniform(0, 5), chance.uniform(0, QUIET_AFTER_S * 0.7))),
        seconds=chance.choice((chance.uniform(0.1, 3), chance.uniform(3, QUIET_AFTER_S * 0.3))),
        after_steps=chance.randint(1, 400),
    )


def _act(chance: Random) -> Act:
    return Act(
        kind=chance.choice(tuple(ActKind)),
        target=chance.randrange(1000),
        at_s=chance.choice((chance.uniform(0, 5), chance.uniform(0, QUIET_AFTER_S * 0.7))),
        seconds=chance.uniform(0.5, 30),
    )
