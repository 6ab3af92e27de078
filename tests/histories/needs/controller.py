"""What those who answer needs have in common: they look at everything some time after a change."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Mapping, Sequence
from random import Random
from typing import Any, ClassVar, Final, TypeVar

from bindery.kube.client import Client
from bindery.kube.errors import KubeError
from bindery.kube.objects.resources import PODS, Resource
from bindery.kube.objects.watched import KubeObject, Pod
from tests.histories.apiserver.server import ModelApiServer
from tests.histories.apiserver.store import Change
from tests.histories.needs.plans import Trouble
from tests.histories.reading import all_of
from tests.recounting import ENDED

T = TypeVar("T", bound=KubeObject)

NAMESPACE: Final = "work"
_LATEST_S: Final = 0.5


class Controller(ABC):
    """Looks at all objects a drawn time after each change of the kinds `watches`."""

    watches: ClassVar[frozenset[str]]
    """Plurals of kinds."""

    def __init__(self, server: ModelApiServer, client: Client, chance: Random) -> None:
        self.server, self.client, self.chance = server, client, chance
        self._changed = asyncio.Event()

    def see(self, change: Change) -> None:
        """Take note of a write."""
        if change.kind.plural in self.watches:
            self._changed.set()

    def wake(self) -> None:
        """Look soon."""
        self._changed.set()

    async def prepare(self) -> None:  # noqa: B027  # some have nothing to prepare
        """Create what is there before the product starts."""

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            await asyncio.sleep(self.chance.uniform(0.01, _LATEST_S))
            await self.look()

    @abstractmethod
    async def look(self) -> None:
        """Do what there is to do now."""

    async def suffer(self, trouble: Trouble) -> None:  # noqa: B027  # some have no troubles
        """Begin and end a trouble, if it is one of this controller."""

    def all_of(self, resource: Resource[T]) -> list[T]:
        """Return the stored objects of a kind."""
        return all_of(self.server, resource)

    def pods(self) -> list[Pod]:
        """Return the pods of the history's namespace."""
        return [pod for pod in self.all_of(PODS) if pod.metadata.namespace == NAMESPACE]

    async def create(
        self, resource: Resource[Any], name: str, body: Mapping[str, Any], **metadata: Any
    ) -> None:
        """Create an object that may be there already."""
        whole = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": name, **metadata},
            **body,
        }
        await self.attempt(
            self.client.create(resource, whole, NAMESPACE if resource.namespaced else "")
        )

    async def patch(
        self,
        resource: Resource[T],
        seen: T,
        patch: Mapping[str, Any],
        subresource: str = "",
    ) -> bool:
        """Change the version of an object that was seen; return whether it was still current."""
        meta = seen.metadata
        versioned = {"metadata": {"resourceVersion": meta.resource_version}}
        whole = {**patch, "metadata": {**patch.get("metadata", {}), **versioned["metadata"]}}
        call = self.client.patch(
            resource, meta.name, whole, namespace=meta.namespace, subresource=subresource
        )
        return await self.attempt(call)

    @staticmethod
    async def attempt(call: Coroutine[Any, Any, object]) -> bool:
        """Make a call; return whether it had success. The next look tries again."""
        try:
            await call
        except KubeError:
            return False
        return True


def is_alive(pod: Pod) -> bool:
    """Whether a pod has not ended."""
    return pod.status.phase not in ENDED


def nth(items: Sequence[T], number: int) -> T:
    """Return the item with a number, counted round and round."""
    return items[number % len(items)]
