"""Kueue's ClusterQueues, Cohorts and LocalQueues as one tree of Queues. Pure.

A cohort is a Queue with the quotas of its members and no more; a ClusterQueue is a Queue below it;
a LocalQueue is a Queue below its ClusterQueue, because workloads name it.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import ValidationError

from bindery.api import names
from bindery.api.quantity import QuantityError, nano
from bindery.grouper.marks.foreign import UNREADABLE, Body, metadata_of, part
from bindery.kube.objects.models import validated
from bindery.kube.objects.queues import NamespaceRule
from bindery.migration.kueuequotas import Amounts, Quotas, quotas_of, specs_of, total
from bindery.migration.report import Migration

_KNOWN: Final = frozenset(
    {
        "cohort",
        "cohortName",
        "fairSharing",
        "flavorFungibility",
        "namespaceSelector",
        "parentName",
        "preemption",
        "queueingStrategy",
        "resourceGroups",
        "stopPolicy",
    }
)
_REASONS: Final[Mapping[str, str]] = {
    "admissionChecks": "there are no admission checks: see AdmissionCheck",
    "admissionChecksStrategy": "there are no admission checks: see AdmissionCheck",
    "admissionScope": "set usage of the scheduler, or fairUsers of the Queue",
    "concurrentAdmissionPolicy": "a gang is placed once, on the nodes that its pods select",
}
_FUNGIBILITY: Final[Mapping[str, tuple[str, ...]]] = {
    "whenCanBorrow": ("MayStopSearch", "Borrow"),
    "whenCanPreempt": ("TryNextFlavor",),
    "preference": ("BorrowingOverPreemption",),
}
"""The defaults of Kueue, which need no line in the report."""
_LONGEST: Final = 240
"""Longest name that is made of two; a number may follow."""
_MOST_NAMES: Final = 1_000
"""How many namespaces a Queue can name; more are selected by their label."""


@dataclass(frozen=True, slots=True)
class _Way:
    """How a LocalQueue leads to its ClusterQueue; LocalQueues of one name may differ in it."""

    cluster_queue: str
    weight: float
    is_stopped: bool


@dataclass
class _Tree:
    """The queues while they are translated."""

    found: Migration
    own: dict[str, Quotas] = field(default_factory=dict)
    """Queue -> its own quotas."""
    parents: dict[str, str] = field(default_factory=dict)
    """Queue -> the Queue above it; "" at the top."""
    bodies: dict[str, Body | None] = field(default_factory=dict)
    """Queue -> its object; None for a cohort that ClusterQueues only name."""
    cohorts: dict[str, str] = field(default_factory=dict)
    """Name of a cohort -> its Queue."""

    def chain(self, queue: str) -> list[str]:
        """Return `queue` and the queues above it; a cycle ends the chain."""
        passed: list[str] = []
        while queue and queue not in passed:
            passed.append(queue)
            queue = self.parents.get(queue, "")
        return passed

    def sums(self) -> dict[str, Quotas]:
        """Return the quotas of each queue with those of all queues below it."""
        below: dict[str, list[Quotas]] = {name: [] for name in self.parents}
        for name in self.parents:
            for above in self.chain(name):
                below[above].append(_nominal(self.own.get(name, {})))
        return {name: total(each) for name, each in below.items()}


def _nominal(quotas: Quotas) -> Quotas:
    """Return the quotas without what may be borrowed, which members do not add up."""
    return {place: Amounts(each.nominal) for place, each in quotas.items()}


def translate_queues(
    found: Migration,
    cluster_queues: Sequence[Body],
    cohorts: Sequence[Body],
    local_queues: Sequence[Body],
    models: Mapping[str, str],
) -> None:
    """Add the Queues of all these objects to `found`.

    `models`: flavor -> GPU model of its nodes, for flavors that name one.
    """
    tree = _tree(found, cluster_queues, cohorts, models)
    sums = tree.sums()
    reclaiming = {
        tree.chain(_name(body))[-1]
        for body in cluster_queues
        if part(body, "spec", "preemption").get("reclaimWithinCohort", "Never") != "Never"
    }
    specs = {name: _spec(tree, name, sums[name], reclaiming) for name in tree.parents}
    for name, spec in specs.items():
        body = tree.bodies[name]
        if body is not None and name not in tree.cohorts.values():
            _cluster_queue(found, body, spec, reclaims=tree.chain(name)[-1] in reclaiming)
        found.add("Queue", {"name": name}, spec)
    _local_queues(found, local_queues, specs, tree)


def _tree(
    found: Migration,
    cluster_queues: Sequence[Body],
    cohorts: Sequence[Body],
    models: Mapping[str, str],
) -> _Tree:
    tree = _Tree(found)
    taken = {_name(body) for body in cluster_queues}
    above = {_name(body): str(part(body, "spec").get("parentName") or "") for body in cohorts}
    named = {_name(body): _cohort_of(body) for body in cluster_queues}
    for cohort in sorted({*above, *above.values(), *named.values()} - {""}):
        queue = free_name(cohort, f"{cohort}-cohort", taken)
        taken.add(queue)
        tree.cohorts[cohort] = queue
        tree.parents[queue] = ""
        tree.bodies[queue] = None
    for body in cohorts:
        queue = tree.cohorts[_name(body)]
        tree.bodies[queue] = body
        tree.parents[queue] = tree.cohorts.get(above[_name(body)], "")
        tree.own[queue] = quotas_of(found, body, models)
        _lose_unknown(found, body)
        if queue != _name(body):
            found.lose(body, "metadata.name", _name(body), f"a ClusterQueue has the name: {queue}")
    for body in cluster_queues:
        tree.bodies[_name(body)] = body
        tree.parents[_name(body)] = tree.cohorts.get(named[_name(body)], "")
        tree.own[_name(body)] = quotas_of(found, body, models)
    return tree


def _cohort_of(body: Body) -> str:
    spec = part(body, "spec")  # v1beta2 and v1beta1
    return str(spec.get("cohortName") or spec.get("cohort") or "")


def free_name(name: str, other: str, taken: set[str]) -> str:
    """Return `name`, or if it is taken `other`, with a number if that is taken too."""
    choices = (name, other, *(f"{other}-{number}" for number in range(2, len(taken) + 4)))
    return next(each for each in choices if each not in taken)


def _name(body: Body) -> str:
    return str(metadata_of(body).get("name", ""))


def _spec(tree: _Tree, name: str, below: Quotas, reclaiming: set[str]) -> dict[str, Any]:
    """Return parent, weight, quotas and limits of the Queue `name`."""
    body, parent = tree.bodies[name], tree.parents[name]
    spec: dict[str, Any] = {"parent": parent} if parent else {}
    if (parent or name in tree.cohorts.values()) and tree.chain(name)[-1] not in reclaiming:
        spec["reclaimable"] = False
    own = tree.own.get(name, {})
    quotas: Quotas = {}
    for place, amounts in below.items():
        # At the top nothing can be borrowed. A cohort that is only named has no limit of its own,
        # and a place that only queues below have has none either.
        borrowing = own[place].borrowing if place in own else None
        quotas[place] = Amounts(amounts.nominal, borrowing if parent else 0)
    weight = _weight(tree.found, body) if body is not None else 1
    return spec | specs_of(quotas, weight)


def _weight(found: Migration, body: Body) -> float:
    value = part(body, "spec", "fairSharing").get("weight")
    if value is None:
        return 1
    weight = _weight_in(value)
    if weight is None:
        reason = f"{UNREADABLE}: 1 is written"
        found.lose(body, "spec.fairSharing.weight", value, reason)
        return 1
    return weight


def _weight_in(value: object) -> float | None:
    if not isinstance(value, int | float | str) or isinstance(value, bool):
        return None
    try:
        billionths = nano(value)
    except QuantityError:
        return None
    weight = billionths / 10**9
    if weight < 0:
        return None
    return int(weight) if weight == int(weight) else weight


# -- ClusterQueues -------------------------------------------------------------------------------


def _cluster_queue(found: Migration, body: Body, spec: dict[str, Any], *, reclaims: bool) -> None:
    """Complete the `spec` of a ClusterQueue, and report what does not carry over."""
    given = part(body, "spec")
    _stop(found, body, spec)
    rule = _namespaces(found, body)
    if rule is not None:
        spec["namespaces"] = rule
    if given.get("queueingStrategy") == "StrictFIFO":
        reason = "gangs that fit run past one that waits; see reservations"
        found.lose(body, "spec.queueingStrategy", "StrictFIFO", reason)
    fungibility = part(given, "flavorFungibility")
    odd = {
        key: value
        for key, value in fungibility.items()
        if value is not None and value not in _FUNGIBILITY.get(key, ())
    }
    if odd:
        reason = "a gang has no flavors in turn: its pods select nodes, or prefer them"
        found.lose(body, "spec.flavorFungibility", odd, reason)
    _preemption(found, body, reclaims=reclaims)
    _lose_unknown(found, body)
    if _name(body) == names.DEFAULT_QUEUE:
        reason = "pods that name no queue go to this one here"
        found.lose(body, "metadata.name", names.DEFAULT_QUEUE, reason)


def _stop(found: Migration, body: Body, spec: dict[str, Any]) -> None:
    policy = part(body, "spec").get("stopPolicy")
    if policy in (None, "None"):
        return
    spec["state"] = "Closed"
    if policy != "Hold":
        reason = "the Queue is closed: no gang starts, and gangs that run go on"
        found.lose(body, "spec.stopPolicy", policy, reason)


def _namespaces(found: Migration, body: Body) -> dict[str, Any] | None:
    """Return the rule about namespaces; None for all, and an empty one for none."""
    given = part(body, "spec").get("namespaceSelector")
    if given is None:
        return {}
    rule = {"selector": _without_nulls(given)}
    try:
        validated(NamespaceRule, rule)
    except ValidationError:
        reason = f"{UNREADABLE}: no namespace may use the queue"
        found.lose(body, "spec.namespaceSelector", given, reason)
        return {}
    return rule if rule["selector"] else None


def _without_nulls(value: Any) -> Any:
    """Return `value` without the fields that are null, which count as missing in Kubernetes."""
    if isinstance(value, dict):
        return {name: _without_nulls(each) for name, each in value.items() if each is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value


def _preemption(found: Migration, body: Body, *, reclaims: bool) -> None:
    given = part(body, "spec", "preemption")
    reclaim = given.get("reclaimWithinCohort", "Never")
    path = "spec.preemption"
    if reclaim == "Never" and _cohort_of(body):
        reason = "every queue takes back its share here: others of the cohort do"
        if not reclaims:
            reason = "reclaimable: false is written, as no queue of the cohort takes back its quota"
        found.lose(body, f"{path}.reclaimWithinCohort", reclaim, reason)
    elif reclaim == "LowerPriority":
        reason = "shares decide between queues, and priorities only within a queue"
        found.lose(body, f"{path}.reclaimWithinCohort", reclaim, reason)
    within = given.get("withinClusterQueue", "Never")
    if within == "Never":
        reason = (
            "gangs of a higher priority preempt: preemptionPolicy: Never of their PriorityClass"
            " prevents it"
        )
        found.lose(body, f"{path}.withinClusterQueue", within, reason)
    elif within == "LowerOrNewerEqualPriority":
        reason = "gangs of equal priority do not preempt each other"
        found.lose(body, f"{path}.withinClusterQueue", within, reason)
    borrow = part(given, "borrowWithinCohort")
    if borrow.get("policy", "Never") != "Never":
        reason = "above its quota, a queue claims its fair share, whatever the priorities are"
        found.lose(body, f"{path}.borrowWithinCohort", borrow, reason)


def _lose_unknown(found: Migration, body: Body) -> None:
    for key, value in part(body, "spec").items():
        if key not in _KNOWN and value:
            found.lose(body, f"spec.{key}", value, _REASONS.get(key, "the field is not known"))


# -- LocalQueues ---------------------------------------------------------------------------------


def _local_queues(
    found: Migration, bodies: Sequence[Body], specs: Mapping[str, dict[str, Any]], tree: _Tree
) -> None:
    ways: dict[str, dict[_Way, list[Body]]] = {}
    for body in bodies:
        way = _way(found, body)
        if way.cluster_queue not in tree.bodies or way.cluster_queue in tree.cohorts.values():
            reason = "there is no such ClusterQueue among the objects"
            found.lose(body, "spec.clusterQueue", way.cluster_queue, reason)
            continue
        ways.setdefault(_name(body), {}).setdefault(way, []).append(body)
    queues = _named(found, ways, set(specs))
    siblings = Counter(way.cluster_queue for _, way, _ in queues)
    for name, way, group in queues:
        above = specs[way.cluster_queue]
        spec = _below(way, above, is_alone=siblings[way.cluster_queue] == 1)
        given = part(tree.bodies[way.cluster_queue], "spec", "preemption")
        if given.get("withinClusterQueue", "Never") == "Never":
            spec["reclaimable"] = False
        spec["namespaces"] = _listed(sorted({_namespace(body) for body in group}))
        found.add("Queue", {"name": name}, spec)
    for cluster_queue, number in sorted(siblings.items()):
        if number > 1:
            body = tree.bodies[cluster_queue] or {}
            reason = "they divide its quota by weight; give one a quota if gangs need it always"
            found.lose(body, f"({number} LocalQueues)", "…", reason)


def _way(found: Migration, body: Body) -> _Way:
    spec = part(body, "spec")
    stopped: dict[str, Any] = {}
    _stop(found, body, stopped)
    for key, value in spec.items():
        if key not in {"clusterQueue", "stopPolicy", "fairSharing"} and value:
            found.lose(body, f"spec.{key}", value, "the field is not known")
    return _Way(str(spec.get("clusterQueue") or ""), _weight(found, body), bool(stopped))


def _named(
    found: Migration, ways: Mapping[str, Mapping[_Way, Sequence[Body]]], taken: set[str]
) -> list[tuple[str, _Way, Sequence[Body]]]:
    """Return name, way and LocalQueues of each Queue to be made for LocalQueues.

    LocalQueues with one name share a Queue if they are alike: their workloads keep the label.
    """
    queues: list[tuple[str, _Way, Sequence[Body]]] = []
    for name, groups in ways.items():
        (way, group), *others = groups.items()
        if not others and name == way.cluster_queue and way == _Way(name, 1, is_stopped=False):
            continue  # the label names the ClusterQueue's own Queue
        if not others and name not in taken and name != names.DEFAULT_QUEUE:
            taken.add(name)
            queues.append((name, way, group))
            continue
        for way, group in groups.items():
            for body in group:
                own = f"{_namespace(body)}-{name}"[:_LONGEST].rstrip("-.")
                queue = free_name(own, own, taken)
                taken.add(queue)
                queues.append((queue, way, [body]))
                reason = f"the name is taken here: label workloads or the namespace with {queue}"
                found.lose(body, "metadata.name", name, reason)
    return queues


def _below(way: _Way, above: Mapping[str, Any], *, is_alone: bool) -> dict[str, Any]:
    """Return the spec of a LocalQueue's Queue; alone it has all quotas of its ClusterQueue."""
    spec: dict[str, Any] = {"parent": way.cluster_queue}
    if way.is_stopped:
        spec["state"] = "Closed"
    for key in ("resources", "models"):
        if key in above:
            spec[key] = {
                name: {"quota": rule["quota"] if is_alone else 0, "overQuotaWeight": way.weight}
                for name, rule in above[key].items()
            }
    return spec


def _namespace(body: Body) -> str:
    return str(metadata_of(body).get("namespace", "default"))


def _listed(namespaces: Sequence[str]) -> dict[str, Any]:
    if len(namespaces) <= _MOST_NAMES:
        return {"names": list(namespaces)}
    one_of = {"key": names.NAMESPACE_NAME_LABEL, "operator": "In", "values": list(namespaces)}
    return {"selector": {"matchExpressions": [one_of]}}
