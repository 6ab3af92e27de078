"""The changes of a Reflector, each checked when it arrives."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from bindery.kube.objects.watched import KubeObject, Meta
from bindery.kube.watches.reflector import Change, EventType, Reflector

WAIT_S = 60.0

Aside = Callable[[Callable[[], None]], Awaitable[None]]
"""Runs something blocking beside the event loop."""


class Mirror:
    """Applies the changes to a mapping of its own; a lost or repeated change fails at once."""

    def __init__(self) -> None:
        self.changes: list[Change[KubeObject]] = []
        self.objects: dict[str, KubeObject] = {}
        self.malformed: list[tuple[Meta, str]] = []
        self._changed = asyncio.Event()

    def take(self, change: Change[KubeObject]) -> None:
        name = change.object.metadata.name
        if change.type is EventType.ADDED:
            assert name not in self.objects
            assert change.previous is None
        else:
            assert change.previous is self.objects[name]
            assert change.object.metadata.uid == change.previous.metadata.uid
        if change.type is EventType.MODIFIED:
            version = change.object.metadata.resource_version
            assert version != self.objects[name].metadata.resource_version
        if change.type is EventType.DELETED:
            del self.objects[name]
        else:
            self.objects[name] = change.object
        self.changes.append(change)
        self._changed.set()

    def take_malformed(self, meta: Meta, message: str) -> None:
        self.malformed.append((meta, message))
        self._changed.set()

    def story(self, name: str) -> list[str]:
        return [each.type.value for each in self.changes if each.object.metadata.name == name]

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not condition():
                self._changed.clear()
                await self._changed.wait()


@contextmanager
def running(reflector: Reflector[KubeObject]) -> Iterator[asyncio.Task[None]]:
    """Run a reflector in the background; it must not have ended by itself."""
    task = asyncio.create_task(reflector.run())
    try:
        yield task
        assert not task.done(), "the reflector ended"
    finally:
        task.cancel()


async def wait_until(condition: Callable[[], bool], timeout_s: float = WAIT_S) -> None:
    """Wait until `condition` holds; for conditions without an event."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110  # there is no event to wait for
            await asyncio.sleep(0.02)
