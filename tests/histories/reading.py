"""Decodes the model's objects as the product does, for those who judge them."""

from functools import lru_cache
from typing import Any, TypeVar

from bindery.kube.objects.resources import Resource
from bindery.kube.objects.watched import KubeObject
from tests.histories.apiserver.server import ModelApiServer

T = TypeVar("T", bound=KubeObject)


def all_of(server: ModelApiServer, resource: Resource[T]) -> list[T]:
    """Return the stored objects of a kind, by namespace and name; none of one not served."""
    if all(kind.plural != resource.plural for kind in server.paths.kinds):
        return []
    stored = server.store.of(server.kind(resource.plural)).objects
    return [_decoded(resource, stored[key].body) for key in sorted(stored)]


@lru_cache(maxsize=4096)
def _decoded(resource: Resource[Any], body: bytes) -> Any:
    """Decode once what controllers read again and again; the objects cannot be changed."""
    return resource.decode(body)
