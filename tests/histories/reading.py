"""Decodes the model's objects as the product does, for those who judge them."""

from collections.abc import Callable
from functools import cache, lru_cache
from typing import TypeVar

from bindery.kube.objects.resources import Resource
from bindery.kube.objects.watched import KubeObject
from tests.histories.apiserver.server import ModelApiServer

T = TypeVar("T", bound=KubeObject)


def all_of(server: ModelApiServer, resource: Resource[T]) -> list[T]:
    """Return the stored objects of a kind, by namespace and name; none of one not served."""
    if all(kind.plural != resource.plural for kind in server.paths.kinds):
        return []
    stored = server.store.of(server.kind(resource.plural)).objects
    decode = _decoder(resource)
    return [decode(stored[key].body) for key in sorted(stored)]


@cache
def _decoder(resource: Resource[T]) -> Callable[[bytes], T]:
    """Decode once what controllers read again and again; the objects cannot be changed."""
    return lru_cache(maxsize=1024)(resource.decode)
