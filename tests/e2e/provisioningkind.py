"""The definition of cluster-autoscaler's ProvisioningRequest, and a stand-in for its controller.

The definition has the fields and rules of the published type `autoscaling.x-k8s.io/v1`. It was
written by hand, because the module with the published definition cannot be downloaded everywhere.
"""

from typing import Any, Final

from bindery.kube.errors import NotFoundError
from bindery.kube.objects.provisioning import PROVISIONING_REQUESTS, ProvisioningRequest
from tests.e2e.support import Corner, wait_for

_NAME: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
_TEXT: Final = {"type": "string"}
_NAMED: Final = {"type": "string", "maxLength": 253, "pattern": _NAME}
_FIXED: Final = {
    "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "cannot be changed"}]
}


def _texts(longest: int, most: int) -> dict[str, Any]:
    values = {"type": "string", "maxLength": longest}
    return {"type": "object", "maxProperties": most, "additionalProperties": values}


_POD_SET: Final = {
    "type": "object",
    "required": ["count", "podTemplateRef"],
    "properties": {
        "count": {"type": "integer", "format": "int32", "minimum": 1},
        "podTemplateRef": {
            "type": "object",
            "required": ["name"],
            "properties": {"name": _NAMED},
        },
    },
}
_SPEC: Final = {
    "type": "object",
    "required": ["podSets", "provisioningClassName"],
    "properties": {
        "podSets": {"type": "array", "minItems": 1, "maxItems": 32, "items": _POD_SET, **_FIXED},
        "provisioningClassName": {**_NAMED, **_FIXED},
        "parameters": {**_texts(255, 100), **_FIXED},
    },
}
_CONDITION: Final = {
    "type": "object",
    "required": ["lastTransitionTime", "message", "reason", "status", "type"],
    "properties": {
        "lastTransitionTime": {"type": "string", "format": "date-time"},
        "message": _TEXT,
        "observedGeneration": {"type": "integer", "format": "int64"},
        "reason": {"type": "string", "minLength": 1},
        "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
        "type": _TEXT,
    },
}
_STATUS: Final = {
    "type": "object",
    "properties": {
        "conditions": {
            "type": "array",
            "items": _CONDITION,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
        },
        "provisioningClassDetails": _texts(32768, 64),
    },
}
DEFINITION_NAME: Final = f"{PROVISIONING_REQUESTS.plural}.{PROVISIONING_REQUESTS.group}"
DEFINITION: Final = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": DEFINITION_NAME,
        # Kubernetes protects its own groups; the value says who has reviewed the definition.
        "annotations": {"api-approved.kubernetes.io": "unapproved, a definition for tests"},
    },
    "spec": {
        "group": PROVISIONING_REQUESTS.group,
        "names": {
            "kind": PROVISIONING_REQUESTS.kind,
            "listKind": "ProvisioningRequestList",
            "plural": PROVISIONING_REQUESTS.plural,
            "singular": "provisioningrequest",
        },
        "scope": "Namespaced",
        "versions": [
            {
                "name": PROVISIONING_REQUESTS.version,
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "required": ["spec"],
                        "properties": {"spec": _SPEC, "status": _STATUS},
                    }
                },
            }
        ],
    },
}


class StandInAutoscaler:
    """Writes the conditions that cluster-autoscaler would write; adds no nodes."""

    def __init__(self, corner: Corner) -> None:
        self._corner = corner

    async def request(self, name: str) -> ProvisioningRequest:
        """Wait until there is a request with `name`."""

        async def found() -> ProvisioningRequest | None:
            try:
                return await self._corner.client.get(
                    PROVISIONING_REQUESTS, name, self._corner.namespace
                )
            except NotFoundError:
                return None

        made = await wait_for(found, f"a ProvisioningRequest {name}")
        assert made is not None
        return made

    async def say(self, name: str, at: str, *kinds: str) -> None:
        """Set the conditions of the request to those of `kinds`, all true since `at`."""
        conditions = [
            {"type": it, "status": "True", "reason": it, "message": "", "lastTransitionTime": at}
            for it in kinds
        ]
        await self._corner.client.patch(
            PROVISIONING_REQUESTS,
            name,
            {"status": {"conditions": conditions}},
            namespace=self._corner.namespace,
            subresource="status",
        )
