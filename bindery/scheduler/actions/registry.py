"""The actions by their names in the configuration.

The configuration sets their order. api/configuration.py has the default order and its reasons.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from bindery.api.configuration import SchedulerConfiguration
from bindery.api.spelling import no_such
from bindery.scheduler.actions.allocate import Allocate
from bindery.scheduler.actions.backfill import Backfill
from bindery.scheduler.actions.consolidation import ConsolidationRule, most_moved
from bindery.scheduler.actions.idlegpus import IdleGpuLimit
from bindery.scheduler.actions.keeping_quotas import QuotaKeepingReclaim
from bindery.scheduler.actions.making_room import MakeRoom
from bindery.scheduler.actions.preempt import PreemptRule
from bindery.scheduler.actions.reclaim import ReclaimRule
from bindery.scheduler.actions.reserving import Reserver
from bindery.scheduler.actions.runtimelimit import RunTimeLimit
from bindery.scheduler.actions.stalegangeviction import StaleGangEviction
from bindery.scheduler.planning.rounds import Turn
from bindery.scheduler.planning.session import Session
from bindery.scheduler.planning.statement import Commit


class Action(Protocol):
    """One step of a cycle."""

    @property
    def name(self) -> str:
        """The name in the configuration."""

    @property
    def tries_jobs(self) -> bool:
        """Whether it tries waiting jobs one by one; the next cycle can then continue it."""

    @property
    def fills(self) -> bool:
        """Whether it only uses free room; it then also runs if a cycle continues a later action."""

    def execute(self, session: Session, turn: Turn) -> Iterator[Commit]:
        """Plan what `turn` allows; yield the operations of each Statement when it is committed."""


Maker = Callable[[SchedulerConfiguration], Action]


def _allocate(configuration: SchedulerConfiguration) -> Allocate:
    # Without backfill, reserved room would stay idle.
    is_filled = Backfill.name in configuration.actions
    return Allocate(Reserver(configuration.backfill) if is_filled else None)


def _backfill(configuration: SchedulerConfiguration) -> Backfill:
    configured = (name for name in _MAKING_ROOM if name in configuration.actions)
    return Backfill([_MAKING_ROOM[name](configuration) for name in configured])


_MAKING_ROOM: dict[str, Callable[[SchedulerConfiguration], MakeRoom]] = {
    "consolidation": lambda it: MakeRoom(ConsolidationRule(most_moved(it))),
    "reclaim": lambda _: MakeRoom(ReclaimRule(), QuotaKeepingReclaim),
    "preempt": lambda _: MakeRoom(PreemptRule()),
}
ACTIONS: dict[str, Maker] = {
    "allocate": _allocate,
    "backfill": _backfill,
    **_MAKING_ROOM,
    "stalegangeviction": lambda it: StaleGangEviction(it.staleness_grace_period_seconds),
    "runtimelimit": lambda _: RunTimeLimit(),
    "idlegpus": lambda _: IdleGpuLimit(),
}
"""Name -> function that makes the action."""


class UnknownActionError(Exception):
    """The configuration names an action that does not exist; `index` is its place in the list."""

    def __init__(self, index: int, name: str) -> None:
        self.index = index
        super().__init__(no_such("action", name, ACTIONS))


def make(configuration: SchedulerConfiguration) -> Sequence[Action]:
    """Return the configured actions in order; raises UnknownActionError."""
    for index, name in enumerate(configuration.actions):
        if name not in ACTIONS:
            raise UnknownActionError(index, name)
    return [ACTIONS[name](configuration) for name in configuration.actions]
