"""KAI-Scheduler's PodGroup (`scheduling.run.ai/v2alpha2`) as a spec of ours: pure.

Field names and meanings: pkg/apis/scheduling/v2alpha2 and docs of NVIDIA/KAI-Scheduler, v0.17.
"""

from collections.abc import Mapping
from typing import Any, Final

from bindery.api import names
from bindery.grouper.marks.foreign import (
    UNREADABLE,
    Body,
    Translation,
    annotations_of,
    count,
    items,
    part,
    seconds,
)

GROUP: Final = "scheduling.run.ai"
POD_GROUP_ANNOTATION: Final = names.MARK_ANNOTATIONS[0]
"""On a pod: the name of its PodGroup."""
SUB_GROUP_LABEL: Final = "kai.scheduler/subgroup-name"
"""On a pod: the leaf of the PodGroup's tree that it belongs to."""
QUEUE_LABEL: Final = "kai.scheduler/queue"
NODE_POOL_LABEL: Final = "kai.scheduler/node-pool"
DELAY_ANNOTATION: Final = "kai.scheduler/preemption-delay"
STALENESS_ANNOTATION: Final = "kai.scheduler/staleness-grace-period"

PREEMPTIBILITY: Final[Mapping[str, str]] = {
    "preemptible": "Preemptible",
    "non-preemptible": "NonPreemptible",
}

Levels = Mapping[str, Mapping[str, str]]
"""Topology name -> alias of a level -> its node label."""


def spec_of(group: Body, levels: Levels = {}) -> Translation:  # noqa: B006  # never changed
    """Return the spec of our PodGroup for KAI's PodGroup `group`, without its members.

    Args:
        group: the object.
        levels: aliases of topology levels, which our Topology does not have.
    """
    found = Translation()
    spec, made = part(group, "spec"), found.spec
    for key in ("minMember", "minSubGroup"):
        _copy_count(found, made, key, spec.get(key), f"spec.{key}")
    for key in ("queue", "priorityClassName"):
        if spec.get(key):
            made[key] = str(spec[key])
    preemptibility = str(spec.get("preemptibility") or "")
    if preemptibility in PREEMPTIBILITY:
        made["preemptibility"] = PREEMPTIBILITY[preemptibility]
    elif preemptibility:
        found.lose("spec.preemptibility", preemptibility, UNREADABLE)
    topology = _topology(found, part(spec, "topologyConstraint"), "spec.topologyConstraint", levels)
    if topology:
        made["topology"] = topology
    sub_groups = [
        _sub_group(found, each, f"spec.subGroups[{index}]", levels)
        for index, each in enumerate(items(spec, "subGroups"))
    ]
    if sub_groups:
        made["subGroups"] = sub_groups
    _copy_times(found, group, spec)
    _lose_the_rest(found, spec)
    return found


def _sub_group(found: Translation, given: Body, path: str, levels: Levels) -> dict[str, Any]:
    name = str(given.get("name", ""))
    made: dict[str, Any] = {"name": name}
    if given.get("parent"):
        made["parent"] = str(given["parent"])
    for key in ("minMember", "minSubGroup"):
        _copy_count(found, made, key, given.get(key), f"{path}.{key}")
    topology = _topology(
        found, part(given, "topologyConstraint"), f"{path}.topologyConstraint", levels
    )
    if topology:
        made["topology"] = topology
    if "minSubGroup" not in made:
        made["podLabels"] = {SUB_GROUP_LABEL: name}
    return made


def _copy_count(
    found: Translation, made: dict[str, Any], key: str, value: object, path: str
) -> None:
    if value is None:
        return
    number = count(value)
    if number is None:
        found.lose(path, value, UNREADABLE)
    else:
        made[key] = number


def _copy_times(found: Translation, group: Body, spec: Body) -> None:
    """Copy the delay of preemption and the grace period of stale gangs, of field or annotation."""
    annotations = annotations_of(group)
    for ours, theirs, annotation in (
        ("preemptionDelaySeconds", "preemptionDelay", DELAY_ANNOTATION),
        ("stalenessGracePeriodSeconds", "stalenessGracePeriod", STALENESS_ANNOTATION),
    ):
        given, path = spec.get(theirs), f"spec.{theirs}"
        if given is None:
            given, path = annotations.get(annotation), f"metadata.annotations[{annotation}]"
        if given is None:
            continue
        duration = seconds(given)
        if duration is None:
            found.lose(path, given, UNREADABLE)
        else:
            found.spec[ours] = duration


def _topology(found: Translation, given: Body, path: str, levels: Levels) -> dict[str, Any]:
    """Return our topology constraint; the levels are node labels, with aliases put in."""
    made: dict[str, Any] = {}
    name = given.get("topology")
    aliases = levels.get(str(name), {})
    for ours, theirs in (
        ("required", "requiredTopologyLevel"),
        ("preferred", "preferredTopologyLevel"),
    ):
        level = given.get(theirs)
        if level:
            made[ours] = aliases.get(str(level), str(level))
    if not made:
        if name:
            found.lose(f"{path}.topology", name, "it has no level, so it constrains nothing")
        return {}
    return {"name": str(name), **made} if name else made


def _lose_the_rest(found: Translation, spec: Body) -> None:
    for key, harmless, reason in (
        ("markUnschedulable", True, "pods always say why they wait"),
        ("schedulingBackoff", -1, "a gang that waits is tried in every cycle"),
        ("parallelism", 0, "the owner of the pods decides how many there are"),
        ("completions", 0, "the owner of the pods decides when it is complete"),
        ("backoffLimit", 0, "the owner of the pods counts their failures"),
    ):
        value = spec.get(key)
        if value is not None and value != harmless:
            found.lose(f"spec.{key}", value, reason)
