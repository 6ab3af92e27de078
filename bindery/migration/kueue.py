"""Kueue's queues, flavors, topologies and priorities as objects of Bindery.

Field names and meanings: apis/kueue of kubernetes-sigs/kueue, v1beta1 and v1beta2, 2026-08.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from bindery.api import names
from bindery.grouper.marks.foreign import UNREADABLE, Body, items, metadata_of, part
from bindery.kube.objects.topology import MOST_LEVELS
from bindery.migration.kueuequeues import translate_queues
from bindery.migration.report import Migration, by_name

GROUP: Final = "kueue.x-k8s.io"
_MOST_LABEL: Final = 317
"""Longest name of a node label in a Topology."""
_PREEMPTIBLE_BELOW: Final = 100
"""Gangs with this priority or a higher one are non-preemptible here."""
_LEAST: Final = -(2**31)
"""The lowest priority in Kubernetes."""
_CHECKS: Final[Mapping[str, str]] = {
    "kueue.x-k8s.io/provisioning-request": (
        "the scheduler plugin provisioning asks for nodes, for gangs with its annotation"
    ),
    "kueue.x-k8s.io/multikueue": "there is one cluster",
}
"""The controllers of AdmissionChecks for which there is an answer."""


def migrate(bodies: Sequence[Body]) -> Migration:
    """Return what the objects `bodies` of Kueue are here."""
    found = Migration()
    flavors = by_name(bodies, "ResourceFlavor", GROUP)
    for body in by_name(bodies, "Topology", GROUP):
        _topology(found, body)
    _priority_classes(found, by_name(bodies, "WorkloadPriorityClass", GROUP))
    translate_queues(
        found,
        by_name(bodies, "ClusterQueue", GROUP),
        by_name(bodies, "Cohort", GROUP),
        by_name(bodies, "LocalQueue", GROUP),
        {_name(body): model for body in flavors if (model := _model(body))},
    )
    for body in flavors:
        _lose_of_flavor(found, body)
    for body in by_name(bodies, "AdmissionCheck", GROUP):
        controller = str(part(body, "spec").get("controllerName"))
        reason = _CHECKS.get(controller, "there are no admission checks: gate the pods instead")
        found.lose(body, "spec.controllerName", controller, reason)
    found.sort_queues()
    return found


def _name(body: Body) -> str:
    return str(metadata_of(body).get("name", ""))


def _model(flavor: Body) -> str:
    """Return the GPU model that the nodes of a flavor are labelled with; "" if none."""
    return str(part(flavor, "spec", "nodeLabels").get(names.GPU_MODEL_LABEL) or "")


def _lose_of_flavor(found: Migration, body: Body) -> None:
    """Report what Kueue puts into the pods that it admits to a flavor."""
    spec = part(body, "spec")
    for key, reason in (
        ("nodeLabels", "nothing writes them into pods here: set nodeSelector in the workloads"),
        ("tolerations", "nothing writes them into pods here: set them in the workloads"),
        ("nodeTaints", "the taints of the nodes themselves count"),
        ("topologyName", "gangs name a level by its node label; the Topology is translated"),
    ):
        if spec.get(key):
            found.lose(body, f"spec.{key}", spec[key], reason)
    for key in spec.keys() - {"nodeLabels", "tolerations", "nodeTaints", "topologyName"}:
        found.lose(body, f"spec.{key}", spec[key], "the field is not known")


def _topology(found: Migration, body: Body) -> None:
    levels: list[str] = []
    for index, level in enumerate(items(part(body, "spec"), "levels")):
        label = level.get("nodeLabel")
        is_usable = isinstance(label, str) and 0 < len(label) <= _MOST_LABEL
        if not is_usable or label in levels or len(levels) == MOST_LEVELS:
            found.lose(body, f"spec.levels[{index}].nodeLabel", label, UNREADABLE)
        else:
            levels.append(str(label))
    if not levels:
        found.lose(body, "spec.levels", "[]", "a Topology without levels is left out")
        return
    spec = {"levels": [{"nodeLabel": label} for label in levels]}
    found.add("Topology", {"name": _name(body)}, spec)


def _priority_classes(found: Migration, bodies: Sequence[Body]) -> None:
    """Add a PriorityClass for each class, in the same order and below the non-preemptible ones."""
    values: dict[str, int] = {}
    for body in bodies:
        value = body.get("value")
        if isinstance(value, int) and not isinstance(value, bool) and value >= _LEAST:
            values[_name(body)] = value
        else:
            found.lose(body, "value", value, f"{UNREADABLE}: the class is left out")
    below, ours = _PREEMPTIBLE_BELOW, {}
    for value in sorted(set(values.values()), reverse=True):
        below = ours[value] = min(value, below - 1)
    for body in bodies:
        name = _name(body)
        if name not in values:
            continue
        if name.startswith("system-"):
            found.lose(
                body, "metadata.name", name, "Kubernetes keeps the prefix system- for itself"
            )
            continue
        value = ours[values[name]]
        if value != values[name]:
            reason = f"{value} is written: gangs with 100 or more are non-preemptible"
            found.lose(body, "value", values[name], reason)
        made: dict[str, Any] = {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
        }
        if body.get("description"):
            made["description"] = str(body["description"])
        found.objects.append(made)
