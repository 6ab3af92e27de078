"""Volcano's PodGroup (`scheduling.volcano.sh/v1beta1`) as a spec of ours: pure.

Field names and meanings: pkg/apis/scheduling/v1beta1 of volcano-sh/apis, and Volcano's scheduler,
2026-08.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from bindery.api import names
from bindery.grouper.marks.foreign import (
    UNREADABLE,
    Body,
    Translation,
    annotations_of,
    count,
    items,
    labels_of,
    part,
)

GROUP: Final = "scheduling.volcano.sh"
GROUP_NAME_ANNOTATIONS: Final = names.MARK_ANNOTATIONS[1:]
"""On a pod: the name of its PodGroup; Volcano writes the first."""
TASK_LABEL: Final = "volcano.sh/task-spec"
"""On a pod of a Volcano Job: the name of its task."""
PREEMPTABLE_KEY: Final = "volcano.sh/preemptable"
"""Annotation or label of a pod or a PodGroup."""

Tiers = Mapping[str, int]
"""The name of a tier of HyperNodes -> its number."""


def spec_of(
    group: Body,
    pods: Sequence[Mapping[str, str]] = (),
    tiers: Tiers = {},  # noqa: B006  # never changed
) -> Translation:
    """Return the spec of our PodGroup for Volcano's PodGroup `group`, without its members.

    Args:
        group: the object.
        pods: the labels of its pods, which name the sub-groups of a policy with matchLabelKeys.
        tiers: the names of HyperNodes' tiers.
    """
    found = Translation()
    spec, made = part(group, "spec"), found.spec
    minimum = spec.get("minMember")
    if minimum is not None and count(minimum) is None:
        found.lose("spec.minMember", minimum, UNREADABLE)
    # Unset is 0: every pod is independent. The default of our field is 1.
    made["minMember"] = count(minimum) or 0
    for key in ("queue", "priorityClassName"):
        if spec.get(key):
            made[key] = str(spec[key])
    preemptable = annotations_of(group).get(PREEMPTABLE_KEY, labels_of(group).get(PREEMPTABLE_KEY))
    if preemptable is not None:
        made["preemptibility"] = "Preemptible" if preemptable == "true" else "NonPreemptible"
    topology = _topology(found, part(spec, "networkTopology"), "spec.networkTopology", tiers)
    if topology:
        made["topology"] = topology
    _copy_sub_groups(found, spec, pods, tiers)
    if spec.get("minResources"):
        reason = "pods are planned by their own requests, whole or not at all"
        found.lose("spec.minResources", spec["minResources"], reason)
    return found


def _copy_sub_groups(
    found: Translation, spec: Body, pods: Sequence[Mapping[str, str]], tiers: Tiers
) -> None:
    policies = items(spec, "subGroupPolicy")
    tasks = part(spec, "minTaskMember")
    if policies:
        groups = [
            made
            for index, policy in enumerate(policies)
            for made in _policy(found, policy, index, pods, tiers)
        ]
        if tasks:
            reason = "spec.subGroupPolicy is there too; Volcano advises against both"
            found.lose("spec.minTaskMember", tasks, reason)
    else:
        groups = _tasks(found, tasks)
    if groups:
        found.spec["subGroups"] = groups


def _tasks(found: Translation, tasks: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a leaf for each task of a Volcano Job."""
    minima = {name: count(value) for name, value in tasks.items()}
    for name, value in tasks.items():
        if minima[name] is None:
            found.lose(f"spec.minTaskMember.{name}", value, UNREADABLE)
    total = sum(minimum or 0 for minimum in minima.values())
    if found.spec["minMember"] < total:
        reason = "Volcano ignores it too: minMember is below the sum of the tasks' minima"
        found.lose("spec.minTaskMember", tasks, reason)
        return []
    return [
        {"name": name, "minMember": minimum, "podLabels": {TASK_LABEL: name}}
        for name, minimum in minima.items()
        if minimum is not None
    ]


def _policy(
    found: Translation,
    policy: Body,
    index: int,
    pods: Sequence[Mapping[str, str]],
    tiers: Tiers,
) -> list[dict[str, Any]]:
    """Return a parent, and a leaf for each of the label values that distinguish its sub-groups."""
    path = f"spec.subGroupPolicy[{index}]"
    name = str(policy.get("name") or f"policy-{index}")
    selector = part(policy, "labelSelector")
    labels = {key: str(value) for key, value in part(selector, "matchLabels").items()}
    if selector.get("matchExpressions"):
        reason = "a sub-group tells its pods by labels with one value each"
        found.lose(f"{path}.labelSelector.matchExpressions", "…", reason)
        return []
    size = count(policy.get("subGroupSize")) or 1
    topology = _topology(found, part(policy, "networkTopology"), f"{path}.networkTopology", tiers)
    shape: dict[str, Any] = {"topology": topology} if topology else {}
    named = policy.get("matchLabelKeys")
    keys = [str(key) for key in named] if isinstance(named, list) else []
    if not keys:
        return [{"name": name, "minMember": size, "podLabels": labels, **shape}]
    values = sorted({tuple(pod.get(key, "") for key in keys) for pod in _matching(pods, labels)})
    if not values:
        reason = "its sub-groups are named by labels of pods, and there are none yet"
        found.lose(f"{path}.matchLabelKeys", keys, reason)
        return []
    parent = {"name": name, "minSubGroup": min(count(policy.get("minSubGroups")) or 0, len(values))}
    leaves = [
        {
            "name": f"{name}-{'-'.join(each)}",
            "parent": name,
            "minMember": size,
            "podLabels": {**labels, **dict(zip(keys, each, strict=True))},
            **shape,
        }
        for each in values
    ]
    return [parent, *leaves]


def _matching(
    pods: Sequence[Mapping[str, str]], labels: Mapping[str, str]
) -> list[Mapping[str, str]]:
    return [pod for pod in pods if labels.items() <= pod.items()]


def _topology(found: Translation, given: Body, path: str, tiers: Tiers) -> dict[str, Any]:
    if not given:
        return {}
    tier = count(given.get("highestTierAllowed"))
    name = given.get("highestTierName")
    if tier is None and name:
        tier = tiers.get(str(name))
        if tier is None:
            found.lose(f"{path}.highestTierName", name, "no HyperNode names a tier so")
            return {}
    if tier is None:
        found.lose(path, given, "it names no tier; name one, or a node label as required level")
        return {}
    made: dict[str, Any] = {"hyperNodeTier": tier}
    if given.get("mode") == "soft":
        made["mode"] = "soft"
    return made
