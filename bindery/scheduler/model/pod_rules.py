"""The rules of a pod about other pods: affinity, anti-affinity and topology spread constraints.

Read from pods of all schedulers. The rules are hashable and independent of the pod: namespaces and
label keys of the pod are resolved. Pure.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from bindery.kube.objects.podspec import (
    PodAffinity,
    PodAffinityTerm,
    TopologySpreadConstraint,
    WeightedPodAffinityTerm,
)
from bindery.kube.objects.watched import Pod
from bindery.scheduler.model.selectors import NOTHING, Requirement, Selector, selector


@dataclass(frozen=True)
class PodSet:
    """Pods by namespace and labels."""

    selector: Selector
    namespaces: frozenset[str]
    namespace_selector: Selector = NOTHING
    """Further namespaces, by their labels."""

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.selector, self.namespaces, self.namespace_selector))

    def includes(
        self, namespace: str, labels: Mapping[str, str], namespace_labels: Mapping[str, str]
    ) -> bool:
        """Return whether a pod with `labels` in `namespace` belongs to the set."""
        if namespace not in self.namespaces and not self.namespace_selector.matches(
            namespace_labels
        ):
            return False
        return self.selector.matches(labels)


@dataclass(frozen=True)
class Term:
    """A term of pod affinity or anti-affinity: a set of pods, and what counts as one place."""

    pods: PodSet
    topology_key: str

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.pods, self.topology_key))


@dataclass(frozen=True)
class Spread:
    """A topology spread constraint."""

    pods: PodSet
    topology_key: str
    max_skew: int
    min_domains: int
    is_hard: bool
    """Whether it is DoNotSchedule; otherwise it is a preference."""
    honors_affinity: bool
    honors_taints: bool


@dataclass(frozen=True)
class PodRules:
    """The rules of one pod. `preferred` has weights, negative for anti-affinity."""

    affinity: tuple[Term, ...] = ()
    anti_affinity: tuple[Term, ...] = ()
    preferred: tuple[tuple[int, Term], ...] = ()
    spread: tuple[Spread, ...] = ()

    @cached_property
    def pod_sets(self) -> tuple[PodSet, ...]:
        """All sets of pods that the rules refer to."""
        terms = (*self.affinity, *self.anti_affinity, *(term for _, term in self.preferred))
        return (*(term.pods for term in terms), *(spread.pods for spread in self.spread))


NO_RULES = PodRules()


def read_rules(pod: Pod) -> PodRules:
    """Return the rules of `pod`."""
    spec = pod.spec
    if spec.affinity is None and not spec.topology_spread_constraints:  # most pods
        return NO_RULES
    affinity = spec.affinity.pod_affinity if spec.affinity else None
    anti = spec.affinity.pod_anti_affinity if spec.affinity else None
    rules = PodRules(
        affinity=tuple(_terms(pod, (affinity and affinity.required) or ())),
        anti_affinity=tuple(_terms(pod, (anti and anti.required) or ())),
        preferred=(
            *_weighted(pod, _preferred(affinity), 1),
            *_weighted(pod, _preferred(anti), -1),
        ),
        spread=tuple(_spread(pod, each) for each in spec.topology_spread_constraints or ()),
    )
    return NO_RULES if rules == NO_RULES else rules


def _preferred(affinity: PodAffinity | None) -> Iterable[WeightedPodAffinityTerm]:
    return (affinity.preferred if affinity else None) or ()


def _weighted(
    pod: Pod, weighted: Iterable[WeightedPodAffinityTerm], sign: int
) -> Iterator[tuple[int, Term]]:
    for each in weighted:
        yield sign * each.weight, _term(pod, each.pod_affinity_term)


def _terms(pod: Pod, terms: Iterable[PodAffinityTerm]) -> Iterator[Term]:
    return (_term(pod, each) for each in terms)


def _term(pod: Pod, term: PodAffinityTerm) -> Term:
    selected = selector(term.label_selector)
    # The API server adds these keys to the selector when it creates the pod. Later changes of the
    # pod's labels have no effect, so a key that is there already is left alone.
    known = {each.key for each in selected.requirements}
    keys = [(key, "In") for key in term.match_label_keys or ()]
    keys += [(key, "NotIn") for key in term.mismatch_label_keys or ()]
    more = [
        Requirement(key, operator, frozenset((pod.metadata.labels[key],)))
        for key, operator in keys
        if key in pod.metadata.labels and key not in known
    ]
    namespaces = frozenset(term.namespaces or ())
    if not namespaces and term.namespace_selector is None:
        namespaces = frozenset((pod.metadata.namespace,))
    pods = PodSet(selected.narrowed(*more), namespaces, selector(term.namespace_selector))
    return Term(pods, term.topology_key)


def _spread(pod: Pod, constraint: TopologySpreadConstraint) -> Spread:
    labels = pod.metadata.labels
    # As in kube-scheduler, the pod's present labels count.
    more = [
        Requirement(key, "In", frozenset((labels[key],)))
        for key in constraint.match_label_keys or ()
        if key in labels
    ]
    return Spread(
        pods=PodSet(
            selector(constraint.label_selector).narrowed(*more),
            frozenset((pod.metadata.namespace,)),
        ),
        topology_key=constraint.topology_key,
        max_skew=constraint.max_skew,
        min_domains=constraint.min_domains or 1,
        is_hard=constraint.when_unsatisfiable == "DoNotSchedule",
        honors_affinity=constraint.node_affinity_policy != "Ignore",
        honors_taints=constraint.node_taints_policy == "Honor",
    )
