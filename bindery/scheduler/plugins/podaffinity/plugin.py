"""The scheduler plugin podaffinity: affinity and anti-affinity between pods.

Required and preferred terms count in both directions and over the pods of all schedulers, as in
kube-scheduler's plugin InterPodAffinity (Kubernetes 1.36). Pods of other node pools count for the
domains of their nodes.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from pydantic import Field

from bindery.api.base import ApiModel
from bindery.kube.objects.resources import Resource
from bindery.kube.objects.watched import KubeObject
from bindery.kube.watches.store import Change
from bindery.scheduler.ledgers.base import Ledger
from bindery.scheduler.model.domains import Domain, Freeable
from bindery.scheduler.model.jobs import Job, Task, Uid
from bindery.scheduler.model.pod_catalog import WATCHED
from bindery.scheduler.model.row_rules import ClosedRows, RowRules
from bindery.scheduler.model.shapes import Need, Shape
from bindery.scheduler.model.state import PlanState
from bindery.scheduler.model.verdicts import SortKey
from bindery.scheduler.plugins.interface.nodes import NextPods
from bindery.scheduler.plugins.podaffinity import tied
from bindery.scheduler.plugins.podaffinity.catalog import TermCatalog
from bindery.scheduler.plugins.podaffinity.ledger import AffinityLedger
from bindery.scheduler.plugins.view import SessionView


class PodAffinityArguments(ApiModel):
    """The arguments of podaffinity."""

    hard_pod_affinity_weight: int = Field(default=1, ge=0, le=100)
    """The score that a pod gives a domain for each pod there whose required affinity selects it."""


class PodAffinity:
    """Keeps the catalog of terms between sessions, and makes a ledger for each session."""

    name = "podaffinity"
    arguments = PodAffinityArguments

    def __init__(self, arguments: PodAffinityArguments) -> None:
        self._arguments = arguments
        self._catalog = TermCatalog()

    def watched_resources(self) -> Sequence[Resource[Any]]:
        """Return pods, nodes and namespaces."""
        return WATCHED

    def observe(self, change: Change[KubeObject]) -> bool:
        """Process a change; return False, because this plugin has no `node_failures`."""
        self._catalog.observe(change)
        return False

    def supported_needs(self) -> Collection[Need]:
        """Return the needs for pod affinity and anti-affinity."""
        return (Need.POD_AFFINITY, Need.POD_ANTI_AFFINITY)

    def ledger(self, session: SessionView, state: PlanState) -> Ledger:  # noqa: ARG002
        """Return the ledger for a session."""
        return AffinityLedger(self._catalog, state, self._arguments.hard_pod_affinity_weight)

    def placement_rules(self, session: SessionView, shape: Shape) -> RowRules | None:
        """Return the rules for pods of `shape`; None if there are none."""
        return session.ledger(AffinityLedger).rules(shape)

    def gang_domains(
        self, session: SessionView, job: Job, pods: NextPods, freeable: Freeable | None
    ) -> Iterator[Domain] | None:
        """Return the domains to try for the next pods of `job`; None if they require none."""
        # Future pods of later stages may have terms that no pod has.
        if not job.stages and not any(t.shape.rules.affinity for t in job.pending.values()):
            return None
        return tied.domains(session, pods(), freeable)

    def nominated_rules(
        self, session: SessionView, shape: Shape, nominated: Mapping[int, Sequence[Uid]]
    ) -> RowRules | None:
        """Return the rules that close nodes by the anti-affinity of nominated pods or to them."""
        if shape.unruled is None:
            return None
        nodes = session.state.nodes.nodes
        closed = [
            row
            for row, pods in nominated.items()
            if (node := nodes[row]) is not None
            and any(self._catalog.keep_apart(shape, uid, node.metadata.labels) for uid in pods)
        ]
        if not closed:
            return None
        return ClosedRows(len(nodes), closed, "did not match anti-affinity rules of nominated pods")

    def pod_key(self, session: SessionView, task: Task) -> SortKey:  # noqa: ARG002
        """Return 1 for pods that need another pod beside them, so that the other one comes first.

        A pod that its own terms select needs only pods like itself.
        """
        shape = task.shape
        selects_itself = all(
            term.pods.includes(shape.namespace, shape.labels, {}) for term in shape.rules.affinity
        )
        return (0 if selects_itself else 1,)
