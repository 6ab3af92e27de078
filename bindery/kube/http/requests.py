"""Requests to the API server, as values.

Built by `client`, sent by `http.transport`. Each request has a rule for repetitions. Pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final
from urllib.parse import urlencode

import msgspec

from bindery.kube.http.retry import Repeat
from bindery.kube.objects.resources import PODS, Resource
from bindery.kube.objects.watched import KubeObject

JSON: Final = "application/json"
_PARTIAL: Final = "application/json;as=PartialObjectMetadata{};g=meta.k8s.io;v=v1"
_METHODS: Final = {
    "get": "GET",
    "list": "GET",
    "watch": "GET",
    "create": "POST",
    "update": "PUT",
    "patch": "PATCH",
    "delete": "DELETE",
    "deletecollection": "DELETE",
}

_BINDINGS: Final = Resource("", "v1", "pods/binding", "Binding", True, KubeObject)
_EVICTIONS: Final = Resource("", "v1", "pods/eviction", "Eviction", True, KubeObject)

Body = Mapping[str, Any] | msgspec.Struct
"""An object to write."""
Patch = Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""A merge, strategic or apply patch; a JSON patch is a sequence of operations."""


class PatchKind(StrEnum):
    """The media type of a patch."""

    MERGE = "application/merge-patch+json"
    JSON = "application/json-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"


@dataclass(frozen=True)
class Selection:
    """The objects of a kind for a list or watch; empty fields select all."""

    namespace: str = ""
    label_selector: str = ""
    field_selector: str = ""

    def query(self, **parameters: str) -> str:
        """Build the query string, with further `parameters`."""
        if self.label_selector:
            parameters["labelSelector"] = self.label_selector
        if self.field_selector:
            parameters["fieldSelector"] = self.field_selector
        return "?" + urlencode(parameters) if parameters else ""


class ApiRequest(msgspec.Struct, frozen=True):
    """The content of one call."""

    verb: str
    """Verb as in RBAC rules: get, list, watch, create, update, patch, delete, deletecollection."""
    method: str
    resource: str
    """The plural, for metrics."""
    target: str
    """Path and query."""
    repeat: Repeat
    accept: str
    body: bytes | None = None
    content_type: str = JSON


def read(resource: Resource[Any], verb: str, target: str) -> ApiRequest:
    """Build a request without a body, which may always be repeated."""
    accept = JSON
    if resource.partial:
        accept = _PARTIAL.format("List" if verb == "list" else "")
    return ApiRequest(verb, "GET", resource.plural, target, Repeat.ALWAYS, accept)


def write(
    resource: Resource[Any],
    verb: str,
    target: str,
    repeat: Repeat,
    body: Body | Patch,
    content_type: str = JSON,
) -> ApiRequest:
    """Build a request that writes."""
    return ApiRequest(
        verb,
        _METHODS[verb],
        resource.plural,
        target,
        repeat,
        _PARTIAL.format("") if resource.partial else JSON,
        msgspec.json.encode(body),
        content_type,
    )


def binding(
    namespace: str, pod_name: str, pod_uid: str, node_name: str, further: Mapping[str, Any]
) -> ApiRequest:
    """Build the request that binds a pod; because of the UID it takes effect at most once.

    `further`: labels and annotations to write together with the node, and the resourceVersion that
    the pod must have.
    """
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod_name, "namespace": namespace, "uid": pod_uid, **further},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node_name},
    }
    path = PODS.path(namespace, pod_name, "binding")
    return write(_BINDINGS, "create", path, Repeat.ANSWERED, body)


def eviction(namespace: str, pod_name: str, pod_uid: str, *, dry_run: bool) -> ApiRequest:
    """Build the request that evicts a pod; never repeated, as disruption budgets count it."""
    options: dict[str, Any] = {"preconditions": {"uid": pod_uid}}
    if dry_run:
        options["dryRun"] = ["All"]
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod_name, "namespace": namespace},
        "deleteOptions": options,
    }
    path = PODS.path(namespace, pod_name, "eviction")
    return write(_EVICTIONS, "create", path, Repeat.UNSENT, body)


def is_named(body: Body) -> bool:
    """Whether an object to be created has a name, not only `generateName`."""
    if isinstance(body, KubeObject):
        return bool(body.metadata.name)
    return isinstance(body, Mapping) and bool(body.get("metadata", {}).get("name"))
