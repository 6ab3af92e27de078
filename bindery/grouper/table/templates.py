"""Pod templates in owners: their labels and annotations, and what decides where their pods fit."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from bindery.grouper.table.facts import Reference, mapping, mappings
from bindery.grouper.table.walk import Link
from bindery.kube.objects.podgroups import PodTemplate, TemplateMeta

_SPEC: Final = frozenset(
    {
        "affinity",
        "hostNetwork",
        "nodeName",
        "nodeSelector",
        "overhead",
        "priorityClassName",
        "preemptionPolicy",
        "resourceClaims",
        "resources",
        "runtimeClassName",
        "schedulerName",
        "schedulingGates",
        "tolerations",
        "topologySpreadConstraints",
    }
)
"""Fields of a PodSpec that decide about nodes."""
_CONTAINERS: Final = ("initContainers", "containers")
_CONTAINER: Final = ("name", "resources", "restartPolicy")
_VOLUMES: Final = ("name", "persistentVolumeClaim", "ephemeral", "csi")


def metadata_links(
    at: Reference, template: Mapping[str, Any] | None, more: Iterable[object]
) -> tuple[Link, ...]:
    """Return links with the metadata of `template`, and with `more` metadata above it.

    `at`: the object that has them, so the source of their values.
    """
    found = [mapping((template or {}).get("metadata")), *map(mapping, more)]
    read = [(mapping(each.get("labels")), mapping(each.get("annotations"))) for each in found]
    return tuple(Link(at, *each, None, is_template=True) for each in read if any(each))


def scheduling_part(template: Mapping[str, Any]) -> PodTemplate:
    """Return what of `template` decides where its pods can run."""
    metadata, spec = mapping(template.get("metadata")), mapping(template.get("spec"))
    kept: dict[str, Any] = {
        key: spec[key] for key in sorted(_SPEC & spec.keys()) if spec[key] is not None
    }
    for key in _CONTAINERS:
        containers = [_container(each) for each in mappings(spec.get(key))]
        if containers:
            kept[key] = containers
    volumes = [
        {key: each[key] for key in _VOLUMES if key in each}
        for each in mappings(spec.get("volumes"))
        if not each.keys().isdisjoint(_VOLUMES[1:])
    ]
    if volumes:
        kept["volumes"] = volumes
    return PodTemplate(
        metadata=TemplateMeta(
            labels=_strings(metadata.get("labels")),
            annotations=_strings(metadata.get("annotations")),
        ),
        spec=kept,
    )


def _container(container: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: container[key] for key in _CONTAINER if key in container}
    ports = [port for port in mappings(container.get("ports")) if port.get("hostPort")]
    return {**kept, "ports": ports} if ports else kept


def _strings(value: object) -> dict[str, str]:
    """Return the entries of the mapping `value` with texts. Pods cannot get the others."""
    return {key: text for key, text in mapping(value).items() if isinstance(text, str)}
