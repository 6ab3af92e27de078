"""Volcano's Queues, PodGroups and HyperNodes as objects of Bindery.

Field names and meanings: pkg/apis of volcano-sh/apis, and the plugins proportion, capacity and drf
of Volcano's scheduler, 2026-08.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from bindery.api import names
from bindery.api.quantity import QuantityError, parse
from bindery.grouper.marks import volcano
from bindery.grouper.marks.foreign import (
    UNREADABLE,
    Body,
    annotations_of,
    count,
    items,
    metadata_of,
    part,
)
from bindery.migration.report import Migration, by_name, is_owned, kept_metadata

TOPOLOGY_GROUP: Final = "topology.volcano.sh"
SHARD_GROUP: Final = "shard.volcano.sh"
ROOT: Final = "root"
"""The queue above all others; here there is no object for it."""
HIERARCHY: Final = "volcano.sh/hierarchy"
WEIGHTS: Final = "volcano.sh/hierarchy-weights"
_UNREADABLE_WEIGHT: Final = f"{UNREADABLE}: 1 is written"
_LEAST: Final = ("cpu", "memory", "gpu")
"""Resources that every queue gets a rule for: Volcano divides all of them by weight."""


def migrate(bodies: Sequence[Body], *, with_owned: bool = False) -> Migration:
    """Return what the objects `bodies` of Volcano are here.

    `with_owned`: also PodGroups that a controller has made for a workload.
    """
    found = Migration()
    hyper_nodes = by_name(bodies, "HyperNode", TOPOLOGY_GROUP)
    for body in hyper_nodes:
        _hyper_node(found, body)
    _queues(found, by_name(bodies, "Queue", volcano.GROUP))
    tiers = {
        str(spec["tierName"]): int(count(spec.get("tier")) or 0)
        for spec in (part(body, "spec") for body in hyper_nodes)
        if spec.get("tierName")
    }
    owned = 0
    for body in by_name(bodies, "PodGroup", volcano.GROUP):
        if is_owned(body) and not with_owned:
            owned += 1
        else:
            _pod_group(found, body, tiers)
    if owned:
        text = {"kind": "PodGroup", "metadata": {"name": f"({owned} with an owner)"}}
        reason = "controllers made them for workloads; Bindery's grouper makes its own"
        found.lose(text, "metadata.ownerReferences", "…", reason)
    for body in by_name(bodies, "NodeShard", SHARD_GROUP):
        reason = "nodes are divided by the label scheduling.bindery.dev/node-pool, one release each"
        found.lose(body, "spec.nodesDesired", part(body, "spec").get("nodesDesired", "…"), reason)
    found.sort_queues()
    return found


# -- queues --------------------------------------------------------------------------------------


def _queues(found: Migration, bodies: Sequence[Body]) -> None:
    given = [body for body in bodies if metadata_of(body).get("name") != ROOT]
    has_priorities = any(part(body, "spec").get("priority") for body in given)
    parents, groups = _hierarchy(found, given)
    existing = {str(metadata_of(body).get("name")) for body in given}
    for name, (parent, weight) in groups.items():
        if name not in existing:
            spec: dict[str, Any] = {"parent": parent} if parent else {}
            spec["resources"] = {each: _weighted(weight) for each in _LEAST}
            found.add("Queue", {"name": name}, spec)
    for body in given:
        _queue(found, body, parents, has_priorities=has_priorities)


def _hierarchy(
    found: Migration, bodies: Sequence[Body]
) -> tuple[dict[str, tuple[str, float]], dict[str, tuple[str, float]]]:
    """Return the tree that the annotations of the plugin drf describe.

    Returns:
        The parent, "" for the root, and the weight of each annotated queue; and the same of the
        groups between the root and the queues.
    """
    parents: dict[str, tuple[str, float]] = {}
    groups: dict[str, tuple[str, float]] = {}
    for body in bodies:
        annotations = annotations_of(body)
        path = [step for step in annotations.get(HIERARCHY, "").split("/") if step]
        if len(path) < 2 or path[0] != ROOT:
            continue
        weights = _hierarchy_weights(found, body, len(path))
        for depth in range(1, len(path) - 1):
            above = path[depth - 1] if depth > 1 else ""
            groups.setdefault(path[depth], (above, weights[depth]))
        above = path[-2] if len(path) > 2 else ""
        parents[str(metadata_of(body).get("name"))] = (above, weights[len(path) - 1])
    return parents, groups


def _hierarchy_weights(found: Migration, body: Body, length: int) -> list[float]:
    """Return the weights along the path of a queue; 1 where the annotation has none."""
    text = str(annotations_of(body).get(WEIGHTS, ""))
    weights = [_weight_in(each) for each in text.split("/")] if text else []
    if None in weights:
        found.lose(body, f"metadata.annotations[{WEIGHTS}]", text, _UNREADABLE_WEIGHT)
    known = [1.0 if each is None else each for each in weights]
    return known + [1.0] * (length - len(known))


def _weight_in(text: str) -> float | None:
    try:
        weight = float(text)
    except ValueError:
        return None
    return weight if weight >= 0 and math.isfinite(weight) else None


def _own_weight(found: Migration, body: Body, given: Body) -> float:
    weight = count(given.get("weight"))
    if weight is None and given.get("weight") is not None:
        found.lose(body, "spec.weight", given["weight"], _UNREADABLE_WEIGHT)
    return float(weight or 1)  # unset is 1 there, and 0 is unset


def _queue(
    found: Migration,
    body: Body,
    parents: Mapping[str, tuple[str, float]],
    *,
    has_priorities: bool,
) -> None:
    given, name = part(body, "spec"), str(metadata_of(body).get("name"))
    weight = _own_weight(found, body, given)
    parent = str(given.get("parent") or "")
    if name in parents and parent in ("", ROOT):
        parent, weight = parents[name]
    spec: dict[str, Any] = {"parent": parent} if parent not in ("", ROOT) else {}
    if has_priorities:
        # Unset is 0 there and 100 here, so all are written as soon as one is set.
        priority = count(given.get("priority"))
        if priority is None and given.get("priority") is not None:
            found.lose(body, "spec.priority", given["priority"], UNREADABLE)
        spec["priority"] = priority or 0
    if part(body, "status").get("state") in ("Closed", "Closing"):
        spec["state"] = "Closed"
    if given.get("reclaimable") is False:
        spec["reclaimable"] = False
    spec["resources"] = _resources(found, body, weight)
    _lose_of_queue(found, body, given)
    found.add("Queue", kept_metadata(body), spec)


def _resources(found: Migration, body: Body, weight: float) -> dict[str, dict[str, Any]]:
    rules = {name: _weighted(weight) for name in _LEAST}
    spec = part(body, "spec")
    guarantee = part(spec, "guarantee", "resource")
    for given, path, key in (
        (guarantee, "spec.guarantee.resource", "quota"),
        (part(spec, "deserved"), "spec.deserved", "quota"),
        (part(spec, "capability"), "spec.capability", "limit"),
    ):
        for name, amount in given.items():
            if name == "pods":
                found.lose(body, f"{path}.pods", amount, "queues do not count pods")
                continue
            ours = "gpu" if name == names.GPU_RESOURCE else str(name)
            try:
                units = parse(amount, names.GPU_RESOURCE if ours == "gpu" else ours)
            except QuantityError:
                found.lose(body, f"{path}.{name}", amount, UNREADABLE)
                continue
            rule = rules.setdefault(ours, _weighted(weight))
            if key != "quota" or units >= _units(rule.get(key, 0), ours):
                rule[key] = amount
    if guarantee:
        reason = "it is a quota here: others may borrow it while it is idle, and give it back"
        found.lose(body, "spec.guarantee.resource", guarantee, reason)
    return rules


def _units(amount: object, resource: str) -> int:
    name = names.GPU_RESOURCE if resource == "gpu" else resource
    return parse(amount if isinstance(amount, int | str) else 0, name)


def _weighted(weight: float) -> dict[str, Any]:
    """Return a rule that gives a part of everything by `weight` alone."""
    return {"quota": 0, "overQuotaWeight": int(weight) if weight == int(weight) else weight}


def _lose_of_queue(found: Migration, body: Body, given: Body) -> None:
    for key, harmless, reason in (
        ("affinity", None, "give the queue's nodes a node pool, or let the pods select nodes"),
        ("extendClusters", None, "there is one cluster"),
        ("type", "", "queues have no types"),
        ("dequeueStrategy", "traverse", "gangs that fit run past one that waits; see backfill"),
    ):
        value = given.get(key)
        if value and value != harmless:
            found.lose(body, f"spec.{key}", value, reason)


# -- the others ----------------------------------------------------------------------------------


def _hyper_node(found: Migration, body: Body) -> None:
    spec = part(body, "spec")
    members: list[dict[str, Any]] = []
    for index, member in enumerate(items(spec, "members")):
        selector = part(member, "selector")
        made: dict[str, Any] = {"type": str(member.get("type") or "Node")}
        exact, regex = part(selector, "exactMatch"), part(selector, "regexMatch")
        if exact:
            made["name"] = str(exact.get("name", ""))
        elif regex:
            made["regex"] = str(regex.get("pattern", ""))
        elif selector.get("labelMatch"):
            made["selector"] = part(selector, "labelMatch")
        else:
            found.lose(body, f"spec.members[{index}].selector", selector, UNREADABLE)
            continue
        members.append(made)
    if spec.get("tierName"):
        reason = "tiers have numbers; what named it has the number now"
        found.lose(body, "spec.tierName", spec["tierName"], reason)
    tier = count(spec.get("tier")) or 0
    if not tier:
        found.lose(body, "spec.tier", spec.get("tier", "unset"), "tiers begin with 1: made 1")
    found.add("HyperNode", kept_metadata(body), {"tier": max(1, tier), "members": members})


def _pod_group(found: Migration, body: Body, tiers: volcano.Tiers) -> None:
    translation = volcano.spec_of(body, tiers=tiers)
    spec, name = translation.spec, str(metadata_of(body).get("name", ""))
    spec["members"] = [
        {"annotation": {"key": key, "value": name}} for key in volcano.GROUP_NAME_ANNOTATIONS
    ]
    found.take(body, translation.losses)
    found.add("PodGroup", kept_metadata(body), spec)
