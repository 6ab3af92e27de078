"""KAI-Scheduler's Queues, PodGroups, Topologies and SchedulingShards as objects of Bindery.

Field names and meanings: pkg/apis of NVIDIA/KAI-Scheduler, v0.17, and its docs/queues.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from bindery.api import names
from bindery.grouper.marks import kai
from bindery.grouper.marks.foreign import UNREADABLE, Body, items, metadata_of, part, seconds
from bindery.migration.kaishards import configuration_of, pool_of
from bindery.migration.report import Migration, by_name, is_owned, kept_metadata

KAI_GROUP: Final = "kai.scheduler"
DEFAULT_QUEUE: Final = "default-queue"
"""The queue that KAI gives pods which name none."""
_RESOURCES: Final[Mapping[str, str]] = {"gpu": "", "cpu": "m", "memory": "M"}
"""Resource -> the suffix of KAI's unit: devices, thousandths of a core, 10^6 bytes."""
_UNLIMITED: Final = -1


def migrate(bodies: Sequence[Body], *, with_owned: bool = False) -> Migration:
    """Return what the objects `bodies` of KAI-Scheduler are here.

    `with_owned`: also PodGroups that KAI's pod grouper has made for a workload.
    """
    found = Migration()
    topologies = by_name(bodies, "Topology", KAI_GROUP)
    for body in topologies:
        _topology(found, body)
    for body in by_name(bodies, "Queue", kai.GROUP):
        _queue(found, body)
    levels = {str(metadata_of(body).get("name")): _aliases(body) for body in topologies}
    owned = 0
    for body in by_name(bodies, "PodGroup", kai.GROUP):
        if is_owned(body) and not with_owned:
            owned += 1
        else:
            _pod_group(found, body, levels)
    if owned:
        text = {"kind": "PodGroup", "metadata": {"name": f"({owned} with an owner)"}}
        reason = "KAI's pod grouper made them for workloads; Bindery's grouper makes its own"
        found.lose(text, "metadata.ownerReferences", "…", reason)
    for body in by_name(bodies, "SchedulingShard", KAI_GROUP):
        found.configurations[pool_of(body)] = configuration_of(found, body)
    found.sort_queues()
    return found


def _topology(found: Migration, body: Body) -> None:
    levels = items(part(body, "spec"), "levels")
    found.add(
        "Topology",
        kept_metadata(body),
        {"levels": [{"nodeLabel": str(level.get("nodeLabel", ""))} for level in levels]},
    )


def _aliases(body: Body) -> dict[str, str]:
    levels = items(part(body, "spec"), "levels")
    return {
        str(level["alias"]): str(level.get("nodeLabel", ""))
        for level in levels
        if level.get("alias")
    }


def _queue(found: Migration, body: Body) -> None:
    given = part(body, "spec")
    spec: dict[str, Any] = {}
    if given.get("parentQueue"):
        spec["parent"] = str(given["parentQueue"])
    priority = given.get("priority")
    if isinstance(priority, int) and not isinstance(priority, bool):
        spec["priority"] = priority
    elif priority is not None:
        found.lose(body, "spec.priority", priority, UNREADABLE)
    for ours, theirs in (
        ("preemptMinRuntimeSeconds", "preemptMinRuntime"),
        ("reclaimMinRuntimeSeconds", "reclaimMinRuntime"),
    ):
        if given.get(theirs) is not None:
            duration = seconds(given[theirs])
            if duration is None:
                found.lose(body, f"spec.{theirs}", given[theirs], UNREADABLE)
            else:
                spec[ours] = duration
    resources = part(given, "resources")
    spec["resources"] = {
        name: _rule(found, body, name, part(resources, name)) for name in _RESOURCES
    }
    if given.get("displayName"):
        reason = "a Queue is shown by its name"
        found.lose(body, "spec.displayName", given["displayName"], reason)
    if metadata_of(body).get("name") == DEFAULT_QUEUE:
        reason = (
            f"pods that name no queue go to `{names.DEFAULT_QUEUE}` here: rename it, or label them"
        )
        found.lose(body, "metadata.name", DEFAULT_QUEUE, reason)
    found.add("Queue", kept_metadata(body, kai.NODE_POOL_LABEL, names.NODE_POOL_LABEL), spec)


def _rule(found: Migration, body: Body, name: str, given: Body) -> dict[str, Any]:
    """Return quota, weight and limit; KAI's defaults are 0 for all three, so all are written."""
    path = f"spec.resources.{name}"
    rule: dict[str, Any] = {}
    for key in ("quota", "overQuotaWeight", "limit"):
        value = given.get(key, 0)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not math.isfinite(value):
            found.lose(body, f"{path}.{key}", value, UNREADABLE)
            value = 0
        rule[key] = value if key == "overQuotaWeight" else _amount(value, _RESOURCES[name])
    if not rule["limit"]:
        reason = "unset or 0, it allows nothing, in KAI too: written as 0; -1 is unlimited"
        found.lose(body, f"{path}.limit", given.get("limit", "unset"), reason)
    return rule


def _amount(value: float, suffix: str) -> int | str:
    """Return an amount in KAI's unit as a quantity."""
    if value == _UNLIMITED:
        return _UNLIMITED
    if not value:
        return 0
    if suffix == "m" and value % 1000 == 0:
        return int(value) // 1000
    if value == int(value):
        return f"{int(value)}{suffix}" if suffix else int(value)
    return f"{value}{suffix}"


def _pod_group(found: Migration, body: Body, levels: kai.Levels) -> None:
    translation = kai.spec_of(body, levels)
    spec = translation.spec
    # The queue of a PodGroup that names none stands in a label, as its pod grouper writes it.
    queue = (metadata_of(body).get("labels") or {}).get(kai.QUEUE_LABEL)
    if queue and "queue" not in spec:
        spec["queue"] = str(queue)
    name = str(metadata_of(body).get("name", ""))
    mark = {"key": kai.POD_GROUP_ANNOTATION, "value": name}
    spec["members"] = [{"annotation": mark}]
    found.take(body, translation.losses)
    found.add("PodGroup", kept_metadata(body, kai.NODE_POOL_LABEL, names.NODE_POOL_LABEL), spec)
