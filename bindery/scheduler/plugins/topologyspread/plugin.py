"""The scheduler plugin topologyspread: topology spread constraints.

DoNotSchedule closes nodes and ScheduleAnyway scores them, with all policies of kube-scheduler's
plugin PodTopologySpread (Kubernetes 1.36). Only nodes of this scheduler's pool count.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from bindery.kube.objects.resources import Resource
from bindery.kube.objects.watched import KubeObject
from bindery.kube.watches.store import Change
from bindery.scheduler.ledgers.base import Ledger
from bindery.scheduler.model.jobs import Uid
from bindery.scheduler.model.pod_catalog import WATCHED, PodCatalog
from bindery.scheduler.model.row_rules import RowRules
from bindery.scheduler.model.shapes import Need, Shape
from bindery.scheduler.model.state import PlanState
from bindery.scheduler.plugins.topologyspread.ledger import SpreadLedger
from bindery.scheduler.plugins.topologyspread.rules import NominatedSpread
from bindery.scheduler.plugins.view import SessionView


class TopologySpread:
    """Keeps the labels of pods and nodes between sessions, and makes a ledger for each session."""

    name = "topologyspread"

    def __init__(self) -> None:
        self._catalog = PodCatalog()

    def watched_resources(self) -> Sequence[Resource[Any]]:
        """Return pods, nodes and namespaces."""
        return WATCHED

    def observe(self, change: Change[KubeObject]) -> bool:
        """Process a change; return False, because this plugin has no `node_failures`."""
        self._catalog.observe(change)
        return False

    def supported_needs(self) -> Collection[Need]:
        """Return the need for topology spread constraints."""
        return (Need.TOPOLOGY_SPREAD,)

    def ledger(self, session: SessionView, state: PlanState) -> Ledger:
        """Return the ledger for a session."""
        return SpreadLedger(self._catalog, session, state)

    def placement_rules(self, session: SessionView, shape: Shape) -> RowRules | None:
        """Return the rules for pods of `shape`; None if there are none."""
        return session.ledger(SpreadLedger).rules(shape)

    def nominated_rules(
        self, session: SessionView, shape: Shape, nominated: Mapping[int, Sequence[Uid]]
    ) -> RowRules | None:
        """Return the rules that close nodes by the pods nominated for them; None if none."""
        rules = session.ledger(SpreadLedger).rules(shape)
        if rules is None:
            return None
        catalog = self._catalog.pods
        known = {
            row: [pod for uid in pods if (pod := catalog.get(uid)) is not None]
            for row, pods in nominated.items()
        }
        return NominatedSpread(rules, len(session.state.nodes.nodes), known)
