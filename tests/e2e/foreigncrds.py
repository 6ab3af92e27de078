"""The PodGroup kinds of KAI-Scheduler and Volcano, as far as their published types name fields."""

from collections.abc import Mapping
from typing import Any

from bindery.kube.objects.resources import Resource
from tests.administrator import Plain

CRDS = Resource(
    "apiextensions.k8s.io",
    "v1",
    "customresourcedefinitions",
    "CustomResourceDefinition",
    False,
    Plain,
)
KAI_GROUPS = Resource("scheduling.run.ai", "v2alpha2", "podgroups", "PodGroup", True, Plain)
VOLCANO_GROUPS = Resource("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup", True, Plain)

_COUNT = {"type": "integer", "format": "int32"}
_TEXT = {"type": "string"}
_KAI_SPEC = {
    "minMember": _COUNT,
    "minSubGroup": _COUNT,
    "queue": _TEXT,
    "priorityClassName": _TEXT,
    "preemptibility": {"type": "string", "enum": ["preemptible", "non-preemptible"]},
    "markUnschedulable": {"type": "boolean"},
    "schedulingBackoff": _COUNT,
    "topologyConstraint": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    "subGroups": {
        "type": "array",
        "items": {
            "type": "object",
            "required": ["name"],
            "properties": {
                "name": {"type": "string", "minLength": 1},
                "minMember": _COUNT,
                "minSubGroup": _COUNT,
                "parent": _TEXT,
                "topologyConstraint": {
                    "type": "object",
                    "x-kubernetes-preserve-unknown-fields": True,
                },
            },
        },
    },
}
_VOLCANO_SPEC = {
    "minMember": {**_COUNT, "minimum": 0},
    "minTaskMember": {"type": "object", "additionalProperties": _COUNT},
    "queue": {"type": "string", "default": "default"},
    "priorityClassName": _TEXT,
    "minResources": {
        "type": "object",
        "additionalProperties": {"x-kubernetes-int-or-string": True},
    },
    "networkTopology": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    "subGroupPolicy": {
        "type": "array",
        "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}


def definition(kind: "Resource[Plain]", spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the definition of a namespaced kind with `spec`."""
    names = {"kind": kind.kind, "plural": kind.plural, "singular": kind.kind.lower()}
    status = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": dict(spec)}, "status": status},
    }
    version = {
        "name": kind.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{kind.group}"},
        "spec": {
            "group": kind.group,
            "names": {**names, "listKind": f"{kind.kind}List"},
            "scope": "Namespaced",
            "versions": [version],
        },
    }


DEFINITIONS = (definition(KAI_GROUPS, _KAI_SPEC), definition(VOLCANO_GROUPS, _VOLCANO_SPEC))
