"""The ledger of pod affinity: where the pods stand that terms select, and the pods with terms.

Counts are made when a shape first needs them, from the pods on nodes and in the plan; from then on
they follow every operation. Operations on pods that no term selects cost nothing.
"""

from collections.abc import Iterable, Iterator

from bindery.scheduler.ledgers.base import LedgerRefusalError, Operation, OperationKind
from bindery.scheduler.model.jobs import NO_ROW, Uid
from bindery.scheduler.model.label_domains import Domains
from bindery.scheduler.model.pod_catalog import places
from bindery.scheduler.model.pod_rules import PodSet
from bindery.scheduler.model.shapes import Shape
from bindery.scheduler.model.state import PlanState
from bindery.scheduler.plugins.podaffinity.catalog import (
    OwnedTerm,
    TermCatalog,
    TermKind,
    owned_terms,
)
from bindery.scheduler.plugins.podaffinity.populations import Pods, Population
from bindery.scheduler.plugins.podaffinity.rules import AffinityRules

_CHANGES = {
    OperationKind.ALLOCATE: Pods(held=1),
    OperationKind.PIPELINE: Pods(promised=1),
    OperationKind.EVICT: Pods(leaving=1),
}

Members = tuple[PodSet, ...]
"""The pods that belong to all of these sets."""


