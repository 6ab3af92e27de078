"""The view of a session for its own parts: the view of plugins with more members."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from bindery.scheduler.ledgers.nodes import NodeLedger
from bindery.scheduler.model.jobs import Job
from bindery.scheduler.model.nominations import Nominated
from bindery.scheduler.model.state import PlanState
from bindery.scheduler.planning.attempt_timer import AttemptTimer
from bindery.scheduler.planning.calls import PackingPolicies, PluginCalls
from bindery.scheduler.planning.reservations import Reservations
from bindery.scheduler.plugins.registry import PluginSet
from bindery.scheduler.plugins.view import SessionView


class PlanningView(SessionView, Protocol):
    """The session for placement, the choice of pods and the explanation of places."""

    @property
    def state(self) -> PlanState:
        """Columns and jobs."""

    @property
    def plugins(self) -> PluginSet:
        """The plugins by extension point."""

    @property
    def calls(self) -> PluginCalls:
        """The combined answers of plugins."""

    @property
    def packing(self) -> PackingPolicies:
        """How pods are packed."""

    @property
    def timer(self) -> AttemptTimer:
        """The time of the attempt under way."""

    @property
    def node_ledger(self) -> NodeLedger:
        """The changes of the plan on nodes."""

    @property
    def position(self) -> NDArray[np.intp]:
        """Node row -> position in `order`."""

    @property
    def reservations(self) -> Reservations:
        """Room that is reserved for gangs that do not fit now."""

    def nominated(self, job: Job) -> Nominated | None:
        """Return the nominated pods of other schedulers that count for pods of `job`."""