class AffinityLedger:
    """The counts of one session, and the rules that depend on them."""

    name = "podaffinity"

    def __init__(self, catalog: TermCatalog, state: PlanState, required_weight: int) -> None:
        """`required_weight`: the score of a pod whose required affinity selects another pod."""
        self._catalog, self._state = catalog, state
        self._required_weight = required_weight
        self._topology = catalog.pods.topology(state.nodes)
        self._members: dict[Members, Population] = {}
        self._anchored: dict[tuple[str, str], dict[Members, None]] = {}
        self._loose: dict[Members, None] = {}
        self._owners: dict[OwnedTerm, Population] = {}
        self._of_shape: dict[Shape, tuple[Population, ...]] = {}
        """Shape -> the populations that its pods belong to."""
        self._rules: dict[Shape, AffinityRules | None] = {}

    # -- the ledger ------------------------------------------------------------------------------

    def apply(self, operation: Operation) -> None:
        """Count a planned or evicted pod; refuse a node that the rules close."""
        shape = operation.task.shape
        if shape.unruled is None:
            return
        if operation.kind is not OperationKind.EVICT:
            self._check(operation)
        self._count(operation, 1)

    def revert(self, operation: Operation) -> None:
        """Undo the counts of `operation`."""
        if operation.task.shape.unruled is not None:
            self._count(operation, -1)

    def rules(self, shape: Shape) -> AffinityRules | None:
        """Return the rules for pods of `shape`; None if there are none."""
        if shape not in self._rules:
            self._rules[shape] = self._made_rules(shape)
        return self._rules[shape]

    def has_peers(self, shape: Shape) -> bool:
        """Return whether any pod matches all terms of required affinity of `shape`."""
        members = tuple(term.pods for term in shape.rules.affinity)
        matching = self._population_of(members)
        keys = {term.topology_key for term in shape.rules.affinity}
        return any(matching.counts(key).total.present for key in keys)

    def are_peers(self, shape: Shape, other: Shape) -> bool:
        """Return whether pods of `other` match all terms of required affinity of `shape`."""
        return self._is_member(other, tuple(term.pods for term in shape.rules.affinity))

    def domains(self, key: str) -> Domains:
        """Return the domains of a label key."""
        return self._topology.domains(key)

    # -- inside ----------------------------------------------------------------------------------

    def _check(self, operation: Operation) -> None:
        rules = self.rules(operation.task.shape)
        if rules is None:
            return
        is_promise = operation.kind is OperationKind.PIPELINE
        if not rules.is_open(operation.row, later=is_promise):
            text = "its pod affinity, or that of other pods, keeps it away"
            fits_later = not is_promise and rules.is_open(operation.row, later=True)
            raise LedgerRefusalError(text, fits_later=fits_later)

    def _count(self, operation: Operation, times: int) -> None:
        pods = _CHANGES[operation.kind]
        for population in self._populations_of(operation.task.shape):
            population.add(operation.row, "", pods, times)

    def _populations_of(self, shape: Shape) -> tuple[Population, ...]:
        found = self._of_shape.get(shape)
        if found is None:
            found = self._of_shape[shape] = (
                *(self._owners[o] for o in owned_terms(shape.rules) if o in self._owners),
                *(self._members[members] for members in self._memberships(shape)),
            )
        return found

    def _memberships(self, shape: Shape) -> Iterator[Members]:
        candidates = dict(self._loose)
        for label in shape.labels.items():
            candidates |= self._anchored.get(label, {})
        return (members for members in candidates if self._is_member(shape, members))

    def _is_member(self, shape: Shape, members: Members) -> bool:
        of_namespace = self._catalog.pods.namespaces[shape.namespace]
        return all(s.includes(shape.namespace, shape.labels, of_namespace) for s in members)

    def _made_rules(self, shape: Shape) -> AffinityRules | None:
        rules, own = AffinityRules(self._state), shape.rules
        others = list(self._catalog.selecting(shape.namespace, shape.labels))
        if not others and not (own.affinity or own.anti_affinity or own.preferred):
            return None
        if own.affinity:
            members = tuple(term.pods for term in own.affinity)
            matching = self._population_of(members)
            counts = [matching.counts(term.topology_key) for term in own.affinity]
            rules.require(counts, is_own_peer=self._is_member(shape, members))
        for term in own.anti_affinity:
            rules.keep_away_from(self._population_of((term.pods,)).counts(term.topology_key))
        for weight, term in own.preferred:
            rules.prefer(self._population_of((term.pods,)).counts(term.topology_key), weight)
        for owned in others:
            counts_of_owners = self._population_with(owned).counts(owned.term.topology_key)
            if owned.kind is TermKind.KEEPS_AWAY:
                rules.shut_out_by(counts_of_owners)
            elif owned.kind is TermKind.PREFERS:
                rules.prefer(counts_of_owners, owned.weight)
            elif self._required_weight:
                rules.prefer(counts_of_owners, self._required_weight)
        return rules

    def _population_of(self, members: Members) -> Population:
        """Return the pods that belong to all sets of `members`."""
        population = self._members.get(members)
        if population is None:
            pods = self._catalog.pods
            uids = pods.in_set(members[0])
            for further in members[1:]:
                uids = self._also_in(uids, further)
            population = self._members[members] = self._counted((uid, 1) for uid in uids)
            for index in self._indexes(members[0]):
                index[members] = None
        return population

    def _indexes(self, pods: PodSet) -> Iterator[dict[Members, None]]:
        anchor = pods.selector.anchor
        if anchor is None:
            yield self._loose
        else:
            for value in anchor.values:
                yield self._anchored.setdefault((anchor.key, value), {})

    def _also_in(self, uids: Iterable[Uid], pods: PodSet) -> Iterator[Uid]:
        catalog = self._catalog.pods
        for uid in uids:
            known = catalog.pods.get(uid)
            if known is not None and pods.includes(*known, catalog.namespaces[known.namespace]):
                yield uid

    def _population_with(self, owned: OwnedTerm) -> Population:
        """Return the pods with the term `owned`, each as often as it states the term.

        As kube-scheduler does, a term that a pod repeats scores each time.
        """
        population = self._owners.get(owned)
        if population is None:
            population = self._owners[owned] = self._counted(self._catalog.owners(owned).items())
        return population

    def _counted(self, uids: Iterable[tuple[Uid, int]]) -> Population:
        population = Population(self._topology)
        for uid, times in uids:
            task = self._state.tasks.get(uid)
            for row, node_name, *numbers in places(task) if task is not None else ():
                population.add(row, node_name if row == NO_ROW else "", Pods(*numbers), times)
        self._of_shape.clear()  # a shape may belong to the new population
        return population
